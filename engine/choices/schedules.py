"""The schedule that an application chooses for a conversation."""

from __future__ import annotations

from datetime import timedelta

from pydantic import ValidationError

from ...states.errors import InvalidInput
from ...states.values.acts import Schedule

GivenInterval = float | timedelta
"""An interval as an application gives it: in seconds, or as a duration."""

NO_RHYTHM = "A task and a time zone belong to a schedule: give an interval (`every`) or a cron expression (`cron`)."
TWO_RHYTHMS = "A schedule has either an interval (`every`) or a cron expression (`cron`), not both."
NO_ZONE = "A time zone belongs to a cron expression; an interval is the same in all of them."


def schedule_of(
    every: GivenInterval | None, cron: str | None, zone: str, task: str | None, default_task: str
) -> Schedule | None:
    """Return the schedule that is meant, or None if there is none. Raises `InvalidInput` for one that cannot be."""
    if every is None and cron is None:
        if task is not None or zone != "UTC":
            raise InvalidInput(NO_RHYTHM)
        return None
    if every is not None and cron is not None:
        raise InvalidInput(TWO_RHYTHMS)
    if every is not None and zone != "UTC":
        raise InvalidInput(NO_ZONE)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    fields = {"every": seconds, "cron": cron, "zone": zone, "task": default_task if task is None else task}
    try:
        return Schedule.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(f"{fault['loc'][0] if fault['loc'] else 'schedule'}: {fault['msg']}.") from None
