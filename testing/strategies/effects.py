"""Made-up effects of every type, whatever the step that they are part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.strategies import SearchStrategy

from ...states.effects import (
    EFFECTS,
    Abort,
    CancelSubAgent,
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    NotifyParent,
    PersistMessage,
    PersistToolResults,
    RecallMemory,
    ReconcileTool,
    RequestLlm,
    SelectProfile,
    SendToAgent,
    SettledCall,
    SpawnSubAgent,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from ...states.values.messages import Heard, Joined, Made, Said
from ...states.values.round import RoundCall
from .calls import one_call
from .chance import Chance, by_chance
from .events import STATUSES, WANTED
from .values import INSTANTS, SECONDS


def one_heard(chance: Chance) -> Heard:
    """A text that some event brought."""
    return Heard(seq=1 + chance.below(30), index=chance.below(4))


def one_said(chance: Chance) -> Said:
    """A text by reference, of any kind."""
    match chance.below(3):
        case 0:
            return one_heard(chance)
        case 1:
            return Made(text=chance.text())
        case _:
            return Joined(parts=(Made(text=chance.text()), one_heard(chance)))


def _round_call(chance: Chance) -> RoundCall:
    return RoundCall.of(one_call(chance), 1 + chance.below(30))


def _results(chance: Chance) -> tuple[SettledCall, ...]:
    return tuple(
        SettledCall(call_id=chance.text(), said=one_said(chance), error=chance.often()) for _ in range(chance.below(4))
    )


_FIELDS: dict[type[Effect], Callable[[Chance], dict[str, Any]]] = {
    PersistMessage: lambda chance: {"said": one_said(chance)},
    PersistToolResults: lambda chance: {"results": _results(chance)},
    RequestLlm: lambda chance: {
        "model": chance.text(),
        "profile": chance.pick(("", "profile-0")),
        "memory": chance.pick((None, Heard(seq=2))),
        "nudge": one_said(chance) if chance.often() else None,
        "plain": chance.often(),
        "tool_choice": chance.pick(("auto", "none")),
        "at": chance.pick(INSTANTS),
    },
    ExecuteTool: lambda chance: {"call": _round_call(chance)},
    ReconcileTool: lambda chance: {"call": _round_call(chance), "started_as": chance.below(30)},
    SelectProfile: lambda chance: {},
    RecallMemory: lambda chance: {
        "profile": chance.text(),
        "search": chance.often(),
        "recent": chance.pick((None, *SECONDS)),
    },
    VerifyWork: lambda chance: {"claim": one_heard(chance), "deliverable": (one_said(chance),) * chance.below(3)},
    SummarizeTurn: lambda chance: {},
    CompactHistory: lambda chance: {"up_to": chance.below(30), "turn": chance.pick((None, 1))},
    SpawnSubAgent: lambda chance: {"task": one_heard(chance)},
    StartTimer: lambda chance: {
        "due": chance.pick(INSTANTS),
        "wakes": chance.pick(("retry_due", "deadline_reached")),
    },
    Abort: lambda chance: {},
    CancelSubAgent: lambda chance: {},
    DeliverToUser: lambda chance: {
        "said": one_said(chance),
        "turn": chance.below(9),
        "ordinal": 1 + chance.below(3),
        "relayed": chance.often(),
    },
    SendToAgent: lambda chance: {
        "target": chance.words(),
        "said": one_heard(chance),
        "audience": chance.pick(WANTED),
        "silent": chance.often(),
    },
    NotifyParent: lambda chance: {
        "status": chance.pick(STATUSES),
        "said": one_said(chance) if chance.often() else None,
    },
}


def one_effect(chance: Chance, *kinds: type[Effect]) -> Effect:
    """An effect of one of these types, or of any."""
    kind = chance.pick(kinds or EFFECTS)
    named: dict[str, Any] = {"effect_id": 1 + chance.below(30)} if "effect_id" in kind.model_fields else {}
    return kind(**named, **_FIELDS[kind](chance))


def effects(*kinds: type[Effect]) -> SearchStrategy[Effect]:
    """Every effect, or those of these types, whatever the step that they are part of."""
    return by_chance(one_effect)(*kinds)
