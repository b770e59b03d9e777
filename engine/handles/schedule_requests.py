"""The requests of a handle that concern when a conversation wakes up."""

from __future__ import annotations

from datetime import datetime

from ...states.events import ScheduleChanged
from ...states.values.acts import Schedule
from ..choices.schedule_moments import first_moment
from ..choices.schedules import GivenInterval, schedule_of
from .handle import Handle


class ScheduleRequests(Handle):
    """The schedule of a conversation, and its changes."""

    @property
    def schedule(self) -> Schedule | None:
        """When the conversation wakes up of its own accord, and with what task; None if it has no schedule."""
        return self._loop.projection.context.schedule

    @property
    def next_wake(self) -> datetime | None:
        """The next moment of the schedule, in UTC; None if there is none, and once the conversation is closed."""
        return self._loop.state.book.wake

    async def set_schedule(
        self,
        *,
        every: GivenInterval | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        task: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Let the conversation wake up after each interval (`every`, in seconds or as a `timedelta`), or at the moments
        of a `cron` expression in the time zone `zone`, in place of what it was scheduled for before. Without either it
        has no schedule. At each of these moments it reads `task` and begins a turn; a turn under way ends before.

        Raises `InvalidInput` for an expression that is not valid or never comes, an unknown time zone, and an interval
        of less than a second or more than ten years; `ConfigurationError` for a cron expression where the extra `cron`
        is not installed; and `Refused` with `no_schedule` for a sub-agent.
        """
        context = self._loop.projection.context
        schedule = schedule_of(every, cron, zone, task, context.policy.texts.wake_up)
        next_wake = None if schedule is None else first_moment(schedule, self._host.now())
        await self._request(ScheduleChanged, request_id, {"next_wake"}, schedule=schedule, next_wake=next_wake)
