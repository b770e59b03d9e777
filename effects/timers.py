"""The performer of timers."""

from __future__ import annotations

from ..states.effects import StartTimer
from ..states.events import Answer, DeadlineReached, RetryDue
from ..states.values.value import sooner
from .clock import Clock
from .context import EffectContext

_ANSWERS: dict[str, type[RetryDue | DeadlineReached]] = {"retry_due": RetryDue, "deadline_reached": DeadlineReached}


class TimerPerformer:
    """Carries out `StartTimer`: waits until the timer is due, and answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, effect: StartTimer, context: EffectContext) -> Answer:
        """Answer when the timer is due, after no more than the time that was agreed: the moment may be far ahead if the
        clock was set back since."""
        await self._clock.sleep_until(sooner(effect.due, self._clock.now(), context.longest_wait))
        return _ANSWERS[effect.wakes](effect_id=effect.effect_id, at=self._clock.now())
