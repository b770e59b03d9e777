"""The words in which the table is written.

    on(event, when=guard, to=State, then=handler)     a row: on this event, if the guard says yes, rest in that state
    on(event, to=JUNCTION, then=handler)              a row that leads to a choice that several rows share
    refuse(event, why="code")                         a request that is refused
    nothing(event)                                    a request that changes nothing (a cancel where nothing runs)
    junction("name", branch(when=…, to=…, then=…), …) a choice: the first branch whose guard says yes

The rows for an event are tried from top to bottom. The last one has no guard, so one is always found. A line that names
several events stands for a row for each of them. `SAME` stands for the state that the row leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from .context import Context
from .errors import NOTHING_WAITS, RefusalCode, Refused
from .events import Event, Request
from .states import State
from .step_builder import StepBuilder


@dataclass(frozen=True)
class Same:
    """The state stays the same."""


SAME = Same()

# Handlers and guards name the exact builder and event types of their rows; laws in the tests hold them to it.
Guard: TypeAlias = Callable[[StepBuilder[Any], Any, Context], bool]
Handler: TypeAlias = Callable[[StepBuilder[Any], Any, Context], State | None]
Reason: TypeAlias = Callable[[StepBuilder[Any], Any, Context], Refused]


@dataclass(frozen=True)
class Branch:
    """One way out of a junction. Its handler finishes the step, or prepares it for the next junction."""

    to: Target
    when: Guard | None = None
    then: Handler | None = None


@dataclass(frozen=True)
class Junction:
    """A choice in which several rows end, written in one place."""

    name: str
    branches: tuple[Branch, ...]

    def __hash__(self) -> int:
        # By name: a hash of all that follows would be computed again for each row that leads here.
        return hash(self.name)


Target: TypeAlias = type[State] | Junction | Same


@dataclass(frozen=True)
class Row:
    """On this event, if the guard says yes, go there."""

    event: type[Event]
    to: Target
    when: Guard | None = None
    then: Handler | None = None


@dataclass(frozen=True)
class Refusal:
    """A request that this state does not take, and why."""

    event: type[Request]
    why: RefusalCode | Reason
    when: ClassVar[None] = None

    def reason(self, builder: StepBuilder[Any], event: Request, context: Context) -> Refused:
        """The error to raise."""
        if callable(self.why):
            return self.why(builder, event, context)
        return Refused(self.why, sentence=NOTHING_WAITS.get(event.type, "") if self.why == "wrong_state" else "")


@dataclass(frozen=True)
class NoOp:
    """A request that has nothing to act on here."""

    event: type[Request]
    when: Guard | None = None


Entry: TypeAlias = Row | Refusal | NoOp
Line: TypeAlias = tuple[Entry, ...]
Table: TypeAlias = dict[type[State], tuple[Entry, ...]]


def on(*events: type[Event], to: Target, when: Guard | None = None, then: Handler | None = None) -> Line:
    """A row of the table, for each of these events."""
    return tuple(Row(event=event, to=to, when=when, then=then) for event in events)


def refuse(*events: type[Request], why: RefusalCode | Reason) -> Line:
    """Requests that are refused, with a code or with a function that words the reason."""
    return tuple(Refusal(event=event, why=why) for event in events)


def nothing(*events: type[Request], when: Guard | None = None) -> Line:
    """Requests that change nothing."""
    return tuple(NoOp(event=event, when=when) for event in events)


def lines(*several: Line) -> Line:
    """Several lines as one: all rows of a state, or rows that several states share."""
    return tuple(entry for line in several for entry in line)


def branch(*, to: Target, when: Guard | None = None, then: Handler | None = None) -> Branch:
    """One way out of a junction."""
    return Branch(to=to, when=when, then=then)


def junction(name: str, *branches: Branch) -> Junction:
    """A choice that several rows share."""
    return Junction(name=name, branches=branches)
