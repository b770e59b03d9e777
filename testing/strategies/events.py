"""Made-up events, whatever the state that they meet."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, TypeVar

from hypothesis.strategies import SearchStrategy
from pydantic import JsonValue

from ...states.events import (
    EVENTS,
    REQUESTS,
    AgentMessage,
    AskUserQuestionPending,
    CloseRequested,
    CompactionRequested,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    MemoryRecalled,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    RecentText,
    Request,
    Resumed,
    RetryDue,
    RetryRequested,
    SubAgentFinished,
    ToolAborted,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    TurnSummarized,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WorkVerified,
)
from ...states.events import Answer as Answer
from ...states.values.questions import Annotation
from .calls import any_answer_map, question_set, result_of, some_calls
from .chance import Chance, by_chance
from .policies import MARKER, ROLES, WHEN_BUSY, policy
from .values import INSTANTS, KINDS, NOON, SECONDS, TRICKY, USAGES, changed

E = TypeVar("E", bound=Event)

Fields = Callable[[Chance], dict[str, Any]]
"""What events of a type say, by the names of their fields."""

STATUSES = ("completed", "incomplete", "failed", "cancelled")
WANTED = ("agent", "user")


def _failure(chance: Chance) -> dict[str, Any]:
    return {"kind": chance.pick(KINDS), "sentence": chance.text()}


def _opened(chance: Chance) -> dict[str, Any]:
    role = chance.pick(ROLES)
    works_for = "foreground" if role == "background" else None
    parent = "parent" if role == "sub_agent" else None
    return {
        "role": role,
        "system": chance.text(),
        "policy": policy(chance),
        "works_for": works_for,
        "parent": parent,
    }


def _approval(chance: Chance) -> dict[str, Any]:
    arguments = {chance.text(): chance.pick((1, None, "x", [True]))} if chance.rarely(4) else None
    return {"call_id": chance.text(), "allowed": not chance.rarely(3), "note": chance.text(), "arguments": arguments}


def _written(chance: Chance) -> dict[str, Any]:
    silent, audience = chance.rarely(3), chance.pick(WANTED)
    return {"origin": chance.words(), "text": chance.words(), "audience": audience, "silent": silent}


def _recalled(chance: Chance) -> dict[str, Any]:
    recent = (RecentText(role=chance.pick(("user", "assistant")), text=chance.text()),) * chance.below(3)
    return {"block": chance.text(), "recent": recent, **_cost(chance)}


def _verdict(chance: Chance) -> dict[str, Any]:
    missing = (chance.text(),) * chance.below(3)
    return {"passed": chance.often(), "reason": chance.text(), "missing": missing, **_cost(chance)}


def _reconciled(chance: Chance) -> dict[str, Any]:
    verdict = chance.pick(("ran", "did_not_run", "unknown"))
    return {"verdict": verdict, "result": result_of(chance) if chance.often() else None}


def _finished(chance: Chance) -> dict[str, Any]:
    return {"outcome": chance.text(), "status": chance.pick(STATUSES), **_cost(chance)}


def _answered(chance: Chance) -> dict[str, Any]:
    notes = {chance.text(): Annotation(notes=chance.text())} if chance.rarely(4) else {}
    return {"answers": any_answer_map(chance), "annotations": notes, "call_id": _perhaps(chance, chance.text())}


def _cost(chance: Chance) -> dict[str, Any]:
    return {"usage": chance.pick(USAGES)}


def _perhaps(chance: Chance, value: object) -> Any:
    return value if chance.rarely(4) else None


def _nothing(chance: Chance) -> dict[str, Any]:
    return {}


_SEALS: tuple[tuple[dict[str, JsonValue], ...], ...] = ((), ({"signature": "x", "parts": [1, 2.5, None, {"a": "…"}]},))

_RESPONSES = tuple(
    LlmResponse(effect_id=0, at=NOON, content=content, thinking=thinking, finish_reason=ending, opaque=seal)
    for content, thinking, ending, seal in product(
        ("Here you are", "", "", " \n", f"{MARKER} x", f"Yes.\n {MARKER} y", *TRICKY),
        ("", "", "Hm", " "),
        ("stop", "stop", "tool_calls", "", "length"),
        _SEALS,
    )
)


def response(chance: Chance) -> LlmResponse:
    """What a model can say. The words are combined beforehand: this is made more often than anything else."""
    said = chance.pick(_RESPONSES)
    return changed(said, tool_calls=some_calls(chance), model=chance.pick(("", "model-0")), **_cost(chance))


_FIELDS: dict[type[Event], Fields] = {
    Opened: _opened,
    UserMessage: lambda chance: {"text": chance.words(), "when_busy": chance.pick((None, None, *WHEN_BUSY))},
    AgentMessage: _written,
    MessageWithdrawn: lambda chance: {"message_id": chance.text()},
    UserQuestionResponse: _answered,
    ToolApproval: _approval,
    UserCancel: lambda chance: {
        "turn": _perhaps(chance, chance.below(9) - 1),
        "call_id": _perhaps(chance, chance.text()),
    },
    RetryRequested: _nothing,
    PolicyChanged: lambda chance: {"policy": policy(chance)},
    CompactionRequested: _nothing,
    DoubtResolved: lambda chance: {
        "call_id": chance.text(),
        "verdict": chance.pick(("ran", "did_not_run", "again")),
    },
    CloseRequested: _nothing,
    ProfileSelected: lambda chance: {"profile": f"profile-{chance.below(4)}", **_cost(chance)},
    MemoryRecalled: _recalled,
    LlmFailed: lambda chance: {**_failure(chance), "retry_after": _perhaps(chance, chance.pick(SECONDS))},
    RetryDue: _nothing,
    DeadlineReached: _nothing,
    AskUserQuestionPending: lambda chance: {"questions": question_set(chance)},
    ToolComplete: lambda chance: {"result": result_of(chance)},
    ToolReconciled: _reconciled,
    ToolAborted: _nothing,
    SubAgentFinished: _finished,
    WorkVerified: _verdict,
    TurnSummarized: lambda chance: {"summary": chance.text(), **_cost(chance)},
    HistoryCompacted: lambda chance: {"summary": chance.words(), **_cost(chance)},
    EffectFailed: _failure,
    Resumed: lambda chance: {"open": (1,) * chance.below(2)},
    ToolInterrupted: lambda chance: {"call_id": chance.text()},
}


def said(chance: Chance, kind: type[E]) -> E:
    """An event of this type, for those who change when it happened and whom it names."""
    if kind is LlmResponse:
        return response(chance)  # type: ignore[return-value]
    named = name_of(kind, 0)
    return kind(at=NOON, **named, **_FIELDS[kind](chance))


def name_of(kind: type[Event], number: int) -> dict[str, Any]:
    """How an event of this type is told apart from others, by a number. `Pure.`"""
    if issubclass(kind, Request):
        return {"event_id": f"request-{number}"}
    return {"effect_id": number} if issubclass(kind, Answer) else {}


def any_event(chance: Chance, *kinds: type[E]) -> E:
    """An event of one of these types, everything about it made up."""
    kind = chance.pick(kinds)
    return changed(said(chance, kind), at=chance.pick(INSTANTS), **name_of(kind, chance.below(32) - 1))


_by_chance = cache(by_chance(any_event))


def events_of(kind: type[E]) -> SearchStrategy[E]:
    """Events of one type, everything about them made up."""
    return _by_chance(kind)


def events() -> SearchStrategy[Event]:
    """Every event, whatever the state it meets."""
    return _by_chance(*EVENTS)


def requests() -> SearchStrategy[Request]:
    """Everything that people and programs can want."""
    return _by_chance(*REQUESTS)
