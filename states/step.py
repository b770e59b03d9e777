"""The result of one transition."""

from __future__ import annotations

from dataclasses import dataclass

from .effects import Effect
from .states import AnyState
from .values.turn import TurnEnded


@dataclass(frozen=True, slots=True, init=False)
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

    def __init__(
        self,
        state: AnyState,
        effects: tuple[Effect, ...] = (),
        ended: TurnEnded | None = None,
        withdrawn: tuple[str, ...] = (),
        ignored: bool = False,
    ) -> None:
        # Each step makes one. The constructor that a frozen dataclass begins with takes nearly twice as long.
        _put_state(self, state)
        _put_effects(self, effects)
        _put_ended(self, ended)
        _put_withdrawn(self, withdrawn)
        _put_ignored(self, ignored)


_put_state, _put_effects, _put_ended, _put_withdrawn, _put_ignored = (
    Step.__dict__[field].__set__ for field in Step.__slots__
)
