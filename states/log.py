"""The log of a conversation: one entry for each step. Everything else can be computed from it."""

from __future__ import annotations

from dataclasses import dataclass

from .effects import Effect
from .events import Event
from .step import Step
from .values.turn import TurnEnded


@dataclass(frozen=True)
class LogEntry:
    """The `seq`-th step: the event that came in, and what the machine made of it. `turn` counts the turns so far."""

    seq: int
    event: Event
    effects: tuple[Effect, ...] = ()
    ended: TurnEnded | None = None
    turn: int = 0

    @classmethod
    def of(cls, event: Event, step: Step) -> LogEntry:
        """The entry for a step that was not ignored. `Pure.`"""
        book = step.state.book
        return cls(seq=book.seq, event=event, effects=step.effects, ended=step.ended, turn=book.turn)
