"""The client for servers that speak OpenAI's protocol: what it sends, and what becomes of a server in trouble.

What it shares with litellm is tested with both clients, here and in `tests/effects/model/litellm`, by tests that use
the fixture `each_client`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Dialect,
    Engine,
    LlmFailure,
    ModelRequest,
    ModelSettings,
    ModelSpec,
    OpenAICompatible,
    Policy,
    Profile,
    RequestedOutput,
    Token,
)
from turnwise.effects.model.port import SENTENCES, Llm
from turnwise.states.values.value import FailureKind

from ....support.cases import holds_for
from ....support.pictures import MP4, PDF, data_url
from ....support.servers.model_server import ModelServer, answers
from ....support.servers.openai_server import OpenAiServer, calls, fails, hangs, says

ASKED = ({"role": "user", "content": "Hello"},)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def request(*tools: dict[str, Any], **more: Any) -> ModelRequest:
    """Return a short request."""
    return ModelRequest("m", ASKED, tools, **more)


def ignore(_: Token) -> None:
    """Show nothing."""


class TestRequests:
    """What a server gets."""

    async def test_the_address_and_the_key(self) -> None:
        """The key is a bearer token, beside headers of the application."""
        async with OpenAiServer([says("Hi")]) as server:
            model = OpenAICompatible(server.url, "sk-1", "m", headers={"X-Title": "Dinner"})
            await model.complete(request(), ignore)

        (headers,) = server.headers
        assert (headers["Authorization"], headers["X-Title"]) == ("Bearer sk-1", "Dinner")

    async def test_a_header_wins_over_the_key(self) -> None:
        """However its name is written, so that a server gets one of them."""
        async with OpenAiServer([says("Hi")]) as server:
            model = OpenAICompatible(server.url, "sk-1", "m", headers={"authorization": "Token t"})
            await model.complete(request(), ignore)

        assert server.headers[0].getall("Authorization") == ["Token t"]

    async def test_a_user_in_the_address(self, caplog: pytest.LogCaptureFixture) -> None:
        """It takes the place of a key, and the password is in no log, that of httpx neither."""
        caplog.set_level("INFO")
        async with OpenAiServer([says("Hi")]) as server:
            address = server.url.replace("://", "://anna:pass%20word@")
            await OpenAICompatible(address, None, "m").complete(request(), ignore)

        assert server.headers[0]["Authorization"] == "Basic YW5uYTpwYXNzIHdvcmQ="
        assert "pass" not in caplog.text

    async def test_without_a_key_nothing_is_said_of_one(self) -> None:
        """Many servers on one's own machine want none."""
        async with OpenAiServer([says("Hi")]) as server:
            await OpenAICompatible(server.url, None, "m").complete(request(), ignore)

        assert "Authorization" not in server.headers[0]

    async def test_it_is_a_stream_with_its_usage(self) -> None:
        """With nothing that was not asked for."""
        async with OpenAiServer([says("Hi")]) as server:
            await OpenAICompatible(server.url, None, "m").complete(request(), ignore)

        assert server.requests == [
            {"model": "m", "messages": [*ASKED], "stream": True, "stream_options": {"include_usage": True}}
        ]

    async def test_settings_win_over_parameters(self) -> None:
        """Those of a message, a profile or a policy, which are more specific."""
        parameters = {"temperature": 1, "top_k": 5, "input_cost_per_token": 0.001}
        settings = ModelSettings(temperature=0, seed=7, stop=("END",))
        async with OpenAiServer([calls(("look", {}))]) as server:
            model = OpenAICompatible(server.url, None, "m", parameters=parameters)
            answer = await model.complete(request(TOOL, settings=settings, tool_choice="required"), ignore)

        (body,) = server.requests
        names = ("temperature", "top_k", "seed", "stop", "tools", "tool_choice")
        assert [body[name] for name in names] == [0, 5, 7, ["END"], [TOOL], "required"]
        assert "input_cost_per_token" not in body
        assert answer.usage.cost == pytest.approx(0.01)

    async def test_a_schema_is_sent(self) -> None:
        """Where the request is to be held to it."""
        form = RequestedOutput("native", "Ticket", {"type": "object"}, strict=True)
        async with OpenAiServer([says("{}")]) as server:
            await OpenAICompatible(server.url, None, "m").complete(request(output=form), ignore)

        schema = {"name": "Ticket", "schema": {"type": "object"}, "strict": True}
        assert server.requests[0]["response_format"] == {"type": "json_schema", "json_schema": schema}

    @pytest.mark.parametrize(
        ("part", "sent"),
        [
            (
                {"type": "file", "file": {"filename": "a.mp4", "file_data": data_url("video/mp4", MP4)}},
                {"type": "video_url", "video_url": {"url": data_url("video/mp4", MP4)}},
            ),
            (
                {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}},
            ),
            (
                {"type": "file", "file": {"file_id": "https://a.example/b.mp3", "format": "audio/mpeg"}},
                {"type": "audio_url", "audio_url": {"url": "https://a.example/b.mp3"}},
            ),
            (
                {"type": "file", "file": {"file_id": "https://a.example/b.pdf?v=1", "format": "application/pdf"}},
                {"type": "file", "file": {"filename": "b.pdf", "file_data": "https://a.example/b.pdf?v=1"}},
            ),
        ],
    )
    async def test_files_stand_in_the_parts_that_servers_have(self, part: Any, sent: Any) -> None:
        """Videos, and what stands at an address, have none of OpenAI's own."""
        async with ModelServer([answers("Hi")]) as server:
            asked = ModelRequest("m", ({"role": "user", "content": [{"type": "text", "text": "What?"}, part]},))
            await OpenAICompatible(server.url, None, "m").complete(asked, ignore)

        assert server.bodies[0]["messages"][0]["content"][1] == sent

    async def test_tools_of_the_server_are_sent_as_they_are_given(self, caplog: pytest.LogCaptureFixture) -> None:
        """A name that other protocols have means nothing here, which is told once."""
        own = {"type": "web_search_preview"}
        settings = ModelSettings(server_tools=("web_search", own))
        async with ModelServer([answers("Hi")]) as server:
            model = OpenAICompatible(server.url, None, "m")
            for _ in range(2):
                await model.complete(request(settings=settings), ignore)

        assert [body["tools"] for body in server.bodies] == [[own], [own]]
        assert len([one for one in caplog.records if "web_search" in one.getMessage()]) == 1


