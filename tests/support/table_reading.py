"""What the table says, read independently of the code that draws it and writes about it."""

from __future__ import annotations

from turnwise.states import table
from turnwise.states.events import EVENTS, Event
from turnwise.states.grammar import SAME, Branch, Entry, Junction, Row, Target
from turnwise.states.states import STATES, Busy, State

TABLE = table.TABLE
JUNCTIONS = [value for value in vars(table).values() if isinstance(value, Junction)]
BUSY = [state for state in STATES if issubclass(state, Busy)]
WAITING_FOR_A_PERSON = {"Idle", "AwaitingUserResponse", "AwaitingApproval", "InDoubt", "Failed"}
PAIRS = [(state, event) for state in STATES for event in EVENTS]

Way = tuple[str, str]
"""When, and where to: what is drawn for an event, or for a junction."""


def pair_name(value: type[State] | type[Event]) -> str:
    """How a test names one half of a pair."""
    return value.__name__


def name(target: Target) -> str:
    """How pictures and page call the end of a row."""
    if isinstance(target, Junction):
        return target.name
    assert isinstance(target, type)
    return target.__name__


def guard(choice: Entry | Branch, siblings: int) -> str:
    """What must stand in brackets for a choice that has so many siblings, itself included."""
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if siblings > 1 else ""


def entries(state: type[State], event: type[Event]) -> list[Entry]:
    """What the table says about a pair."""
    return [entry for entry in TABLE[state] if entry.event is event]


def end(choice: Entry | Branch) -> str:
    """Where a choice leads; what leads nowhere is told apart by its kind."""
    if isinstance(choice, Row | Branch):
        return "stays" if choice.to is SAME else name(choice.to)
    return type(choice).__name__


def ways(choices: list[Entry] | list[Branch]) -> set[Way]:
    """What must be drawn for these: where each row or branch leads, and when, if not all lead the same way."""
    decided = len({end(choice) for choice in choices}) > 1
    return {
        (guard(choice, len(choices)) if decided else "", end(choice))
        for choice in choices
        if isinstance(choice, Row | Branch)
    }
