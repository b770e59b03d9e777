"""The files of a conversation over HTTP, on a real socket: what is served, in which parts, and to whom."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.requests import Request

from turnwise import Engine, File, tool
from turnwise.hosts.http.files import PART
from turnwise.testing import FunctionLlm, call, reply

from ...support.http.documented_client import DocumentedClient, serving_here
from ...support.http.live_server import LiveServer, serving
from ...support.http.raw_client import ask
from ...support.pictures import MP4, PDF, PNG, WAV, data_url, padded_png, stored

LARGE = padded_png(2 * PART + 100)
"""A picture that is read in three parts."""

HTML = b"<!DOCTYPE html><script>alert(document.cookie)</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@tool(crash="pure")
async def draw() -> File:
    """Draw a picture."""
    return File(LARGE, name="large.png")


def the_engine() -> Engine:
    """An engine whose model draws when it is asked to."""

    def answer(request: Any) -> Any:
        return call("draw") if "Draw" in str(request.messages[-1]["content"]) else reply("Seen.")

    return Engine.open("sqlite://", model=FunctionLlm(answer), tools=[draw])


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