class TestMaking:
    """What is given is checked at once."""

    @holds_for(
        "url",
        ["", "localhost:8000", "ftp://a/v1", "http://", "http://[::1", "http://a:0/v1", "/v1", None, 7, "http://a b"],
    )
    def test_what_is_no_address_is_refused(self, url: Any) -> None:
        """In one sentence, which shows what an address looks like."""
        with pytest.raises(ConfigurationError, match=r"http://localhost:8000/v1"):
            OpenAICompatible(url, None, "m")

    @holds_for(
        "options",
        [
            {"key": "a\nb"},
            {"key": "schlüssel"},
            {"key": b"sk-1"},
            {"key": 7},
            {"key": "sk-1", "base_url": "http://anna:word@localhost/v1"},
            {"headers": {"X Y": "1"}},
            {"headers": {"": "1"}},
            {"model": "m\n"},
            {"model": "\ud800"},
            {"parameters": {"temperature": float("nan")}},
            {"parameters": {"logit_bias": {7}}},
            {"headers": {"X": 1}},
            {"headers": {"X\n": "1"}},
            {"model": ""},
            {"model": None},
            {"timeout": 0},
            {"timeout": "long"},
            {"schema": "sometimes"},
            {"parameters": {"messages": []}},
            {"parameters": {"stream": False}},
            {"dialect": {"stream": False}},
        ],
    )
    def test_what_cannot_be_sent_is_refused(self, options: dict[str, Any]) -> None:
        """Before there is a request."""
        given = {"base_url": "http://localhost/v1", "key": None, "model": "m", **options}

        with pytest.raises(ConfigurationError):
            OpenAICompatible(**given)

    def test_a_password_in_what_is_no_address_is_not_told(self) -> None:
        """Such a sentence is shown and logged."""
        with pytest.raises(ConfigurationError) as caught:
            OpenAICompatible("htp://anna:hunter2@localhost/v1", None, "m")

        assert "hunter2" not in str(caught.value)

    @holds_for(
        ("options", "beside_tools", "alone"),
        [
            ({}, "tool", "native"),
            ({"schema": "always"}, "native", "native"),
            ({"schema": "never"}, "tool", "tool"),
            ({"dialect": Dialect(response_format=False)}, "tool", "tool"),
            ({"dialect": Dialect(response_format=False, without=["tools"])}, "prompted", "prompted"),
        ],
    )
    def test_how_a_typed_answer_is_asked_for(self, options: dict[str, Any], beside_tools: str, alone: str) -> None:
        """By what is said of the server; most hold to a schema only where no tool may be called."""
        model = OpenAICompatible("http://localhost/v1", None, "m", **options)

        assert (model.output_way(True), model.output_way(False)) == (beside_tools, alone)

    def test_what_it_says_of_itself(self) -> None:
        """It fills the port; files are tried until the server refuses them, and there is a price if one is given."""
        model = OpenAICompatible("http://localhost/v1/", "sk-1", "qwen3", window=9, takes={"audio": False})
        priced = OpenAICompatible("http://localhost", None, "m", parameters={"output_cost_per_token": 0.0})

        assert isinstance(model, Llm)
        assert (model.name, model.window, model.family, model.is_priced) == ("qwen3", 9, "openai/qwen", False)
        assert [model.takes(kind) for kind in ("image", "audio")] == [None, False]
        assert priced.is_priced
        assert "sk-1" not in repr(model)


