"""Hostile input at every endpoint that the application declares: it is refused, and nothing of it is stored.

The endpoints are read from the OpenAPI document, so one that is added is tested.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from fastapi import FastAPI
from starlette.types import Message

from turnwise import Engine, File, tool
from turnwise.effects.model.port import ModelAnswer, ModelRequest
from turnwise.hosts.http import create_app
from turnwise.hosts.http.security import HttpLimits
from turnwise.testing import FunctionLlm, call, reply

from ...support.cases import holds_for
from ...support.http.raw_client import Answer
from ...support.pictures import PNG, stored

LIMIT = 100_000
"""Bytes of a body in these tests: a body above it is quick to send."""


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    name: str
    description: dict[str, Any]

    def parameters(self, place: str) -> list[str]:
        """The names of its parameters in the path, the query or the headers."""
        return [one["name"] for one in self.description.get("parameters", []) if one["in"] == place]

    @property
    def is_stream(self) -> bool:
        """Whether its answer has no end."""
        return "text/event-stream" in self.description["responses"]["200"]["content"] if self.method == "GET" else False

    @property
    def body(self) -> dict[str, Any] | None:
        """The schema of its body, if it has one in JSON. test_files.py has what becomes of a file that is uploaded."""
        content = self.description.get("requestBody", {}).get("content", {})
        return content["application/json"]["schema"] if "application/json" in content else None


DOCUMENT = create_app(Engine.open("sqlite://")).openapi()

OPERATIONS = [
    Operation(method.upper(), path, description["operationId"], description)
    for path, methods in DOCUMENT["paths"].items()
    for method, description in methods.items()
]

EVERY_OPERATION = holds_for("operation", OPERATIONS)


@tool(crash="pure")
async def draw() -> File:
    """Draw a picture."""
    return File(PNG)


def answer(request: ModelRequest) -> ModelAnswer:
    """Start one sub-agent, which draws, and then answer."""
    if request.messages[-1]["role"] != "user":
        return reply("Done.")
    offered = any(offer["function"]["name"] == "spawn_agents" for offer in request.tools)
    return call("spawn_agents", tasks=["Look."]) if offered else call("draw")


DRAWN = stored(PNG).sha256


class Target(NamedTuple):
    """An application with a conversation that has a sub-agent. It is called as a server calls it, without a socket, so
    that thousands of requests take seconds."""

    runner: asyncio.Runner
    app: FastAPI
    engine: Engine
    conversation: str

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request. `{conversation_id}` in the path is the conversation, `{seq}` its second step, and `{sha256}`
        the picture that its sub-agent has drawn."""
        known = {"{conversation_id}": self.conversation, "{seq}": "2", "{model}": "function", "{sha256}": DRAWN}
        for name, value in known.items():
            path = path.replace(name, value)
        return self.runner.run(called(self.app, method, path, body, headers))

    def stored(self) -> list[tuple[str, int, str | None]]:
        """What the database holds: each conversation with its newest step and its title."""
        return [(one.id, one.seq, one.title) for one in self.runner.run(self.engine.list())]


