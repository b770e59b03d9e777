"""The files of a conversation over HTTP, on a real socket: what is served, in which parts, and to whom."""

from __future__ import annotations

from time import time
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from turnwise import Engine, File, InvalidInput, Policy, tool
from turnwise.hosts.http.files import PART
from turnwise.persistence import files, open_store
from turnwise.states.policy import FileRules
from turnwise.testing import FunctionLlm, call, reply

from ...support.http.documented_client import DocumentedClient, serving_here
from ...support.http.live_server import LiveServer, serving
from ...support.http.raw_client import ask
from ...support.pictures import MP4, PDF, PNG, WAV, data_url, padded_png, stored
from ...support.planted.stores import WrappedStore

LARGE = padded_png(2 * PART + 100)
"""A picture that is read in three parts."""

HTML = b"<!DOCTYPE html><script>alert(document.cookie)</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@tool(crash="pure")
async def draw() -> File:
    """Draw a picture."""
    return File(LARGE, name="large.png")


def the_engine(policy: Policy | None = None) -> Engine:
    """An engine whose model draws when it is asked to."""

    def answer(request: Any) -> Any:
        return call("draw") if "Draw" in str(request.messages[-1]["content"]) else reply("Seen.")

    return Engine.open("sqlite://", model=FunctionLlm(answer), tools=[draw], policy=policy)


def by_header(request: Request) -> str | None:
    """The user whom a header names."""
    return request.headers.get("x-user")


def talk_of(server: LiveServer, engine: Engine, *files: Any, owner: str | None = None, text: str = "Look") -> str:
    """The path of a conversation with these files."""

    async def talk() -> str:
        conversation = await engine.create(owner=owner)
        await conversation.send(text, files=files)
        return conversation.id

    return f"/conversations/{server.run(talk)}/files"