class TestInAnEngine:
    """Wherever an engine takes a model."""

    async def test_as_the_model_as_another_one_and_in_a_profile(self) -> None:
        """Conversations call it by its name; a check asks nobody."""
        async with OpenAiServer(lambda body: says(body["model"])) as server:
            first, second = (OpenAICompatible(server.url, None, name) for name in ("first", "second"))
            profile = Profile(name="clerk", model=ModelSpec(name="second"))
            async with (
                Engine.open("sqlite://", model=first, models=[second]) as engine,
                Engine.open("sqlite://", model=first, models=[second], profiles=[profile]) as with_profile,
            ):
                assert await engine.check() == ()
                replies = [
                    (await (await engine.create()).send("Hi")).reply,
                    (await (await engine.create(model="second")).send("Hi")).reply,
                    (await (await with_profile.create()).send("Hi")).reply,
                ]

        assert replies == ["first", "second", "second"]

    async def test_a_history_that_is_too_long_is_condensed(self) -> None:
        """By what the server says of it, without a known window."""

        def answer(body: dict[str, Any]) -> Any:
            too_long = len(json.dumps(body["messages"])) > 20_000
            return fails(400, "This model's maximum context length is 8192 tokens.") if too_long else says("Noted.")

        async with OpenAiServer(answer) as server:
            model = OpenAICompatible(server.url, None, "m")
            async with Engine.open("sqlite://", model=model, policy=Policy()) as engine:
                conversation = await engine.create()
                turns = [await conversation.send("word " * 900) for _ in range(6)]

        assert [turn.reply for turn in turns] == ["Noted."] * 6

    @pytest.mark.slow
    async def test_litellm_is_not_imported(self) -> None:
        """Neither by opening an engine nor by an answer, a refusal, an estimate or a cancel."""
        async with OpenAiServer([fails(400, "No."), says("Hi"), hangs("He")]) as server:
            program = WITHOUT_LITELLM.format(url=server.url)
            ran = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, timeout=200
            )

        assert (ran.returncode, ran.stdout) == (0, "failed completed cancelled\n"), ran.stderr

    @pytest.mark.slow
    def test_certificates_that_cannot_be_read_are_a_failure_of_the_request(self, tmp_path: Path) -> None:
        """The variable names a file that is not there."""
        ran = subprocess.run(
            [sys.executable, "-c", WITH_CERTIFICATES],
            env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "missing.pem")},
            capture_output=True,
            text=True,
            timeout=200,
        )

        assert (ran.returncode, ran.stdout) == (0, "failed The model could not be asked.\n"), ran.stderr