async def called(app: FastAPI, method: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Call an application with the scope that uvicorn makes of a request, and return its complete response."""
    path, _, query = target.partition("?")
    known = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in known.items()],
    }
    received: list[Message] = [{"type": "http.request", "body": body}]
    sent: list[Message] = []

    async def receive() -> Message:
        return received.pop() if received else await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    shown = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], shown, b"".join(message["body"] for message in sent[1:]))


@pytest.fixture(scope="module")
def running() -> Iterator[Target]:
    """An application over an engine that is open."""
    engine = Engine.open("sqlite://", model=FunctionLlm(answer), tools=["spawn_agents", "ask_user_question", draw])
    app = create_app(engine, limits=HttpLimits(body_bytes=LIMIT))

    async def converse() -> str:
        await engine
        conversation = await engine.create(title="One")
        await conversation.send("Go.")
        return conversation.id

    with asyncio.Runner() as runner:
        yield Target(runner, app, engine, runner.run(converse()))
        runner.run(engine.close())


@pytest.fixture(scope="module")
def bound(running: Target) -> Target:
    """The same conversations, for callers with a token."""
    limits = HttpLimits(wrong_tokens=1000)
    return running._replace(app=create_app(running.engine, token="correct-horse", limits=limits))


@pytest.fixture
def target(running: Target) -> Iterator[Target]:
    """The application; at the end of a test it holds what it held before, and answers."""
    before = running.stored()
    yield running
    assert running.stored() == before
    assert running.ask("GET", "/health").status == 200


def assert_refused(answer: Answer, *statuses: int) -> None:
    """The answer is a refusal in the form that the endpoint documents, with one of these statuses if some are given."""
    assert 400 <= answer.status < 500, (answer.status, answer.body[:500])
    if statuses:
        assert answer.status in statuses, (answer.status, answer.body[:500])
    if answer.headers["content-type"] == "application/json":  # the shape of the OpenAI API
        error = json.loads(answer.body)["error"]
        assert error["message"] and error["type"] and error["code"]
    else:
        assert answer.problem().code


BROKEN_JSON = [
    b"{",
    b"\xff\xfe",
    b'{"text": "\xff"}',
    b"[" * 50_000,
    b'{"a": ' + b"9" * 5_000 + b"}",
    b"{'a': 1}",
    b"\x00",
]
WRONG_BODIES = [b"[]", b'"x"', b"17", b"true", b'{"nonesuch": 1}', b'[{"text": "x"}]']


class TestBodies:
    """What is sent as a body."""

    @EVERY_OPERATION
    def test_a_broken_body_is_refused(self, target: Target, operation: Operation) -> None:
        """H6: malformed JSON and broken UTF-8 are 400, other types are 415, too many bytes are 413."""
        if operation.body is None:
            return
        for body in BROKEN_JSON:
            assert_refused(target.ask(operation.method, operation.path, body), 400)
        assert_refused(target.ask(operation.method, operation.path, b" " * (LIMIT + 1)), 413)
        for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            assert_refused(target.ask(operation.method, operation.path, b"{}", **{"content-type": media_type}), 415)

    @EVERY_OPERATION
    def test_a_body_of_the_wrong_form_is_refused(self, target: Target, operation: Operation) -> None:
        """A body that is no object, has an unknown key, or a value of another type for any known key is refused."""
        if operation.body is None:
            return
        is_door = operation.path.startswith("/v1/") or operation.path == "/agui"  # their clients add keys of their own
        for body in WRONG_BODIES:
            if not (is_door and b"nonesuch" in body):
                assert_refused(target.ask(operation.method, operation.path, body), 400, 422)
        for name, schema in _properties(operation.body).items():
            for value in _wrong_values(schema):
                body = json.dumps({name: value}).encode()
                assert_refused(target.ask(operation.method, operation.path, body), 400, 404, 422)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]] if reference else schema


def _alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    known = _resolved(schema)
    parts = known.get("anyOf") or known.get("oneOf")
    return [one for part in parts for one in _alternatives(part)] if parts else [known]


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: one for part in _alternatives(schema) for name, one in part.get("properties", {}).items()}


def _wrong_values(schema: dict[str, Any]) -> list[Any]:
    """Values of types that the schema does not allow. One without a type allows everything."""
    alternatives = _alternatives(schema)
    if any("type" not in one and "const" not in one and "enum" not in one for one in alternatives):
        return []
    types = {one.get("type", "string") for one in alternatives}
    values = {"string": "\ud800", "integer": 10**30, "boolean": True, "array": [[]], "object": {"x": {}}}
    numbers = {"integer", "number"}
    return [
        value
        for kind, value in values.items()
        if kind not in types and not (kind in numbers | {"boolean", "string"} and types & (numbers | {"boolean"}))
    ]


HOSTILE_IDS = [
    "%00",
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    ".",
    "%ff%fe",
    "%0d%0aset-cookie:%20x=y",
    "%20",
    "x" * 8_000,
    quote("💩"),
    quote("'; DROP TABLE conversations; --"),
    "%2F",
    "a//1",
    "a/1/../2",
    "a/1/",
    "a%2F-1",
    "%zz",
    "*",
]


class TestPaths:
    """What is sent as a path or a query."""

    @EVERY_OPERATION
    def test_a_hostile_path_is_refused(self, target: Target, operation: Operation) -> None:
        """Whatever stands where a path has an id or a number is not found, or not valid; no path leads elsewhere."""
        for name in operation.parameters("path"):
            hostile = ["x", "-1", "1.5", "9" * 30, "%00", "0x1"] if name == "seq" else HOSTILE_IDS
            for one in hostile:
                path = operation.path.replace(f"{{{name}}}", one)
                assert_refused(target.ask(operation.method, path, b"{}" if operation.body else b""), 404, 405, 422)
        for path in (f"/{operation.path}", f"{operation.path}/", operation.path.upper(), f"/page/..{operation.path}"):
            assert_refused(target.ask(operation.method, path, b"{}" if operation.body else b""), 404, 405)

    @EVERY_OPERATION
    def test_a_hostile_query_is_refused_or_finds_nothing(self, target: Target, operation: Operation) -> None:
        """A value that cannot be is 4xx; one that nothing has finds nothing."""
        for name in operation.parameters("query"):
            for value in ("%00", "%ff", "-1", "9" * 100, "x" * 3_000, "%ED%A0%80", "[]"):
                if name == "owner" and operation.is_stream:
                    continue  # a stream of nobody's conversations has no end
                got = target.ask(operation.method, f"{operation.path}?{name}={value}")
                if got.status != 200:
                    assert_refused(got, 404, 422)

    def test_the_header_of_a_stream_is_checked(self, target: Target) -> None:
        """The id after which a client resumes is refused unless an update has had it."""
        for value in ("x", "-1.0", "1.0.0", "9" * 30 + ".1", "99.0", "1.0, 2.0"):
            answer = target.ask("GET", "/conversations/{conversation_id}/events", **{"last-event-id": value})
            assert_refused(answer, 422)

    @pytest.mark.parametrize("slash", ["/", "%2F", "%2f"])
    def test_the_id_of_a_sub_agent_is_one_id(self, target: Target, slash: str) -> None:
        """The slash in the id of a sub-agent may be written as it is, or as %2F, at every endpoint that shows one."""
        shows = [
            one for one in OPERATIONS if one.method == "GET" and "{conversation_id}" in one.path and not one.is_stream
        ]
        (child,) = (one for one, _, _ in target.stored() if "/" in one)
        for operation in shows:
            answer = target.ask("GET", operation.path.replace("{conversation_id}", child.replace("/", slash)))
            assert answer.status == 200, (operation.name, answer.body[:300])


PUBLIC = {"openSession", "closeSession", "getHealth"}
"""Operations that need no token."""


class TestGuards:
    """Callers that may not use the application."""

    @EVERY_OPERATION
    def test_a_caller_without_the_token_is_refused(self, bound: Target, operation: Operation) -> None:
        """H6: with a token every endpoint but those that begin a session or tell the health is 401 without it."""
        if operation.name not in PUBLIC:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "turnwise_session=1.x"}):
                assert_refused(bound.ask(operation.method, operation.path, **headers), 401)

    @EVERY_OPERATION
    def test_a_foreign_page_is_refused(self, target: Target, operation: Operation) -> None:
        """H6: without a token a request to another host, or from another origin, is 403 at every endpoint."""
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}):
            assert_refused(target.ask(operation.method, operation.path, **headers), 403)


class TestMethods:
    """Methods that an endpoint does not have."""

    @EVERY_OPERATION
    def test_an_unknown_method_is_refused(self, target: Target, operation: Operation) -> None:
        """405 names the methods that the path has."""
        for method in ("PUT", "TRACE", "FROB"):
            answer = target.ask(method, operation.path)
            assert_refused(answer, 405)
            assert operation.method in answer.headers["allow"]
