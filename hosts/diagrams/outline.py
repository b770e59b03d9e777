"""Reads the table for the drawings and for the pages about it.

All of them need the same things: names, junctions, the states in which a person can act, and above all what most busy
states have in common. What these have in common is shown once, as any busy state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from ...states.events import Event, Request
from ...states.grammar import Branch, Entry, Junction, Row, Same, Target
from ...states.states import STATES, Busy, State
from ...states.table import TABLE

ANY_BUSY_STATE = "any busy state"
"""The title of what most busy states have in common."""

ANY_BUSY = "AnyBusyState"
"""The node of what most busy states have in common."""

STYLES = (
    "classDef person fill:#fde68a,stroke:#b45309,color:#111827",
    "classDef junction fill:#e5e7eb,stroke:#6b7280,color:#111827",
)
"""The colours of states in which a person can act, and of junctions. They suit light and dark pages."""

BUSY_STATES: tuple[type[State], ...] = tuple(state for state in STATES if issubclass(state, Busy))

Thing = TypeVar("Thing", bound=Hashable)


def common(of: Callable[[type[State]], Iterable[Thing]]) -> tuple[Thing, ...]:
    """The things that more than half of the busy states have, in the order of the table; `of` returns those of one
    state. `Pure.`"""
    counts = Counter(thing for state in BUSY_STATES for thing in dict.fromkeys(of(state)))
    return tuple(thing for thing, count in counts.items() if 2 * count > len(BUSY_STATES))


def entries(state: type[State], event: type[Event]) -> tuple[Entry, ...]:
    """The entries of the table for this state and event, in order; none if the event is ignored. `Pure.`"""
    return tuple(entry for entry in TABLE[state] if entry.event is event)


def rows(state: type[State]) -> list[Row]:
    """The rows of a state: its entries that change something. `Pure.`"""
    return [entry for entry in TABLE[state] if isinstance(entry, Row)]


def taken(state: type[State]) -> tuple[type[Event], ...]:
    """The events that can change something in this state, in the order of the table. `Pure.`"""
    return tuple(dict.fromkeys(row.event for row in rows(state)))


def waits_for_person(state: type[State]) -> bool:
    """Whether a person can move the conversation on: the state takes a request that most busy states do not take.
    `Pure.`"""
    everywhere = common(taken)
    return any(issubclass(event, Request) and event not in everywhere for event in taken(state))


def junctions() -> list[Junction]:
    """All junctions, in the order in which the table reaches them. `Pure.`"""
    found: dict[str, Junction] = {}
    for state in STATES:
        for row in rows(state):
            _follow(row.to, found)
    return list(found.values())


def _follow(target: Target, found: dict[str, Junction]) -> None:
    if isinstance(target, Junction) and target.name not in found:
        found[target.name] = target
        for branch in target.branches:
            _follow(branch.to, found)


def name(target: Target) -> str:
    """The name of a state or a junction. `Pure.`"""
    assert not isinstance(target, Same), "a row that stays leads nowhere"
    return target.name if isinstance(target, Junction) else target.__name__


def guard(choice: Entry | Branch, siblings: Sequence[Entry | Branch]) -> str:
    """The guard in brackets, `[else]` behind siblings with a guard, or an empty text. `Pure.`"""
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if len(siblings) > 1 else ""