WITH_CERTIFICATES = """
import asyncio
from turnwise import Engine, OpenAICompatible, Policy, Retry

async def main():
    model = OpenAICompatible("http://127.0.0.1:1/v1", "key", "m")
    async with Engine.open("sqlite://", model=model, policy=Policy(retry=Retry(attempts=1))) as engine:
        turn = await (await engine.create()).send("Hello")
        print(turn.status, turn.failure)

asyncio.run(main())
"""

WITHOUT_LITELLM = """
import asyncio, sys
sys.modules["litellm"] = sys.modules["openai"] = None
from turnwise import Engine, OpenAICompatible

async def main():
    async with Engine.open("sqlite://", model=OpenAICompatible({url!r}, "key", "m")) as engine:
        await engine.check()
        conversation = await engine.create()
        first, second = await conversation.send("Hello"), await conversation.send("Hello again")
        async for update in conversation.stream("And again"):
            if update.type == "token":
                await conversation.cancel()
        turns = await conversation.turns()
        print(first.status, second.status, turns[-1].status)

asyncio.run(main())
"""
"""A program in which an import of litellm fails."""

# --- Servers in trouble: bytes over a raw socket.

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"Once"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
SILENT = object()
"""The server goes on without a word, until the client has gone."""
CUT = object()
"""The server resets the connection."""


class RawServer:
    """Sends bytes, whatever it is asked, and counts the connections that are open."""

    def __init__(self, script: Sequence[Any]) -> None:
        self.asked = asyncio.Event()
        self.open = 0
        self._script = script
        self._all_closed = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Play the script on this connection."""
        self.open += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked.set()
            for item in self._script:
                if item is SILENT:
                    await reader.read()  # the body of the request
                    while await reader.read(65_536):
                        pass
                elif item is CUT:
                    writer.transport.abort()
                else:
                    writer.write(item)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.open -= 1
            if not self.open:
                self._all_closed.set()

    async def closed(self) -> None:
        """Return when no connection is open."""
        if self.open:
            self._all_closed.clear()
            await self._all_closed.wait()


@asynccontextmanager
async def raw(*script: Any, **options: Any) -> AsyncIterator[tuple[OpenAICompatible, RawServer]]:
    """Return a model whose server sends these bytes."""
    served = RawServer(script)
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield OpenAICompatible(f"http://{host}:{port}/v1", "sk-secret-0123456789", "m", **options), served


def status(line: str, body: bytes = b"", *headers: str) -> bytes:
    """Return a response with this status."""
    given = "".join(f"{header}\r\n" for header in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {line}\r\n{given}\r\n".encode() + body


def plain(text: str) -> bytes:
    """Return the bytes of an error in OpenAI's shape."""
    return json.dumps({"error": {"message": text, "type": None, "param": None, "code": None}}).encode()


def fields(**delta: Any) -> list[bytes]:
    """Return a piece of a stream for each of these fields of a delta."""
    return [
        f"data: {json.dumps({'choices': [{'delta': {name: value}}]})}\n\n".encode() for name, value in delta.items()
    ]


