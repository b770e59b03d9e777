"""What the table says, read without the code that draws and describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from turnwise.states import MACHINE, choices, table
from turnwise.states.events import EVENTS, Event
from turnwise.states.grammar import SAME, Branch, Entry, Junction, Row, Target
from turnwise.states.machine import edges
from turnwise.states.states import STATES, Busy, State

TABLE = table.TABLE
JUNCTIONS = [value for value in vars(choices).values() if isinstance(value, Junction)]
BUSY = [state for state in STATES if issubclass(state, Busy)]
WAITING_FOR_A_PERSON = {
    "Idle",
    "AwaitingUserResponse",
    "AwaitingApproval",
    "AwaitingSubAgents",
    "InDoubt",
    "Failed",
}
EDGES = tuple(edges(MACHINE))
PAIRS = [(state, event) for state in STATES for event in EVENTS]

Function = Callable[..., Any]
"""A guard, a handler, or the reason of a refusal."""

Way = tuple[str, str]
"""When, and where to: what is drawn for an event, or for a junction."""


def pair_name(value: type[State] | type[Event]) -> str:
    """The name of a state or an event in the name of a test."""
    return value.__name__


def name(target: Target) -> str:
    """The name of the target of a row in diagrams and pages."""
    if isinstance(target, Junction):
        return target.name
    assert isinstance(target, type)
    return target.__name__


def guard(choice: Entry | Branch, siblings: int) -> str:
    """The text in brackets for a choice among so many choices."""
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if siblings > 1 else ""


def entries(state: type[State], event: type[Event]) -> list[Entry]:
    """The entries of the table for a state and an event."""
    return [entry for entry in TABLE[state] if entry.event is event]


def end(choice: Entry | Branch) -> str:
    """Where a choice leads; an entry that leads nowhere is named by its type."""
    if isinstance(choice, Row | Branch):
        return "stays" if choice.to is SAME else name(choice.to)
    return type(choice).__name__


def ways(choices: list[Entry] | list[Branch]) -> set[Way]:
    """What must be drawn for these choices: guard and target of each row or branch, with guards only if the choices
    lead to different targets."""
    decided = len({end(choice) for choice in choices}) > 1
    return {
        (guard(choice, len(choices)) if decided else "", end(choice))
        for choice in choices
        if isinstance(choice, Row | Branch)
    }


def junctions() -> Iterator[Junction]:
    """Every junction of the table, once for each branch that is taken there."""
    for edge in EDGES:
        target = edge.row.to
        for taken in edge.branches:
            assert isinstance(target, Junction)
            yield target
            target = taken.to


def used() -> set[Function]:
    """Every function that the table names."""
    named: list[Entry | Branch] = [entry for taken in TABLE.values() for entry in taken]
    named += [branch for junction in junctions() for branch in junction.branches]
    found = [getattr(choice, part, None) for choice in named for part in ("when", "then", "why")]
    return {function for function in found if callable(function)}


def name_of(function: Function) -> str:
    """The name of a function, with its module."""
    return f"{function.__module__.removeprefix('turnwise.states.')}.{function.__name__}"
