"""The effects of a step reach the dispatcher in their order."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.effects.context import EffectContext
from turnwise.engine.loop import dispatch_in_order
from turnwise.states import Abort, CancelSubAgent, Effect, Heard, SpawnSubAgent, StartTimer
from turnwise.testing.doubles import NOON

from ...support.effect_contexts import effect_context

SPAWN = SpawnSubAgent(effect_id=1, task=Heard(seq=1))
TIMER = StartTimer(effect_id=2, due=NOON, wakes="deadline_reached")


class Recorded:
    """A dispatcher that records what it is told."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Record the effects that are started together."""
        self.calls.append(tuple(effects))

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Record the effect that is stopped."""
        self.calls.append(effect_id)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Return at once."""

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Return at once."""

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Return at once."""


def told(*effects: Effect) -> list[object]:
    """Return what the dispatcher is told of a step with these effects."""
    dispatcher = Recorded()
    dispatch_in_order(effects, dispatcher, "a conversation", lambda: effect_context("a conversation"))
    return dispatcher.calls


def test_an_effect_that_is_started_and_stopped_in_one_step_starts_first() -> None:
    """Otherwise it would be stopped before it is known, and would go on."""
    assert told(SPAWN, CancelSubAgent(effect_id=1), TIMER) == [(SPAWN,), 1, (TIMER,)]


def test_effects_that_stop_earlier_ones_come_in_their_place() -> None:
    """Most steps stop what the state has waited for before they start something else."""
    assert told(Abort(effect_id=7), Abort(effect_id=8), SPAWN, TIMER) == [7, 8, (SPAWN, TIMER)]


def test_a_step_without_effects_does_nothing() -> None:
    """The dispatcher is not called."""
    assert told() == []
