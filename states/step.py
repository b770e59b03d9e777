"""The result of one transition, and the entry that the log of the conversation holds of it.

A log has one entry for each step. Everything else can be computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from .effects import Effect
from .events import AnyEvent, Event
from .states import AnyState
from .values.turn import TurnEnded


@dataclass(frozen=True, slots=True)
class Step:
    """What `transition` returns: the next state, and the effects to carry out.

    `ended` says that a turn ended, and how; the next turn may begin in the same step. `withdrawn` holds the ids of
    messages that waited and will never be answered, because the conversation closes. `ignored` says that nothing
    happened: an answer came too late, or a request had nothing to act on. An ignored step has the state from before and
    is not stored.
    """

    state: AnyState
    effects: tuple[Effect, ...] = ()
    ended: TurnEnded | None = None
    withdrawn: tuple[str, ...] = ()
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The `seq`-th step: the event that came in, and what the machine made of it. `turn` counts the turns so far."""

    seq: int
    event: AnyEvent
    effects: tuple[Effect, ...] = ()
    ended: TurnEnded | None = None
    turn: int = 0

    @classmethod
    def of(cls, event: Event, step: Step) -> LogEntry:
        """The entry for a step that was not ignored. `Pure.`"""
        book, taken = step.state.book, cast(AnyEvent, event)
        return cls(book.seq, taken, step.effects, step.ended, book.turn)