class TestDownload:
    """`GET /conversations/{id}/files/{sha256}`."""

    def test_every_byte_comes_as_it_was_sent(self) -> None:
        """Of a message, and of a result that a tool has returned."""
        with serving(engine := the_engine()) as server, server.client() as client:
            path = talk_of(server, engine, PNG, text="Draw")
            sent = client.get(f"{path}/{stored(PNG).sha256}")
            drawn = client.get(f"{path}/{stored(LARGE).sha256}")
            head = client.head(f"{path}/{stored(LARGE).sha256}")

        assert (sent.status_code, sent.content, drawn.content) == (200, PNG, LARGE)
        assert sent.headers["content-type"] == "image/png"
        assert drawn.headers["content-disposition"] == "inline; filename*=UTF-8''large.png"
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(LARGE)))

    @pytest.mark.parametrize(
        ("data", "name", "disposition"),
        [
            (PNG, "", "inline"),
            (WAV, "", "inline"),
            (MP4, "", "inline"),
            (PDF, "a.pdf", "attachment; filename*=UTF-8''a.pdf"),
            (HTML, "a.html", "attachment; filename*=UTF-8''a.html"),
            (SVG, "a.svg", "attachment; filename*=UTF-8''a.svg"),
            (b"a,b\n", 'x"; é\u202e.csv', "attachment; filename*=UTF-8''x%22%3B%20%C3%A9.csv"),
        ],
    )
    def test_nothing_is_run_by_a_browser(self, data: bytes, name: str, disposition: str) -> None:
        """It is shown if it is an image, a recording or a video, and else saved, under its name; in a sandbox."""
        with serving(engine := the_engine()) as server, server.client() as client:
            answer = client.get(f"{talk_of(server, engine, File(data, name))}/{stored(data, name).sha256}")

        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["content-disposition"] == disposition
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "private, no-cache"

    def test_a_part_comes_alone(self) -> None:
        """By RFC 9110: what a range may ask for, what is ignored, and what there is not."""
        size, last = len(LARGE), len(LARGE) - 1
        answers: dict[str, httpx.Response] = {}
        with serving(engine := the_engine()) as server, server.client() as client:
            path = f"{talk_of(server, engine, LARGE)}/{stored(LARGE).sha256}"
            wanted = ["0-0", "5-9", f"{PART - 1}-{PART}", f"{last}-", "-3", f"-{size * 2}", f"7-{size * 9}"]
            for one in [*wanted, "9-5", "0-1,3-4", "-", "x-2", f"{size}-", "-0", "0-" + "9" * 400]:
                answers[one] = client.get(path, headers={"range": f"bytes={one}"})
            tag = answers["0-0"].headers["etag"]
            same = client.get(path, headers={"range": "bytes=0-1", "if-range": tag})
            other = client.get(path, headers={"range": "bytes=0-1", "if-range": '"other"'})

        parts = [LARGE[:1], LARGE[5:10], LARGE[PART - 1 : PART + 1], LARGE[-1:], LARGE[-3:], LARGE, LARGE[7:]]
        assert [(answers[one].status_code, answers[one].content) for one in wanted] == [(206, part) for part in parts]
        assert answers["5-9"].headers["content-range"] == f"bytes 5-9/{size}"
        assert answers["-3"].headers["content-range"] == f"bytes {size - 3}-{last}/{size}"
        for one in ("9-5", "0-1,3-4", "-", "x-2", "0-" + "9" * 400):
            assert (answers[one].status_code, len(answers[one].content)) == (200, size), one
        for one in (f"{size}-", "-0"):
            assert (answers[one].status_code, answers[one].json()["code"]) == (416, "range_not_satisfiable"), one
            assert answers[one].headers["content-range"] == f"bytes */{size}"
        assert (same.status_code, other.status_code) == (206, 200)

    async def test_its_answers_are_documented(self) -> None:
        """All of them, and a client that has the file is not sent it again."""
        engine = the_engine()
        async with serving_here(engine) as api:
            conversation = await engine.create()
            await conversation.send("Look", files=[PNG])
            named = {"conversation_id": conversation.id, "sha256": stored(PNG).sha256}

            async def status(**headers: str) -> int:
                return (await api.call("getFile", headers=headers, **named)).status_code

            plain = await api.call("getFile", **named)
            assert plain.status_code == 200
            assert await status(range="bytes=0-1") == 206
            assert await status(range="bytes=100000-") == 416
            for tag in (plain.headers["etag"], "*", f'"x", W/{plain.headers["etag"]}'):
                assert await status(**{"if-none-match": tag}) == 304
            assert await status(**{"if-none-match": '"x"'}) == 200
            await self._is_unknown(api, conversation.id)

    async def _is_unknown(self, api: DocumentedClient, conversation_id: str) -> None:
        for digest in (stored(LARGE).sha256, "nonsense", stored(PNG).sha256.upper(), "%"):
            assert await api.problem("getFile", conversation_id=conversation_id, sha256=digest) == (404, "not_found")
            long = await api.problem("getFile", conversation_id=conversation_id, sha256="0" * 65)
            assert long == (422, "invalid_input")

    def test_only_its_owner_gets_a_file(self) -> None:
        """Who knows the digest of a file of somebody else has nothing by it, neither there nor in a conversation of
        their own, and does not learn whether it is stored."""
        with serving(engine := the_engine(), owner=by_header) as server, server.client() as client:
            anns = talk_of(server, engine, LARGE, owner="ann")
            bobs = talk_of(server, engine, PNG, owner="bob")
            digest = stored(LARGE).sha256
            hers = client.get(f"{anns}/{digest}", headers={"x-user": "ann"})
            refused = [client.get(f"{path}/{digest}", headers={"x-user": "bob"}) for path in (anns, bobs)]
            nowhere = client.get(f"{bobs}/{'0' * 64}", headers={"x-user": "bob"})
            nobody = client.get(f"{anns}/{digest}")

        assert (hers.status_code, nobody.status_code) == (200, 401)
        assert [one.json()["code"] for one in refused] == ["unknown_conversation", "not_found"]
        assert refused[1].content == nowhere.content

    def test_it_goes_with_its_conversation(self) -> None:
        """And is shown as long as the transcript refers to it."""
        with serving(engine := the_engine()) as server, server.client() as client:
            path = talk_of(server, engine, PNG)
            client.delete(path.removesuffix("/files")).raise_for_status()
            gone = client.get(f"{path}/{stored(PNG).sha256}")

        assert gone.status_code == 404

    def test_hostile_headers_change_nothing(self) -> None:
        """On a raw socket: ranges that are no ASCII, and digests that are paths."""
        with serving(engine := the_engine()) as server:
            path = talk_of(server, engine, PNG)
            digest = stored(PNG).sha256
            whole = ask(server.port, f"GET {path}/{digest} HTTP/1.1\r\nHost: localhost\r\nRange: ".encode() + b"bytes=\xb2-\r\n\r\n")  # fmt: skip  # noqa: E501
            outside = ask(server.port, f"GET {path}/..%2F..%2Fetc HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        assert whole is not None
        assert (whole.status, whole.body) == (200, PNG)
        assert outside is not None
        assert outside.status == 404


def new_talk(client: httpx.Client, **headers: str) -> str:
    """The path of a new conversation."""
    return f"/conversations/{client.post('/conversations', json={}, headers=headers).raise_for_status().json()['id']}"


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """How a request was refused."""
    return answer.status_code, answer.json()["code"]


class TestUpload:
    """`POST /conversations/{id}/files`."""

    def test_a_message_names_it_by_its_digest(self) -> None:
        """It is larger than other bodies may be, is stored once, and belongs to the message then, with its name."""
        large = padded_png(6_000_000)
        with serving(the_engine()) as server, server.client() as client:
            path = new_talk(client)
            kept = client.post(f"{path}/files", params={"name": "large.png"}, content=large)
            unused = client.get(f"{path}/files/{stored(large).sha256}")
            named = {"sha256": kept.json()["sha256"], "name": "large.png"}
            sent = client.post(f"{path}/messages", json={"text": "Look", "files": [named]})
            (file,) = client.get(f"{path}/transcript").json()["messages"][0]["files"]
            served = client.get(f"{path}/files/{stored(large).sha256}")

        assert kept.json() == {**named, "media_type": "image/png", "size": 6_000_000}
        assert (kept.status_code, sent.status_code, code_of(unused)) == (201, 202, (404, "not_found"))
        assert (file["sha256"], file["name"], served.content) == (named["sha256"], "large.png", large)

    def test_what_cannot_be_kept_is_a_problem(self) -> None:
        """By its size, its type, and what its sender says of it; also in a conversation that is closed."""
        policy = Policy(files=FileRules(size=1000))
        with serving(the_engine(policy)) as server, server.client() as client:
            path = new_talk(client)

            def refusal(content: Any, media_type: str = "") -> tuple[int, str]:
                return code_of(client.post(f"{path}/files", content=content, headers={"content-type": media_type}))

            assert refusal(padded_png(1001)) == (413, "too_large")
            assert refusal(iter([b"x" * 600, b"x" * 600])) == (413, "too_large")
            assert refusal(b"\x00\x01\x02") == (415, "unsupported_media_type")
            assert refusal(b"") == (422, "invalid_input")
            assert refusal(PDF, "image/png") == (415, "unsupported_media_type")
            assert code_of(client.post(f"{path}/files", params={"name": "x" * 2000}, content=PNG))[0] == 422
            assert client.post(f"{path}/files", content=padded_png(1000)).status_code == 201
            client.post(f"{path}/close")
            assert refusal(PNG) == (409, "closed")

    def test_no_more_than_the_limit_is_read(self) -> None:
        """A body without an end is refused as soon as it is too long, and one whose length says so at once."""
        with serving(the_engine(Policy(files=FileRules(size=1000)))) as server, server.client() as client:
            head = f"POST {new_talk(client)}/files HTTP/1.1\r\nHost: localhost\r\n".encode()
            declared = ask(server.port, head + b"Content-Length: 9999999999\r\n\r\n")
            endless = ask(server.port, head + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n")

        assert declared is not None
        assert endless is not None
        assert (declared.problem().code, endless.problem().code) == ("too_large", "too_large")

    def test_the_digest_of_somebody_else_is_worth_nothing(self) -> None:
        """Neither that of a file in a message nor of one that waits; not in another conversation of its owner, either,
        and the refusal is the one for a digest that nobody has."""
        with serving(the_engine(), owner=by_header) as server, server.client() as client:
            anns = new_talk(client, **{"x-user": "ann"})
            client.post(f"{anns}/files", content=PNG, headers={"x-user": "ann"}).raise_for_status()
            answers = []
            for user in ("ann", "bob"):
                path = new_talk(client, **{"x-user": user})
                for digest in (stored(PNG).sha256, "0" * 64):
                    body = {"text": "Look", "files": [{"sha256": digest}]}
                    answers.append(client.post(f"{path}/messages", json=body, headers={"x-user": user}))
            into = client.post(f"{anns}/files", content=PNG, headers={"x-user": "bob"})

        assert {code_of(one) for one in answers} == {(422, "invalid_input")}
        assert len({one.text for one in answers}) == 1
        assert code_of(into) == (404, "unknown_conversation")

    def test_what_a_client_says_of_it_is_not_believed(self) -> None:
        """Its bytes say what it is, whatever the message calls it."""
        with serving(the_engine()) as server, server.client() as client:
            path = new_talk(client)
            digest = client.post(f"{path}/files", content=PDF).json()["sha256"]
            wrong: list[dict[str, Any]] = [
                {"sha256": digest, "media_type": "image/png"},
                {"sha256": digest, "url": "https://example.org/a.png"},
                {"sha256": digest.upper()},
                {"name": "a.pdf"},
            ]
            refused = [client.post(f"{path}/messages", json={"text": "a", "files": [one]}) for one in wrong]
            turns = client.get(f"{path}/turns").json()["turns"]

        assert ({code_of(one) for one in refused}, turns) == ({(422, "invalid_input")}, [])

    async def test_what_no_message_has_is_removed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a day, when the next file is kept; what a message has stays, and so does what was kept just now."""
        async with the_engine() as engine:
            conversation = await engine.create()
            sent = await conversation.keep_file(PNG)
            await conversation.send("Look", files=[sent])
            await conversation.keep_file(WAV)
            monkeypatch.setattr(files, "time", lambda: time() + 2 * files.FRESH)
            await conversation.keep_file(PDF)
            await conversation.keep_file(MP4)
            left = [await conversation.read_file(stored(one).sha256) for one in (PNG, WAV, PDF, MP4)]

        assert left == [PNG, None, PDF, MP4]

    async def test_what_was_read_of_the_log_for_that_is_not_read_again(self) -> None:
        """So an upload costs no more in a long conversation, but for the first one."""
        read: list[int] = []

        class Counting(WrappedStore):
            async def entries(self, *arguments: Any) -> Any:
                entries = await self.store.entries(*arguments)
                read.append(len(entries))
                return entries

        store = await open_store("sqlite://")
        async with Engine.open(store=Counting(store), model=FunctionLlm(lambda _: "Yes.")) as engine:
            conversation = await engine.create()
            await conversation.send("Look", files=[PNG])
            await conversation.keep_file(WAV)
            before, length = len(read), len(await store.entries(conversation.id))
            await conversation.keep_file(PDF)
            await conversation.send("And this?")
            await conversation.keep_file(MP4)
            new = len(await store.entries(conversation.id)) - length
            kept = len(await store.files.of(conversation.id))
        await store.close()

        assert (sum(read[before:]), kept) == (new, 4)

    async def test_only_so_much_waits(self) -> None:
        """Then a file is refused until some of them are sent."""
        async with the_engine(Policy(files=FileRules(together=200))) as engine:
            conversation = await engine.create()
            for number in range(6):
                await conversation.keep_file(b"x" * 199 + str(number).encode())
            with pytest.raises(InvalidInput, match="wait") as refused:
                await conversation.keep_file(b"one more")

        assert refused.value.subject == "waiting"


class TestInline:
    """Files in the body of a message."""

    def test_a_data_url_becomes_a_file(self) -> None:
        """It is stored once and referred to; nothing shows base64."""
        with serving(the_engine()) as server, server.client() as client:
            created = client.post("/conversations", json={}).json()["id"]
            body = {"text": "Look", "files": [data_url("image/png", PNG), "https://example.org/a.pdf"]}
            client.post(f"/conversations/{created}/messages", json=body).raise_for_status()
            shown = client.get(f"/conversations/{created}/transcript")
            image, document = shown.json()["messages"][0]["files"]
            served = client.get(f"/conversations/{created}/files/{image['sha256']}")

        assert served.content == PNG
        assert (document["url"], "base64" in shown.text) == ("https://example.org/a.pdf", False)
