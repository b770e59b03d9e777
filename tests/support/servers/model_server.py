"""Language models' web services to test against, each in the protocol of its provider, over a real socket.

A script says in neutral terms what is answered: pieces of text and thinking, calls, how it ends, the usage, a pause, a
failure. A dialect writes the bytes: OpenAI's chat completions, servers that extend them by thinking, Anthropic's
messages, Gemini's contents, Ollama's lines of JSON. What a dialect cannot say in neutral terms is given as `raw` bytes
or as `data`, an event of the dialect's own. The server runs in the test's own event loop and judges nothing:
`openai_server.py` has a server that refuses what a strict provider would refuse.

    async with ModelServer([answers(call("weather", city="Oslo")), answers("It ", "rains.")], GEMINI) as server:
        model = server.llm()
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Protocol, Self

import pytest
from aiohttp import web

from turnwise import LiteLlm, OpenAICompatible

from .clients import asks_directly, served_model

Json = dict[str, Any]

# --- what is answered


@dataclass(frozen=True)
class Thinking:
    """A block of thinking, in pieces. A signature seals it where the dialect has signatures."""

    pieces: tuple[str, ...]
    signature: str = ""


@dataclass(frozen=True)
class Call:
    """A call. The arguments are cut into so many pieces where the dialect streams arguments. `more` are fields that the
    provider adds to the call; a signature seals it where the dialect has signatures of calls."""

    name: str
    arguments: str
    id: str
    pieces: int = 3
    signature: str = ""
    more: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    """An event of the dialect's own, as data."""

    data: Any


@dataclass(frozen=True)
class Raw:
    """Bytes that are sent as they are."""

    content: bytes


@dataclass(frozen=True)
class Pause:
    """Nothing is sent for so many seconds."""

    seconds: float


Piece = str | Thinking | Call | Data | Raw | Pause
"""A part of an answer, in the order of sending. A text is a piece of text of its own."""

Finish = Literal["stop", "length", "calls", "filter"]


@dataclass(frozen=True)
class Tokens:
    """The usage that is told."""

    input: int = 10
    output: int = 5
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Answer:
    """An answer with status 200. `finish` is a neutral reason, or a text in the words of the dialect, or None for no
    reason. `usage` is written in the dialect's names, or sent as it is if it is a mapping. `end` says what comes after
    the last piece: the whole end, a stream that breaks off, or a connection that stays open after the whole end.
    `is_plain` answers with JSON in one piece although a stream was asked for. Without a frame only the pieces are
    written."""

    pieces: tuple[Piece, ...]
    finish: str | None = None
    usage: Tokens | Mapping[str, Any] | None = field(default_factory=Tokens)
    end: Literal["whole", "breaks_off", "stays_open"] = "whole"
    is_plain: bool = False
    is_framed: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An answer with this status, body and headers."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def answers(*pieces: Piece, finish: Finish | str | None = "", **more: Any) -> Answer:
    """Return an answer of these pieces. Without `finish` it ends as it should: with calls if there are any."""
    usual = "calls" if any(isinstance(piece, Call) for piece in pieces) else "stop"
    return Answer(pieces, usual if finish == "" else finish, **more)


def thinks(*pieces: str, signature: str = "") -> Thinking:
    """Return a block of thinking."""
    return Thinking(pieces, signature)


def call(name: str, written: str | None = None, /, **arguments: Any) -> Call:
    """Return a call of this tool, with arguments by name or as they are written. The id is made of the name."""
    return Call(name, json.dumps(arguments) if written is None else written, f"call_{name}")


