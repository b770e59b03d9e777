"""A language model's web service to test against: a real server on a real socket, with answers written by the test.

Nothing between turnwise and the wire is replaced by a double, so what is tested is what runs. The server speaks
OpenAI's chat completions, plain or streamed as the request asks, follows a script, and is as strict as the strictest
provider: a request that any of them would refuse gets a 400 (case P35). It runs in the test's own event loop.

    async with OpenAiServer([calls(("find_table", {"party": 2})), says("Booked.")]) as server:
        model = LiteLlm("openai/test", api_base=server.url, api_key="test")
"""

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from aiohttp import web

from turnwise.effects.schemas.subschemas import subschemas

Body = dict[str, Any]
"""A request as the server saw it: the parsed JSON."""

LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LEGAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
"""Mistral's rule, the narrowest; OpenAI takes up to 40 characters, Anthropic also `_` and `-`."""
ROLES = {"system", "user", "assistant", "tool"}
IMAGE_URL = re.compile(r"https://[^\s/]\S*|data:image/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/]+=*)")
BEGINNINGS = {"png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "gif": b"GIF8", "webp": b"RIFF"}
"""How image files begin. Anthropic refuses one that is not what its media type says."""


class Exchange:
    """One request, and the connection on which it is answered."""

    def __init__(self, request: web.Request, body: Body, released: asyncio.Event, given: set[str]) -> None:
        self.given = given
        self.request = request
        self.body = body
        self.released = released

    async def answer(self, choice: dict[str, Any], usage: dict[str, Any]) -> web.StreamResponse:
        """Send the complete answer."""
        completion = {"id": "c", "object": "chat.completion", "created": 1, "model": self.body["model"]}
        return web.json_response({**completion, "choices": [choice], "usage": usage})

    async def stream(self) -> web.StreamResponse:
        """Begin a streamed answer."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self.request)
        return response

    async def send(self, response: web.StreamResponse, choices: list[dict[str, Any]], **fields: Any) -> None:
        """Send one chunk of a streamed answer."""
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": self.body["model"]}
        made = (made for choice in choices for made in choice["delta"].get("tool_calls") or ())
        self.given.update(str(one["id"]) for one in made if isinstance(one, dict) and one.get("id"))
        await response.write(b"data: " + json.dumps({**chunk, "choices": choices, **fields}).encode() + b"\n\n")

    async def finish(self, response: web.StreamResponse, reason: str, usage: dict[str, Any]) -> web.StreamResponse:
        """End a streamed answer as OpenAI does: with the finish reason, then with the usage if the request asks for
        it."""
        await self.send(response, [{"index": 0, "delta": {}, "finish_reason": reason}])
        if (self.body.get("stream_options") or {}).get("include_usage"):
            await self.send(response, [], usage=usage)
        await response.write(b"data: [DONE]\n\n")
        return response


Reply = Callable[[Exchange], Awaitable[web.StreamResponse]]
"""What the server does with one request."""

Script = Sequence[Reply] | Callable[[Body], Reply]
"""Replies in the order of the requests, or a function that chooses one for each request."""


def _delta(**delta: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "finish_reason": None}]


def _usage(tokens: tuple[int, int], details: tuple[int, int] | None = None) -> dict[str, Any]:
    counts = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    if details is None:
        return counts
    cached, reasoning = details
    of_prompt, of_completion = {"cached_tokens": cached}, {"reasoning_tokens": reasoning}
    return {**counts, "prompt_tokens_details": of_prompt, "completion_tokens_details": of_completion}


def _message(deltas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join the deltas of a streamed answer to the message of a plain one."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for key in delta.keys() & {"content", "reasoning_content"}:
            message[key] = (message.get(key) or "") + delta[key]
        for fragment in delta.get("tool_calls", ()):
            call = calls.setdefault(fragment["index"], {"function": {"arguments": ""}})
            call.update({key: fragment[key] for key in fragment.keys() & {"id", "type"}})
            function = fragment["function"]
            call["function"].update({key: function[key] for key in function.keys() & {"name"}})
            call["function"]["arguments"] += function.get("arguments", "")
    return {**message, "tool_calls": list(calls.values())} if calls else message


def _answers(
    deltas: Sequence[dict[str, Any]], reason: str, tokens: tuple[int, int], details: tuple[int, int] | None = None
) -> Reply:
    async def reply(exchange: Exchange) -> web.StreamResponse:
        if not exchange.body.get("stream"):
            choice = {"index": 0, "message": _message(deltas), "finish_reason": reason}
            return await exchange.answer(choice, _usage(tokens, details))
        response = await exchange.stream()
        for delta in deltas:
            await exchange.send(response, _delta(**delta))
        return await exchange.finish(response, reason, _usage(tokens, details))

    return reply


# --- what a server can do


def says(
    *pieces: str,
    thinking: str = "",
    finish_reason: str = "stop",
    tokens: tuple[int, int] = (10, 5),
    details: tuple[int, int] | None = None,
) -> Reply:
    """Answer with these pieces of text, one chunk each, after the thinking. `tokens` are those of the request and of
    the answer, `details` the cached and the reasoning tokens among them."""
    thoughts = [{"reasoning_content": thinking}] if thinking else []
    return _answers(
        [{"role": "assistant"}, *thoughts, *({"content": p} for p in pieces)], finish_reason, tokens, details
    )


def streams(*deltas: dict[str, Any], finish_reason: str = "stop", tokens: tuple[int, int] = (10, 5)) -> Reply:
    """Send these deltas, one chunk each: for what a provider may add to the protocol."""
    return _answers([{"role": "assistant"}, *deltas], finish_reason, tokens)


def calls(
    *wanted: tuple[str, dict[str, Any] | str],
    text: str = "",
    ids: Sequence[str] | None = None,
    indexes: Sequence[int] | None = None,
    finish_reason: str = "tool_calls",
    tokens: tuple[int, int] = (10, 5),
) -> Reply:
    """Call tools, `(name, arguments)` each, in fragments: first id and name, then the arguments in three parts.

    Arguments given as a text are sent as they are, however broken. `ids` default to call_0, call_1, …: the same ones
    in each response, as some providers do (case P29). `indexes` default to 0, 1, …
    """
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, *([{"content": text}] if text else [])]
    for place, (name, arguments) in enumerate(wanted):
        call_id = f"call_{place}" if ids is None else ids[place]
        index = place if indexes is None else indexes[place]
        head = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        third = len(written) // 3 + 1
        for part in (written[:third], written[third : 2 * third], written[2 * third :]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    return _answers(deltas, finish_reason, tokens)


def fails(
    status: int,
    message: str = "no",
    *,
    retry_after: str | float | None = None,
    code: str | None = None,
    kind: str | None = None,
) -> Reply:
    """Refuse with an HTTP status, in OpenAI's shape, where `kind` is the error's type.

    `retry_after` is the header: seconds or an HTTP date.
    """

    async def reply(exchange: Exchange) -> web.StreamResponse:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        error = {"message": message, "type": kind, "param": None, "code": code}
        return web.json_response({"error": error}, status=status, headers=headers)

    return reply


def is_too_long() -> Reply:
    """Refuse a request because it does not fit the model's window, in OpenAI's words."""
    message = "This model's maximum context length is 10000 tokens. However, your messages resulted in 10001 tokens."
    return fails(400, message, code="context_length_exceeded", kind="invalid_request_error")


def drops_after(*pieces: str) -> Reply:
    """Answer with the pieces, then close the connection in the middle of the answer."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        response = await _begun(exchange, pieces)
        assert exchange.request.transport is not None
        exchange.request.transport.close()
        return response

    return reply


def breaks_off_after(*pieces: str) -> Reply:
    """Answer with the pieces, then end the stream without a finish reason, as a proxy that gives up does."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        return await _begun(exchange, pieces)

    return reply


def hangs(*pieces: str) -> Reply:
    """Answer with the pieces, if any, and then with nothing until the server is released or the client has gone.
    Without pieces not even the HTTP status arrives. When released, the answer is completed."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        response = await _begun(exchange, pieces) if pieces else None
        await exchange.released.wait()
        return await exchange.finish(response or await exchange.stream(), "stop", _usage((10, 5)))

    return reply


def never_ends(piece: str = "and ") -> Reply:
    """Say the piece again and again, fast, until the client has gone."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        response = await exchange.stream()
        while True:
            await exchange.send(response, _delta(content=piece))
            await asyncio.sleep(0.01)

    return reply


def has_no_choices() -> Reply:
    """Answer 200 with an empty list of choices."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        response = await exchange.stream()
        await exchange.send(response, [], usage=_usage((10, 0)))
        await response.write(b"data: [DONE]\n\n")
        return response

    return reply


def sends(text: str, content_type: str = "application/json") -> Reply:
    """Answer 200 with whatever text: broken JSON, a web page, a stream that is none."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type)

    return reply


async def _begun(exchange: Exchange, pieces: Iterable[str]) -> web.StreamResponse:
    response = await exchange.stream()
    for piece in pieces:
        await exchange.send(response, _delta(content=piece))
    return response


# --- what a provider refuses


def violations(body: Body, given: Collection[str] = ()) -> list[str]:
    """Why providers would refuse this request, rule by rule; empty if none would. `given` are ids of calls that the
    server gave itself."""
    messages = body.get("messages") or []
    found = [] if messages else ["messages: must not be empty"]
    if "mistral" not in body.get("model", ""):  # whose templates refuse also ids that their server gave
        body = {**body, "given": [*given, *(f"call_{number}" for number in range(10))]}
    for rule in (_roles, _turns, _contents, _parts, _calls_in, _pairs, _tools_of, _encoding):
        found += rule(body, messages)
    return found


def _roles(_: Body, messages: list[Body]) -> Iterator[str]:
    for index, message in enumerate(messages):
        if message.get("role") not in ROLES:
            yield f"messages[{index}]: unknown role"
        if message.get("role") == "system" and index:
            yield f"messages[{index}]: the system message must be the first"


def _turns(body: Body, messages: list[Body]) -> Iterator[str]:
    """DeepSeek, Perplexity and many templates of open models want user and assistant in turn. Mistral's models want no
    user directly behind a result, and one in front of the assistant. Sealed thinking is left apart: it goes to
    providers for which litellm merges."""
    before: Body = {}
    for index, message in enumerate(messages):
        roles = (before.get("role"), message.get("role"))
        sealed = "thinking_blocks" in before or "thinking_blocks" in message
        if roles in ((None, "assistant"), ("system", "assistant")) and "mistral" in body.get("model", ""):
            yield f"messages[{index}]: after the system message the roles must begin with the user"
        if roles[0] == roles[1] != "tool" and not sealed:
            yield f"messages[{index}]: roles must alternate, but there are two messages of the {roles[1]} in a row"
        if roles == ("tool", "user") and "mistral" in body.get("model", ""):
            yield f"messages[{index}]: unexpected role 'user' after role 'tool'"
        before = message


def _contents(_: Body, messages: list[Body]) -> Iterator[str]:
    for index, message in enumerate(messages):
        content, role = message.get("content"), message.get("role")
        if role == "assistant":
            if message.get("tool_calls") == []:
                yield f"messages[{index}]: tool_calls must not be an empty list"
            if not content and not message.get("tool_calls"):
                yield f"messages[{index}]: an assistant message must have text or calls"
        elif not content:
            yield f"messages[{index}]: content must not be empty"
        if isinstance(content, list) and role != "user":
            yield f"messages[{index}]: images are only allowed for messages with role 'user'"
        if isinstance(content, str) and not content.strip():
            yield f"messages[{index}]: text must contain something but white space"


def _parts(_: Body, messages: list[Body]) -> Iterator[str]:
    """The parts of content that is a list: texts that say something, and images that are what they are said to be."""
    contents = (message.get("content") for message in messages)
    for part in (part for content in contents if isinstance(content, list) for part in content):
        if not any(_is_part(part)):
            yield f"content: this is no part that is known, or not what it is said to be: {str(part)[:100]}"


def _is_part(part: Body) -> Iterator[bool]:
    match part:
        case {"type": "text", "text": str(text)}:
            yield bool(text.strip())
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            yield _is_image(url)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            yield bool(kind) and _is_base64(data)
        case {"type": "file", "file": {"filename": str(name), "file_data": str(url)}}:
            found = _DATA_URL.fullmatch(url)
            yield bool(name) and found is not None and _is_base64(found[1])
        case {"type": "file", "file": {"file_id": str(address), "format": str()}}:
            yield address.startswith("https://")


_DATA_URL = re.compile(r"data:[a-z]+/[a-z0-9.+-]+;base64,([A-Za-z0-9+/]+=*)")


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def _is_image(url: str) -> bool:
    found = IMAGE_URL.fullmatch(url)
    if found is None or found[1] is None:
        return found is not None
    try:
        return base64.b64decode(found[2], validate=True).startswith(BEGINNINGS[found[1]])
    except ValueError:
        return False


def _calls_in(body: Body, messages: list[Body]) -> Iterator[str]:
    seen: set[str] = set()
    for call in (call for message in messages for call in message.get("tool_calls") or ()):
        if not (LEGAL_ID.fullmatch(call.get("id") or "") or call["id"] in body.get("given", ())):
            yield f"call id {call.get('id')!r}: illegal"
        if call["id"] in seen:
            yield f"call id {call['id']!r}: used twice"
        seen.add(call["id"])
        if not LEGAL_NAME.fullmatch(call["function"]["name"]):
            yield f"call {call['id']}: illegal name {call['function']['name']!r}"
        if not is_json_object(call["function"]["arguments"]):
            yield f"call {call['id']}: arguments must be a JSON object"


def is_json_object(text: str) -> bool:
    """Whether the text is a JSON object."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except ValueError:
        return False


def _pairs(_: Body, messages: list[Body]) -> Iterator[str]:
    owed: list[str] = []
    for index, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            if message.get("tool_call_id") in owed:
                owed.remove(message["tool_call_id"])
            else:
                yield f"messages[{index}]: a tool message must answer a call of the message before it"
        else:
            if owed:
                yield f"messages[{index}]: calls without a result before it: {owed}"
            owed = [call["id"] for call in message.get("tool_calls") or ()]


def _tools_of(body: Body, messages: list[Body]) -> Iterator[str]:
    tools = body.get("tools")
    names = [tool["function"]["name"] for tool in tools or ()]
    if tools == []:
        yield "tools: must not be an empty list"
    if not tools and any(message.get("tool_calls") for message in messages):
        yield "tools: a history with calls needs a list of tools"
    if not tools and body.get("tool_choice") is not None:
        yield "tool_choice: needs a list of tools"
    if len(set(names)) < len(names):
        yield "tools: a name is used twice"
    yield from (f"tools: illegal name {name!r}" for name in names if not LEGAL_NAME.fullmatch(name))
    if len(names) > 128:
        yield "tools: array too long"
    for name, function in zip(names, (tool["function"] for tool in tools or ()), strict=True):
        if len(function.get("description", "-").strip()) not in range(1, 1025):
            yield f"tools: {name}: a description has 1 to 1024 characters"
        yield from (f"Invalid schema for function '{name}': {fault}" for fault in schema_faults(function["parameters"]))


def schema_faults(schema: Body) -> Iterator[str]:
    """Yield why providers would refuse the schema of a tool: OpenAI and Azure for its structure, Anthropic for the
    names of its properties."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "the top must be an object with properties"
    if found := {"oneOf", "anyOf", "allOf", "enum", "not", "$ref", "const"} & schema.keys():
        yield f"{sorted(found)} at the top"
    for part in subschemas(schema):
        yield from _part_faults(part)


def _part_faults(schema: Body) -> Iterator[str]:
    types, properties = schema.get("type"), schema.get("properties", {})
    if "array" in (types if isinstance(types, list) else [types]) and not isinstance(schema.get("items"), dict):
        yield "array schema missing items"
    if not isinstance(schema.get("required", []), list):
        yield "required must be an array"
    for key, part in properties.items():
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) or not isinstance(part, dict):
            yield f"illegal property {key!r}"


def _encoding(body: Body, _: list[Body]) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "body: holds half a character (a lone surrogate)"


# --- the server


class OpenAiServer:
    """The server, for the time of an `async with`.

    `requests` are the bodies seen, the refused ones included, and `headers` what came in front of them; `most_at_once`
    is how many of them were in flight side by side; `disconnects` counts the clients that left before their answer was
    complete. A request beyond the script gets a 400 and fails the test when the server closes.
    """

    def __init__(self, script: Script = ()) -> None:
        self.requests: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.most_at_once = 0
        self.disconnects = 0
        self._in_flight = 0
        self._script = script if callable(script) else self._next_of(iter(script))
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._unexpected = 0
        self._given: set[str] = set()

    @property
    def url(self) -> str:
        """The address to give to a client as its base."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._serve)
        # A client that leaves cancels the handler: that is how the server knows.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release()
        await self._runner.cleanup()
        assert kind is not None or not self._unexpected, f"{self._unexpected} requests more than the script has"

    def release(self) -> None:
        """Let every reply that hangs go on."""
        self._released.set()

    async def asked(self, times: int = 1) -> None:
        """Wait until this many requests have come in."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= times)

    async def left(self, times: int = 1) -> None:
        """Wait until this many clients have left before their answer was complete."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.disconnects >= times)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        async with self._changed:
            self.requests.append(body)
            self.headers.append(request.headers)
            self._changed.notify_all()
        found = violations(body, self._given)
        reply = fails(400, "; ".join(found), kind="invalid_request_error") if found else self._script(body)
        self._in_flight += 1
        self.most_at_once = max(self.most_at_once, self._in_flight)
        try:
            return await reply(Exchange(request, body, self._released, self._given))
        except (asyncio.CancelledError, ConnectionError):
            await asyncio.shield(self._count_disconnect())
            raise
        finally:
            self._in_flight -= 1

    async def _count_disconnect(self) -> None:
        async with self._changed:
            self.disconnects += 1
            self._changed.notify_all()

    def _next_of(self, replies: Iterator[Reply]) -> Callable[[Body], Reply]:
        def choose(_: Body) -> Reply:
            try:
                return next(replies)
            except StopIteration:
                self._unexpected += 1
                return fails(400, "the script has no further reply", kind="invalid_request_error")

        return choose
