"""Generated calls of tools, and the results that come of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from ...states.values.acts import Act, ActKind, Speech, SubAgents, Transfer, WorkComplete
from ...states.values.messages import ToolCall, ToolResult
from ...states.values.round import RoundCall
from .chance import Chance
from .vocabulary import Vocabulary

ACTS: tuple[ActKind, ...] = get_args(ActKind)


def some_calls(chance: Chance, vocabulary: Vocabulary, prefix: str = "call") -> tuple[ToolCall, ...]:
    """The calls of one response."""
    return numbered((vocabulary.tool(chance) for _ in range(vocabulary.call_count(chance))), prefix)


def numbered(calls: Iterable[ToolCall], prefix: str = "call") -> tuple[ToolCall, ...]:
    """These calls with ids that differ: the prefix and a number. `Pure.`"""
    return tuple(call.model_copy(update={"call_id": f"{prefix}-{number}"}) for number, call in enumerate(calls))


def result_of(chance: Chance, vocabulary: Vocabulary, call: RoundCall | None = None) -> ToolResult:
    """What a tool returns for this call, or for any: a result with the acts that it declares, or an error."""
    if chance.probably(0.1):
        return ToolResult(text=vocabulary.text(chance, "Error"), error=True)
    kinds = vocabulary.acts(chance, ACTS if call is None else call.acts)
    acts = tuple(_act(chance, vocabulary, kind, call) for kind in kinds if kind != "question")
    return ToolResult(text=vocabulary.text(chance, "Done"), acts=acts)


def _act(chance: Chance, vocabulary: Vocabulary, kind: ActKind, call: RoundCall | None) -> Act:
    match kind:
        case "speech":
            text = vocabulary.speech(chance)
            now = vocabulary.speaks_now(chance, call is not None and call.exclusive)
            return Speech(text=text, when="now" if now else "turn_end")
        case "work_complete":
            return WorkComplete(summary=vocabulary.words(chance, "It is done."))
        case "mail":
            return vocabulary.mail(chance)
        case "transfer":
            return Transfer(profile=vocabulary.profile(chance))
        case _:
            return SubAgents(tasks=vocabulary.tasks(chance))