def fails(status: int, body: Any = "no", **headers: str) -> Failure:
    """Refuse with this status and body: a text as it is, anything else as JSON. `retry_after=…` is the header
    `retry-after`."""
    written = body if isinstance(body, str) else json.dumps(body)
    kind = "text/plain" if isinstance(body, str) else "application/json"
    return Failure(
        status, written.encode(), {"content-type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}}
    )


# --- how it is written


class Dialect(Protocol):
    """A protocol: how litellm names a model that speaks it, where its clients begin their addresses, and its bytes.

    `path` is how the path of a request ends that asks for an answer.
    """

    model: str
    base: str
    path: str
    content_type: str

    def start(self) -> Iterator[bytes]:
        """What comes before the first piece."""
        ...

    def write(self, piece: Any, before: Sequence[Piece]) -> Iterator[bytes]:
        """Write a piece: a text, a `Thinking`, a `Call` or `Data`. `before` are the pieces before it."""
        ...

    def finish(self, answer: Answer) -> Iterator[bytes]:
        """What comes after the last piece of an answer that is whole."""
        ...

    def plain(self, answer: Answer) -> Json:
        """The answer in one piece."""
        ...


def event(data: Any, name: str = "") -> bytes:
    """Write a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def cut(text: str, pieces: int) -> list[str]:
    """Cut a text into so many pieces of about the same length."""
    places = [len(text) * number // pieces for number in range(pieces + 1)]
    return [text[begin:end] for begin, end in pairwise(places)]


def texts(answer: Answer) -> str:
    """Return the text of the answer."""
    return "".join(piece for piece in answer.pieces if isinstance(piece, str))


def content_of(pieces: Iterable[Piece]) -> list[str | Thinking | Call]:
    """Return the pieces that a model has written: texts, thinking and calls, in order."""
    return [piece for piece in pieces if isinstance(piece, str | Thinking | Call)]


def thoughts(answer: Answer) -> str:
    """Return the thinking of the answer."""
    return "".join("".join(piece.pieces) for piece in answer.pieces if isinstance(piece, Thinking))


def calls_of(answer: Answer) -> list[Call]:
    """Return the calls of the answer."""
    return [piece for piece in answer.pieces if isinstance(piece, Call)]


class OpenAi:
    """OpenAI's chat completions. Servers that extend them write thinking under a name of their own: `thinking` makes
    the delta of a piece of thinking."""

    path = "/chat/completions"
    base = "/v1"
    content_type = "text/event-stream"

    def __init__(
        self,
        model: str = "openai/test",
        thinking: Callable[[str], Json] = lambda text: {"reasoning_content": text},
        text: Callable[[str], Json] = lambda text: {"content": text},
    ) -> None:
        self.model = model
        self._thinking = thinking
        self._text = text

    def start(self) -> Iterator[bytes]:
        """Tell the role."""
        yield self.chunk({"role": "assistant", "content": None})

    def write(self, piece: Any, before: Sequence[Piece]) -> Iterator[bytes]:
        """Write a piece: one chunk, for a call one with id and name, and one for each piece of the arguments."""
        match piece:
            case str():
                yield self.chunk(self._text(piece))
            case Thinking():
                yield from (self.chunk(self._thinking(text)) for text in piece.pieces)
            case Call():
                yield from map(self.chunk, self._fragments(piece, sum(isinstance(other, Call) for other in before)))
            case Data():
                yield event(piece.data)

    def _fragments(self, piece: Call, index: int) -> Iterator[Json]:
        function = {"name": piece.name, "arguments": ""}
        head = {"index": index, "id": piece.id, "type": "function", "function": function, **piece.more}
        yield {"tool_calls": [head]}
        for part in cut(piece.arguments, piece.pieces):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}

    def finish(self, answer: Answer) -> Iterator[bytes]:
        """Tell the reason, then the usage, then that it is done."""
        if answer.finish is not None:
            yield self.chunk({}, self._reason(answer))
        if answer.usage is not None:
            yield event({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(answer)})
        yield b"data: [DONE]\n\n"

    def plain(self, answer: Answer) -> Json:
        """The answer as a completion."""
        message: Json = {"role": "assistant", **self._text(texts(answer))}
        for name, value in self._thinking(thoughts(answer)).items() if thoughts(answer) else ():
            message[name] = [*value, *message[name]] if name in message else value
        if found := calls_of(answer):
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}, **c.more}
                for c in found
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._reason(answer)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(answer)}

    def chunk(self, delta: Json, finish: str | None = None) -> bytes:
        """Write a chunk with this delta."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> Json:
        return {"id": "c", "object": kind, "created": 1, "model": "test"}

    def _reason(self, answer: Answer) -> str | None:
        named = {"calls": "tool_calls", "filter": "content_filter"}
        return named.get(answer.finish or "", answer.finish)

    def _usage(self, answer: Answer) -> Mapping[str, Any] | None:
        if not isinstance(told := answer.usage, Tokens):
            return told
        return {
            "prompt_tokens": told.input,
            "completion_tokens": told.output,
            "total_tokens": told.input + told.output,
            "prompt_tokens_details": {"cached_tokens": told.cached},
            "completion_tokens_details": {"reasoning_tokens": told.reasoning},
        }


class Anthropic:
    """Anthropic's messages: blocks that begin, grow and stop."""

    path = "/messages"
    base = ""
    model = "anthropic/claude-sonnet-4-5"
    content_type = "text/event-stream"

    def start(self) -> Iterator[bytes]:
        """Begin the message."""
        usage = {"input_tokens": 10, "output_tokens": 1}
        message = {**self._message(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield self._event("message_start", message=message)

    def write(self, piece: Any, before: Sequence[Piece]) -> Iterator[bytes]:
        """Write a block; each piece of text is one."""
        match piece:
            case str():
                block, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece}]
            case Thinking():
                block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": text} for text in piece.pieces]
                deltas += [{"type": "signature_delta", "signature": piece.signature}] if piece.signature else []
            case Call():
                block = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}, **piece.more}
                written = cut(piece.arguments, piece.pieces)
                deltas = [{"type": "input_json_delta", "partial_json": part} for part in written]
            case Data():
                yield event(piece.data, piece.data["type"])
                return
        index = len(content_of(before))
        yield self._event("content_block_start", index=index, content_block=block)
        yield from (self._event("content_block_delta", index=index, delta=delta) for delta in deltas)
        yield self._event("content_block_stop", index=index)

    def finish(self, answer: Answer) -> Iterator[bytes]:
        """Tell the reason and the usage, then stop."""
        delta = {"stop_reason": self._reason(answer), "stop_sequence": None}
        yield self._event("message_delta", delta=delta, usage=self._usage(answer))
        yield self._event("message_stop")

    def plain(self, answer: Answer) -> Json:
        """The answer as a message."""
        blocks = list(self._blocks_of(answer))
        return {
            **self._message(),
            "content": blocks,
            "stop_reason": self._reason(answer),
            "usage": self._usage(answer),
        }

    def _blocks_of(self, answer: Answer) -> Iterator[Json]:
        for piece in answer.pieces:
            match piece:
                case str():
                    yield {"type": "text", "text": piece}
                case Thinking():
                    yield {"type": "thinking", "thinking": "".join(piece.pieces), "signature": piece.signature}
                case Call():
                    yield {"type": "tool_use", "id": piece.id, "name": piece.name, "input": json.loads(piece.arguments)}

    def _message(self) -> Json:
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}

    def _event(self, kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    def _reason(self, answer: Answer) -> str | None:
        named = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use", "filter": "refusal"}
        return named.get(answer.finish or "", answer.finish)

    def _usage(self, answer: Answer) -> Mapping[str, Any] | None:
        if not isinstance(told := answer.usage, Tokens):
            return told
        return {
            "input_tokens": told.input,
            "output_tokens": told.output,
            "cache_read_input_tokens": told.cached,
            "cache_creation_input_tokens": told.written,
        }


class Gemini:
    """Gemini's contents: each chunk is a response, a call comes whole, and signatures stand on parts."""

    path = ":streamGenerateContent"
    base = ""
    content_type = "text/event-stream"

    def __init__(self, model: str = "gemini/gemini-2.5-flash") -> None:
        self.model = model

    def start(self) -> Iterator[bytes]:
        """Nothing."""
        yield from ()

    def write(self, piece: Any, before: Sequence[Piece]) -> Iterator[bytes]:
        """Write one chunk for each part."""
        if isinstance(piece, Data):
            yield event(piece.data)
        else:
            yield from (event(self.response([part])) for part in self._parts(piece))

    def finish(self, answer: Answer) -> Iterator[bytes]:
        """Tell the reason, with an empty text, and the usage."""
        yield event(self.response([{"text": ""}], self._reason(answer), self._usage(answer)))

    def plain(self, answer: Answer) -> Json:
        """The answer as one response."""
        parts = [part for piece in content_of(answer.pieces) for part in self._parts(piece)]
        return self.response(parts, self._reason(answer), self._usage(answer))

    def response(self, parts: list[Json], reason: str | None = None, usage: Mapping[str, Any] | None = None) -> Json:
        """Return a response with these parts."""
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        told = {} if usage is None else {"usageMetadata": usage}
        return {"candidates": [candidate], "modelVersion": "gemini", "responseId": "r", **told}

    def _parts(self, piece: Any) -> Iterator[Json]:
        match piece:
            case str():
                yield {"text": piece}
            case Thinking():
                yield from ({"text": text, "thought": True} for text in piece.pieces)
                if piece.signature:
                    yield {"text": "", "thoughtSignature": piece.signature}
            case Call():
                sealed = {"thoughtSignature": piece.signature} if piece.signature else {}
                yield {
                    "functionCall": {"name": piece.name, "args": json.loads(piece.arguments)},
                    **sealed,
                    **piece.more,
                }

    def _reason(self, answer: Answer) -> str | None:
        named = {"stop": "STOP", "length": "MAX_TOKENS", "calls": "STOP", "filter": "SAFETY"}
        return named.get(answer.finish or "", answer.finish)

    def _usage(self, answer: Answer) -> Mapping[str, Any] | None:
        if not isinstance(told := answer.usage, Tokens):
            return told
        return {
            "promptTokenCount": told.input,
            "candidatesTokenCount": told.output - told.reasoning,
            "thoughtsTokenCount": told.reasoning,
            "cachedContentTokenCount": told.cached,
            "totalTokenCount": told.input + told.output,
        }


class Ollama:
    """Ollama's chat: a line of JSON for each piece, a call comes whole."""

    path = "/api/chat"
    base = ""
    model = "ollama_chat/llama3.1"
    content_type = "application/x-ndjson"

    def start(self) -> Iterator[bytes]:
        """Nothing."""
        yield from ()

    def write(self, piece: Any, before: Sequence[Piece]) -> Iterator[bytes]:
        """Write one line for each part."""
        if isinstance(piece, Data):
            yield self._line(piece.data)
        else:
            yield from (self._line(self._response(message)) for message in self._messages(piece))

    def finish(self, answer: Answer) -> Iterator[bytes]:
        """Tell that it is done, and the usage."""
        yield self._line({**self._response({"content": ""}), **self._done(answer)})

    def plain(self, answer: Answer) -> Json:
        """The answer in one line."""
        message: Json = {"content": texts(answer), "thinking": thoughts(answer)}
        message["tool_calls"] = [self._call(piece) for piece in calls_of(answer)]
        return {**self._response({k: v for k, v in message.items() if v}), **self._done(answer)}

    def _messages(self, piece: Any) -> Iterator[Json]:
        match piece:
            case str():
                yield {"content": piece}
            case Thinking():
                yield from ({"content": "", "thinking": text} for text in piece.pieces)
            case Call():
                yield {"content": "", "tool_calls": [self._call(piece)]}

    def _call(self, piece: Call) -> Json:
        return {"function": {"name": piece.name, "arguments": json.loads(piece.arguments)}, **piece.more}

    def _response(self, message: Json) -> Json:
        return {"model": "llama3.1", "created_at": "2026-01-01T00:00:00Z", "done": False} | {
            "message": {"role": "assistant", **message}
        }

    def _done(self, answer: Answer) -> Json:
        named = {"calls": "stop", "filter": "stop"}
        reason = named.get(answer.finish or "", answer.finish)
        told = answer.usage
        usage = {"prompt_eval_count": told.input, "eval_count": told.output} if isinstance(told, Tokens) else told
        return {"done": True, "done_reason": reason, **(usage or {})}

    def _line(self, data: Any) -> bytes:
        return json.dumps(data).encode() + b"\n"


class Responses:
    """OpenAI's Responses API: items that begin, grow and are done, then the whole response once more."""

    path = "/responses"
    base = "/v1"
    model = "openai/responses/gpt-5"
    content_type = "text/event-stream"

    def start(self) -> Iterator[bytes]:
        """Begin the response."""
        yield self._event("created", response=self._response("in_progress", []))

    def write(self, piece: Any, before: Sequence[Piece]) -> Iterator[bytes]:
        """Write an item; each piece of text is one."""
        if isinstance(piece, Data):
            yield event(piece.data, piece.data["type"])
            return
        place = len(content_of(before))
        item = self._item(piece, place)
        empty = {name: "" if name == "arguments" else value for name, value in item.items() if name != "content"}
        yield self._event("output_item.added", output_index=place, item={**empty, "status": "in_progress"})
        yield from self._deltas(piece, place)
        yield self._event("output_item.done", output_index=place, item=item)

    def _deltas(self, piece: Any, place: int) -> Iterator[bytes]:
        more: Json = {"output_index": place, "item_id": f"item_{place}"}
        match piece:
            case str():
                yield self._event("output_text.delta", delta=piece, content_index=0, **more)
            case Thinking():
                for text in piece.pieces:
                    yield self._event("reasoning_summary_text.delta", delta=text, summary_index=0, **more)
            case Call():
                for part in cut(piece.arguments, piece.pieces):
                    yield self._event("function_call_arguments.delta", delta=part, **more)

    def _item(self, piece: Any, place: int) -> Json:
        item: Json = {"id": f"item_{place}", "status": "completed"}
        match piece:
            case str():
                part = {"type": "output_text", "text": piece, "annotations": []}
                return {**item, "type": "message", "role": "assistant", "content": [part]}
            case Thinking():
                summary = [{"type": "summary_text", "text": "".join(piece.pieces)}]
                return {**item, "type": "reasoning", "summary": summary, "encrypted_content": piece.signature}
            case _:
                call = {"call_id": piece.id, "name": piece.name, "arguments": piece.arguments}
                return {**item, "type": "function_call", **call, **piece.more}

    def finish(self, answer: Answer) -> Iterator[bytes]:
        """Tell the response as a whole."""
        whole = self.plain(answer)
        yield self._event("incomplete" if whole["status"] == "incomplete" else "completed", response=whole)

    def plain(self, answer: Answer) -> Json:
        """The answer as a response."""
        named = {"length": "max_output_tokens", "filter": "content_filter"}
        reason = named.get(answer.finish or "")
        output = [self._item(piece, place) for place, piece in enumerate(content_of(answer.pieces))]
        response = self._response("incomplete" if reason else "completed", output)
        return {**response, "usage": self._usage(answer), "incomplete_details": {"reason": reason} if reason else None}

    def _response(self, status: str, output: list[Json]) -> Json:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "gpt-5",
            "status": status,
            "output": output,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        return event({"type": f"response.{kind}", **fields}, f"response.{kind}")

    def _usage(self, answer: Answer) -> Mapping[str, Any] | None:
        if not isinstance(told := answer.usage, Tokens):
            return told
        return {
            "input_tokens": told.input,
            "output_tokens": told.output,
            "total_tokens": told.input + told.output,
            "input_tokens_details": {"cached_tokens": told.cached},
            "output_tokens_details": {"reasoning_tokens": told.reasoning},
        }


OPENAI = OpenAi()
REASONING = OpenAi("openai/test", lambda text: {"reasoning": text})
"""OpenRouter, vLLM and others: the thinking stands in `reasoning`."""
PARTS = OpenAi(
    "openai/test",
    lambda text: {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]},
    lambda text: {"content": [{"type": "text", "text": text}]},
)
"""Mistral and others: text and thinking are parts of the content."""
ANTHROPIC = Anthropic()
GEMINI = Gemini()
OLLAMA = Ollama()
RESPONSES = Responses()
DIALECTS: dict[str, Dialect] = {
    "openai": OPENAI,
    "reasoning": REASONING,
    "parts": PARTS,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "responses": RESPONSES,
}