TROUBLES: dict[str, tuple[FailureKind, tuple[Any, ...]]] = {
    "it closes without a word": ("network", ()),
    "it resets the connection": ("network", (CUT,)),
    "it speaks no HTTP": ("network", (b"SSH-2.0-OpenSSH_9.2\r\n\r\n",)),
    "it stops in the middle of the head": ("network", (b"HTTP/1.1 200 OK\r\nContent-",)),
    "its head does not end": ("network", (b"HTTP/1.1 200 OK\r\n", *[b"X-A: " + b"a" * 9_000 + b"\r\n"] * 20)),
    "it stops in the middle of the stream": ("network", (HEAD, PIECE)),
    "it resets in the middle of the stream": ("network", (HEAD, PIECE, CUT)),
    "it promises more than it sends": ("network", (status("200 OK", PIECE).replace(b": 60", b": 999"),)),
    "a chunk of the body is none": (
        "network",
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\n"),
    ),
    "the body is empty": ("malformed_response", (HEAD,)),
    "only the mark of the end": ("malformed_response", (HEAD, b"data: [DONE]\n\n")),
    "garbage": ("malformed_response", (HEAD, bytes(range(256)) * 9)),
    "half a character": ("malformed_response", (HEAD, b'data: {"choices":[{"delta":{"content":"\xf0\x9f')),
    "no JSON in an event": ("malformed_response", (HEAD, b"data: {nope\n\n")),
    "JSON that is no chunk": ("malformed_response", (HEAD, b'data: {"choices": 7}\n\n')),
    "a web page with the status 200": (
        "malformed_response",
        (status("200 OK", b"<html><title>Welcome</title></html>", "Content-Type: text/html"),),
    ),
    "it says gzip and is none": ("malformed_response", (status("200 OK", b"no gzip", "Content-Encoding: gzip"),)),
    "a web page with the status 500": (
        "server_error",
        (status("500 Oops", b"<html><title>Oops</title></html>", "Content-Type: text/html"),),
    ),
    "a refusal whose body does not come": ("server_error", (b"HTTP/1.1 502 No\r\nContent-Length: 9\r\n\r\n", b"No")),
    "a small body that stands for a large one": (
        "malformed_response",
        (status("200 OK", gzip.compress(gzip.compress(b"a" * 2**20)), "Content-Encoding: gzip, gzip"),),
    ),
    "a refusal in a character set that is none": (
        "server_error",
        (status("500 No", b"No", "Content-Type: text/html; charset=none"),),
    ),
    "an index that is no number": (
        "malformed_response",
        (HEAD, PIECE, b'data: {"choices":[{"delta":{"tool_calls":[{"index":1e999,"function":7}]}}]}\n\n'),
    ),
    "a wait that does not end": (
        "rate_limit",
        (status("429 No", b"", f"Retry-After: {'9' * 400}d"),),
    ),
    "a wait until a year that is none": (
        "rate_limit",
        (status("429 No", b"", "Retry-After: 1 Jan 99999999999999 00:00:00 GMT"),),
    ),
    "a refusal of no text": ("invalid_request", (status("400 No", b"\xff\xfe\x00"),)),
    "a key that is not taken": (
        "authentication",
        (status("401 No", plain("Incorrect API key: sk-secret-0123456789")),),
    ),
    "too many requests": ("rate_limit", (status("429 No", plain("Slow down"), "Retry-After: 7"),)),
    "an unknown model": ("unknown_model", (status("404 No", plain("The model `m` does not exist")),)),
    "a path that is none": ("unknown_model", (status("404 No", b"404 page not found"),)),
    "too long": ("context_window", (status("400 No", plain("This model's maximum context length is 9 tokens.")),)),
    "a filter": ("content_filter", (HEAD, PIECE, END.replace(b"stop", b"content_filter"))),
    "an error in the stream": ("rate_limit", (HEAD, PIECE, b'data: {"error":{"code":429,"message":"no"}}\n\n')),
    "an answer without end": ("server_error", (HEAD, *[PIECE] * 200, SILENT)),
}


