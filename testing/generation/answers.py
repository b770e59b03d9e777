"""Generated answers of each type: what models, tools, timers, sub-agents and checks may answer to an effect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, get_args

from ...states.events import (
    Answer,
    AskUserQuestionPending,
    EffectFailed,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    MemoryRecalled,
    ProfileSelected,
    RecentText,
    SubAgentFinished,
    ToolComplete,
    ToolReconciled,
    TurnSummarized,
    WorkVerified,
)
from ...states.guards import ORDER
from ...states.values.messages import Suspect
from ...states.values.round import RoundCall
from .calls import result_of, some_calls
from .chance import Chance
from .from_types import from_type
from .vocabulary import Vocabulary

A = TypeVar("A", bound=Answer)

Fields: TypeAlias = dict[str, Any]

Generator: TypeAlias = Callable[[Chance, Vocabulary, int, RoundCall | None], Fields]
"""Makes the fields of an answer to the effect of this id, which runs this call if it runs one."""


def answer(
    chance: Chance,
    vocabulary: Vocabulary,
    kind: type[A],
    effect_id: int,
    at: datetime,
    call: RoundCall | None = None,
) -> A:
    """An answer of this type to this effect; `call` is the one that the effect runs or asks about, if it does.

    A type that `GENERATORS` does not hold is generated from what it declares.
    """
    generator = GENERATORS.get(kind)
    if generator is None:
        return from_type(kind, chance, effect_id=effect_id, at=at)
    return kind(effect_id=effect_id, at=at, **generator(chance, vocabulary, effect_id, call))


def _response(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    said = vocabulary.response(chance)
    usage = vocabulary.usage(chance)
    makes_calls = said.calls == 1.0 or (said.calls > 0.0 and chance.probably(said.calls))
    return {
        "content": said.content,
        "thinking": said.thinking,
        "opaque": said.opaque,
        "finish_reason": said.finish_reason,
        "usage": usage,
        "tool_calls": some_calls(chance, vocabulary, f"call-{effect_id}") if makes_calls else (),
        "model": vocabulary.model(chance),
        "speaks": effect_id % 2 == 1,
    }


_HELD: tuple[tuple[Suspect, ...], ...] = (
    get_args(Suspect),
    ("words",),
    ("sight", "new_images", "images", "additions", "words"),
    ("answers", "memory", "earlier", "words"),
    ("earlier", "instructions"),
    (),
)
"""What a request may hold that is refused for its content: the last is what events say that older versions stored."""


def _model_failure(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    kind = vocabulary.model_failure(chance)
    return {
        "kind": kind,
        "sentence": vocabulary.text(chance, "It failed."),
        "retry_after": vocabulary.retry_after(chance),
        "held": _HELD[effect_id % len(_HELD)] if kind in ORDER else (),
    }


def _failure(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    return {"kind": vocabulary.failure(chance), "sentence": vocabulary.text(chance, "It broke.")}


def _reconciliation(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    verdict = chance.pick(("ran", "did_not_run", "unknown"))
    knows = (verdict == "ran") != vocabulary.odd(chance)
    return {"verdict": verdict, "result": result_of(chance, vocabulary, call) if knows else None}


def _memory(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    recent = tuple(
        RecentText(role=chance.pick(("user", "assistant")), text=vocabulary.text(chance, "Hello"))
        for _ in range(vocabulary.recent_texts(chance))
    )
    block, documents = vocabulary.text(chance, "Once upon a time"), vocabulary.text(chance, "")
    left_out = ("Recalled without documents: no answer within 30 s.",) if effect_id % 5 == 0 else ()
    return {
        "block": block,
        "recent": recent,
        "documents": documents,
        "usage": vocabulary.cost(chance),
        "left_out": left_out,
    }


def _verification(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    passed = chance.probably(0.5)
    missing = tuple(vocabulary.text(chance, "This.") for _ in range(vocabulary.missing(chance)))
    reason = vocabulary.text(chance, "Look again.")
    return {"passed": passed, "reason": reason, "missing": missing, "usage": vocabulary.cost(chance)}


def _question(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    """A question. A call that is not exclusive may not wait for the answer, and seldom tries to."""
    may_wait = call is None or call.exclusive
    suspends = chance.often() and may_wait != vocabulary.odd(chance)
    return {"questions": vocabulary.questions(chance), "suspends": suspends}


def _outcome(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    outcome, status = vocabulary.text(chance, "Found it."), vocabulary.status(chance)
    return {"outcome": outcome, "status": status, "usage": vocabulary.cost(chance)}


GENERATORS: dict[type[Answer], Generator] = {
    LlmResponse: _response,
    LlmFailed: _model_failure,
    EffectFailed: _failure,
    ToolComplete: lambda chance, words, effect_id, call: {"result": result_of(chance, words, call)},
    ToolReconciled: _reconciliation,
    WorkVerified: _verification,
    MemoryRecalled: _memory,
    SubAgentFinished: _outcome,
    ProfileSelected: lambda chance, words, *_: {"profile": words.profile(chance), "usage": words.cost(chance)},
    AskUserQuestionPending: _question,
    TurnSummarized: lambda chance, words, *_: {
        "summary": words.text(chance, "In short."),
        "usage": words.cost(chance),
    },
    HistoryCompacted: lambda chance, words, *_: {
        "summary": words.words(chance, "So far."),
        "usage": words.cost(chance),
    },
}
"""How an answer of each type is generated that is more than its id and its moment."""
