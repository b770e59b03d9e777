"""What all doors share: texts that arrive in pieces, and answers as the OpenAPI document says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from turnwise import DeliveryUpdate, Engine, TokenUpdate, Update, presets
from turnwise.hosts.http import HttpLimits
from turnwise.hosts.http.doors.turns import SaidTexts, TextParts, TextPiece

from ....support.doors.commanded_model import CommandedLlm
from ....support.http.documented_client import NO_BODY, DocumentedClient, serving_here

# --- Texts that arrive in pieces and later whole.


def token(text: str, attempt: int = 1, *, from_start: bool = False) -> TokenUpdate:
    """A piece of an answer."""
    return TokenUpdate(text, "text", turn=1, request=1, attempt=attempt, from_start=from_start)


def shown(pieces: Iterable[TextPiece]) -> list[str]:
    """Pieces as texts: the number of the part, its text, and how it ends."""
    return [f"{one.number}:{one.text}{'~' if one.abandoned else '|' if one.ends else ''}" for one in pieces]


@pytest.mark.parametrize(
    ("tokens", "whole", "expected"),
    [
        ([], "Hello", ["1:Hello", "1:|"]),
        (["Hel", "lo"], "Hello", ["1:Hel", "1:lo", "1:|"]),
        (["Hel"], "Hello", ["1:Hel", "1:lo|"]),
        (["Hello "], "Hello", ["1:Hello ", "1:|"]),
        (["\n", " Hi"], "Hi", ["1:\n Hi", "1:|"]),
        (["  "], "Hello", ["1:Hello", "1:|"]),
        (["Help"], "Hello", ["1:Help", "1:~", "2:Hello", "2:|"]),
    ],
)
def test_a_text_is_shown_once(tokens: list[str], whole: str, expected: list[str]) -> None:
    """What was streamed of it is not repeated; what was streamed of another text ends as abandoned."""
    parts = TextParts()

    pieces = [piece for text in tokens for piece in parts.token(token(text))]

    assert shown([*pieces, *parts.full_text(whole)]) == expected


def test_a_text_from_the_start_adds_what_is_new() -> None:
    """A watcher that has missed pieces is given all of them again."""
    parts = TextParts()

    pieces = [*parts.token(token("Hel")), *parts.token(token("Hello", from_start=True)), *parts.token(token("!"))]

    assert shown([*pieces, *parts.full_text("Hello!")]) == ["1:Hel", "1:lo", "1:!", "1:|"]


def test_another_attempt_begins_another_part() -> None:
    """Also where it is shown from its start."""
    for from_start in (False, True):
        parts = TextParts()
        pieces = [*parts.token(token("Half")), *parts.token(token("Whole", 2, from_start=from_start))]

        assert shown([*pieces, *parts.full_text("Whole")]) == ["1:Half", "1:~", "2:Whole", "2:|"]


def test_a_text_that_is_never_whole_is_abandoned() -> None:
    """A turn that is cancelled ends in the middle of a text. Blank space has begun none."""
    parts = TextParts()

    assert shown([*parts.token(token("Half")), *parts.close(), *parts.close()]) == ["1:Half", "1:~"]
    assert shown([*parts.token(token(" ", 2)), *parts.close()]) == []


def speech(text: str, attempt: int = 1) -> TokenUpdate:
    """A piece of what a tool is to say."""
    return TokenUpdate(text, "speech", 1, 3, attempt)


def delivery(text: str) -> DeliveryUpdate:
    """What a tool has said."""
    return DeliveryUpdate((5, 0), text=text, turn=1, ordinal=1)


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        ([speech("It "), speech("rains."), delivery("It rains.")], ["1:It ", "1:rains.", "1:|"]),
        ([speech("A.\n\nB"), delivery("A."), delivery("B.")], ["1:A.\n\nB", "1:.|"]),
        ([speech("A."), delivery("B.")], ["1:A.", "1:~", "2:B.", "2:|"]),
        ([speech("A"), speech("A.", 2), delivery("A.")], ["1:A", "1:~", "2:A.", "2:|"]),
    ],
)
def test_what_a_tool_says_is_shown_while_it_is_written(updates: list[Update], expected: list[str]) -> None:
    """To a client that takes back what is not said in the end. Others read it once it is delivered."""
    live = SaidTexts(presets.talk(), live=True, takes_back=True)
    later = SaidTexts(presets.talk(), live=True)

    assert shown(piece for update in updates for piece in live.read(update)) == expected
    said = [update.text for update in updates if isinstance(update, DeliveryUpdate)]
    assert "".join(piece.text for update in updates for piece in later.read(update)) == "".join(said)


# --- What the doors answer is what the OpenAPI document says of them.


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
