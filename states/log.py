"""The log of a conversation: one entry for each step. Everything else can be computed from it."""

from __future__ import annotations

from dataclasses import dataclass

from .effects import Effect
from .events import AnyEvent, Event
from .step import Step
from .values.turn import TurnEnded


@dataclass(frozen=True, slots=True, init=False)
class LogEntry:
    """The `seq`-th step: the event that came in, and what the machine made of it. `turn` counts the turns so far."""

    seq: int
    event: AnyEvent
    effects: tuple[Effect, ...] = ()
    ended: TurnEnded | None = None
    turn: int = 0

    def __init__(
        self, seq: int, event: Event, effects: tuple[Effect, ...] = (), ended: TurnEnded | None = None, turn: int = 0
    ) -> None:
        # As in `Step`: the constructor that a frozen dataclass begins with takes nearly twice as long.
        _put_seq(self, seq)
        _put_event(self, event)
        _put_effects(self, effects)
        _put_ended(self, ended)
        _put_turn(self, turn)

    @classmethod
    def of(cls, event: Event, step: Step) -> LogEntry:
        """The entry for a step that was not ignored. `Pure.`"""
        book = step.state.book
        return cls(book.seq, event, step.effects, step.ended, book.turn)


_put_seq, _put_event, _put_effects, _put_ended, _put_turn = (
    LogEntry.__dict__[field].__set__ for field in LogEntry.__slots__
)
