"""Timers: an effect that answers when its moment has come."""

from __future__ import annotations

from ..states.effects import StartTimer
from ..states.events import Answer, DeadlineReached, RetryDue
from .clock import Clock
from .context import EffectContext

_WAKES: dict[str, type[RetryDue | DeadlineReached]] = {"retry_due": RetryDue, "deadline_reached": DeadlineReached}


class TimerPerformer:
    """Waits, then wakes the conversation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, effect: StartTimer, scene: EffectContext) -> Answer:
        """Answer when the effect is due."""
        await self._clock.sleep_until(effect.due)
        return _WAKES[effect.wakes](effect_id=effect.effect_id, at=self._clock.now())
