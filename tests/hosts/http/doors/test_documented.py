"""What the doors answer is what the OpenAPI document says of them."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise import Engine
from turnwise.hosts.http import HttpLimits

from ....support.doors.commanded_model import CommandedLlm
from ....support.http.documented_client import NO_BODY, DocumentedClient, serving_here

RUN = {"threadId": "t", "runId": "r", "messages": []}
KEPT = {"metadata": {"conversation_id": "kept"}}


def completion(text: str, **members: Any) -> dict[str, Any]:
    """The body of a completion."""
    return {"model": "commanded", "messages": [{"role": "user", "content": text}], **members}


ANSWERS: list[tuple[str, Any, int]] = [
    ("createChatCompletion", completion("say Hello"), 200),
    ("createChatCompletion", completion("ask", **KEPT), 200),
    ("createChatCompletion", completion("say Hello", n=2), 400),
    ("createChatCompletion", {"model": 1}, 400),
    ("createChatCompletion", NO_BODY, 400),
    ("createChatCompletion", completion("", turnwise={"call_id": "c", "verdict": "ran"}, **KEPT), 409),
    ("createChatCompletion", {**completion("say Hello"), "model": "other"}, 404),
    ("createChatCompletion", completion("x" * 5_000), 413),
    ("createChatCompletion", completion("fail"), 502),
    ("listChatModels", NO_BODY, 200),
    ("getChatModel", NO_BODY, 200),
    ("runAgent", {"threadId": "t"}, 422),
    ("runAgent", {**RUN, "resume": 1}, 422),
    ("runAgent", {**RUN, "state": "x" * 5_000}, 413),
]


@pytest.fixture
def engine() -> Engine:
    """An engine that is not yet open."""
    return Engine.open("sqlite://", model=CommandedLlm(), tools=["ask_user_question"])


async def test_answers_are_as_documented(engine: Engine) -> None:
    """The status of each is declared, and its body has the form that is declared for it."""
    async with serving_here(engine, limits=HttpLimits(body_bytes=4_000)) as api:
        statuses = [(await call(api, operation, body)).status_code for operation, body, _ in ANSWERS]

    assert statuses == [status for _, _, status in ANSWERS]


OPERATIONS = ("createChatCompletion", "listChatModels", "getChatModel", "runAgent")
VALID: dict[str, Any] = {"createChatCompletion": completion("say Hello"), "runAgent": RUN}


async def test_an_unknown_caller_is_refused_everywhere(engine: Engine) -> None:
    """A server with a token wants it."""
    async with serving_here(engine, token="secret") as api:
        assert {(await call(api, one, VALID.get(one, NO_BODY))).status_code for one in OPERATIONS} == {401}


async def test_a_foreign_host_is_refused_everywhere(engine: Engine) -> None:
    """A server answers to its own names."""
    async with serving_here(engine, hosts=["example.org"]) as api:
        assert {(await call(api, one, VALID.get(one, NO_BODY))).status_code for one in OPERATIONS} == {403}


async def call(api: DocumentedClient, operation: str, body: Any) -> Any:
    """Call an operation, and hold the answer against the document."""
    parameters = {"model": "commanded"} if operation == "getChatModel" else {}
    return await api.call(operation, body, **parameters)


async def test_a_closed_engine(engine: Engine) -> None:
    """What needs the engine is refused with the code for that; a client may try again by itself."""
    async with serving_here(engine) as api:
        await engine.close()
        answer = await api.call("createChatCompletion", completion("say Hello"))

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_closed")
    assert answer.headers["x-should-retry"] == "true"