class TestTroubles:
    """Each is one typed failure in one sentence, and leaves no connection."""

    @holds_for("name", TROUBLES)
    async def test_a_server_in_trouble(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """What it sent may be half an answer; the key is in no log."""
        kind, script = TROUBLES[name]
        async with raw(*script) as (model, server):
            with pytest.raises(LlmFailure) as caught:
                await model.complete(request(), ignore)
            await server.closed()

        assert (caught.value.kind, caught.value.sentence) == (kind, SENTENCES[kind])
        assert caught.value.retry_after == (7.0 if name == "too many requests" else None)
        assert "sk-secret" not in caplog.text

    @holds_for("code", [301, 302, 303, 307, 308])
    async def test_a_redirect_is_not_followed(self, code: int) -> None:
        """The key would go elsewhere; the sentence says which address to give."""
        async with raw(status(f"{code} There", b"", "Location: https://elsewhere.example/v1")) as (model, server):
            with pytest.raises(LlmFailure) as caught:
                await model.complete(request(), ignore)
            await server.closed()

        assert caught.value.kind == "invalid_request"
        assert caught.value.sentence == (
            "The model's server redirects to https://elsewhere.example/v1: give that address as its base_url."
        )

    @holds_for(
        ("location", "told"),
        [
            ("https://elsewhere.example/v1?key=sk-secret-0123456789", "https://elsewhere.example/v1"),
            ("https://a:word@elsewhere.example/sk-secret-0123456789", "https://elsewhere.example/***"),
        ],
    )
    async def test_where_a_redirect_leads_is_told_without_a_key(self, location: str, told: str) -> None:
        """A server may write what it was sent into the address."""
        async with raw(status("307 There", b"", f"Location: {location}")) as (model, _):
            with pytest.raises(LlmFailure, match="redirects to") as caught:
                await model.complete(request(), ignore)

        assert caught.value.sentence == f"The model's server redirects to {told}: give that address as its base_url."

    async def test_a_redirect_to_nowhere(self) -> None:
        """It does not say which address to give."""
        async with raw(status("302 There")) as (model, _):
            with pytest.raises(LlmFailure, match="does not say where to"):
                await model.complete(request(), ignore)

    async def test_a_compressed_body_is_taken_out_piece_by_piece(self) -> None:
        """Ten kilobytes stand for ten megabytes; in between the event loop does other work."""
        body, turns = gzip.compress(b": ping\n\n" * 1_250_000 + PIECE + END), 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with raw(status("200 OK", body, "Content-Encoding: gzip")) as (model, _):
            await model.ready()
            counting = asyncio.ensure_future(count())
            answer = await model.complete(request(), ignore)
            counting.cancel()

        assert answer.content == "Once"
        assert turns > 10_000_000 / 2**16

    async def test_a_server_that_is_not_there(self) -> None:
        """Nothing listens at its port any more; or its name is none."""
        async with raw() as (model, _):
            pass

        for asked in (model, OpenAICompatible("http://no-such-host.invalid/v1", None, "m")):
            with pytest.raises(LlmFailure) as caught:
                await asked.complete(request(), ignore)
            assert (caught.value.kind, caught.value.sentence) == ("network", SENTENCES["network"])

    @holds_for("script", [(), (b"HTTP/1.1 200",), (HEAD,), (HEAD, PIECE), (HEAD, PIECE[:20]), (HEAD, b": ping\n\n")])
    async def test_silence_is_a_timeout(self, script: tuple[bytes, ...]) -> None:
        """Wherever the server falls silent."""
        async with raw(*script, SILENT, timeout=0.2) as (model, server):
            with pytest.raises(LlmFailure) as caught:
                await model.complete(request(), ignore)
            await server.closed()

        assert (caught.value.kind, caught.value.sentence) == ("timeout", SENTENCES["timeout"])

    @pytest.mark.parametrize("framed", [lambda text: b"data: " + text, lambda text: text], ids=["event", "page"])
    async def test_a_line_that_does_not_end(self, framed: Callable[[bytes], bytes], monkeypatch: Any) -> None:
        """It is given up at the largest size that an answer may have, and not kept in memory for good."""
        monkeypatch.setattr("turnwise.effects.model.openai.events.LONGEST_PAGE", 1_000_000)
        async with raw(HEAD, framed(b'{"choices": "'), *[b"a" * 65_536] * 40, SILENT) as (model, server):
            with pytest.raises(LlmFailure) as caught:
                await model.complete(request(), ignore)
            await server.closed()

        assert caught.value.kind == "malformed_response"

    async def test_an_event_of_lines_without_end(self, monkeypatch: Any) -> None:
        """Nor does it take longer and longer to look whether it is complete."""
        monkeypatch.setattr("turnwise.effects.model.openai.events.LONGEST_PAGE", 1_000_000)
        async with raw(HEAD, b"data: {\n", *[b'data: "a": 1,\n' * 5_000] * 40, SILENT) as (model, server):
            with pytest.raises(LlmFailure) as caught:
                await model.complete(request(), ignore)
            await server.closed()

        assert caught.value.kind == "malformed_response"


class TestOddAnswers:
    """What is only unusual is an answer."""

    @holds_for(
        "script",
        [
            (HEAD.replace(b"text/event-stream", b"application/pdf"), PIECE, END),
            (HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"), PIECE, END),
            (HEAD, *(bytes([byte]) for byte in PIECE + END)),
            (HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), gzip.compress(PIECE + END)),
            (HEAD, PIECE, END, SILENT),
            (HEAD, PIECE, END.partition(b"data: [DONE]")[0], SILENT),
            (HEAD, PIECE, END, CUT),
            (b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, PIECE, END),
            (HEAD, b"data: {}\n\n", PIECE, b"data: 7\n\n", END),
            (HEAD, b"\n" * 1_000_000, PIECE, b"\r\n" * 100_000, END),
            (HEAD, *fields(cited=[{}], grounding=[7], content_blocks=True), PIECE, END),
            (HEAD, *fields(cited=[7], grounding="a", content_blocks={"a": 1}), PIECE, END),
            (HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: deflate\r\n\r\n"), zlib.compress(PIECE + END)),
            (
                HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: deflate\r\n\r\n"),
                zlib.compress(PIECE + END, wbits=-15),
            ),
        ],
    )
    async def test_the_answer_arrives(self, script: tuple[Any, ...]) -> None:
        """Without a usage it is estimated; the connection is closed with the answer."""
        async with raw(*script) as (model, server):
            answer = await model.complete(request(), ignore)
            await server.closed()

        assert (answer.content, answer.finish_reason) == ("Once", "stop")
        assert (answer.usage.estimated, answer.usage.output_tokens) == (True, 1)

    async def test_characters_that_come_in_halves(self) -> None:
        """Of bytes, and of the pairs by which JSON writes them."""
        piece = '{"choices":[{"delta":{"content":"%s"}}]}'
        body = "".join(f"data: {piece % half}\n\n" for half in (r"\ud83d", r"\ude00", "😀")).encode() + END
        shown: list[str] = []
        async with raw(HEAD, *(body[place : place + 1] for place in range(len(body)))) as (model, _):
            answer = await model.complete(request(), lambda token: shown.append(token.text))

        assert (answer.content, "".join(shown)) == ("😀😀", "😀😀")


class TestCancelling:
    """At every instant the connection is closed, and the cancel passes."""

    @pytest.mark.slow
    async def test_at_every_instant(self) -> None:
        """After each number of steps of the event loop, until an answer is complete."""
        async with raw(HEAD, PIECE, PIECE, END) as (model, server):
            await model.ready()
            for steps in range(10_000):
                task = asyncio.ensure_future(model.complete(request(), ignore))
                for _ in range(steps):
                    await asyncio.sleep(0)
                if task.done():
                    break
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await server.closed()

        assert task.done() and task.result().content == "OnceOnce"

    @holds_for("script", [(), (HEAD,), (HEAD, PIECE)])
    async def test_while_the_server_is_silent(self, script: tuple[bytes, ...]) -> None:
        """It sees that nobody reads any more."""
        async with raw(*script, SILENT) as (model, server):
            task = asyncio.ensure_future(model.complete(request(), ignore))
            await server.asked.wait()
            await asyncio.sleep(0.01)

            task.cancel()

            with pytest.raises(asyncio.CancelledError):
                await task
            await server.closed()