# --- the server

Reply = Answer | Failure
Script = Sequence[Reply] | Callable[[Json], Reply]
"""What is answered to each request, the last again if there are more requests; or what chooses it by the body."""


@dataclass(frozen=True)
class Request:
    """A request as the server saw it."""

    path: str
    headers: Mapping[str, str]
    body: Json


class ModelServer:
    """The server, for the time of an `async with`. `requests` are those that asked for an answer, in order."""

    def __init__(self, script: Script, dialect: Dialect = OPENAI) -> None:
        self.requests: list[Request] = []
        self.dialect = dialect
        self._script = script
        self._closing = asyncio.Event()

    @property
    def bodies(self) -> list[Json]:
        """The bodies of the requests."""
        return [request.body for request in self.requests]

    @property
    def url(self) -> str:
        """The address to give to a client of this dialect as its base."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}{self.dialect.base}"

    def llm(self, model: str | None = None, **options: Any) -> LiteLlm | OpenAICompatible:
        """Return a model that is served here. A test with each client is skipped for what only litellm speaks."""
        if asks_directly() and not isinstance(self.dialect, OpenAi):
            pytest.skip("only litellm speaks this protocol")
        return served_model(self.url, model or self.dialect.model, **options)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith(self.dialect.path):
            return web.json_response({"error": "not found"}, status=404)
        body = await request.json()
        self.requests.append(Request(request.path, dict(request.headers), body))
        reply = self._reply(body)
        if isinstance(reply, Failure):
            return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
        if reply.is_plain:
            return web.json_response(self.dialect.plain(reply), headers=reply.headers)
        return await self._stream(request, reply)

    def _reply(self, body: Json) -> Reply:
        if callable(self._script):
            return self._script(body)
        return self._script[min(len(self.requests), len(self._script)) - 1]

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": self.dialect.content_type, **answer.headers})
        await response.prepare(request)
        for item in self._items(answer):
            if isinstance(item, bytes):
                await response.write(item)
            else:
                await asyncio.sleep(item)
        if answer.end == "stays_open":
            await self._closing.wait()
        return response

    def _items(self, answer: Answer) -> Iterable[bytes | float]:
        if answer.is_framed:
            yield from self.dialect.start()
        for place, piece in enumerate(answer.pieces):
            match piece:
                case Pause(seconds):
                    yield seconds
                case Raw(content):
                    yield content
                case _:
                    yield from self.dialect.write(piece, answer.pieces[:place])
        if answer.is_framed and answer.end != "breaks_off":
            yield from self.dialect.finish(answer)
