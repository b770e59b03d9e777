"""One step of a conversation: where it rests now, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from .effects import Effect
from .state import State
from .values.turn import TurnEnded


@dataclass(frozen=True)
class Step:
    """What `transition` returns.

    `ended` says that a turn is over, and what it came to; the next turn may begin in the same step. `withdrawn` are the
    ids of messages that waited and will never be answered, because the conversation closes. `ignored` says that nothing
    happened: an answer came too late, or a request had nothing to act on. Then the state is the one before, and there
    is nothing to store.
    """

    state: State
    effects: tuple[Effect, ...] = ()
    ended: TurnEnded | None = None
    withdrawn: tuple[str, ...] = ()
    ignored: bool = False
