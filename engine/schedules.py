"""The schedule that an application chooses for a conversation, and when it comes: its first moment, and those after it.

An interval is counted from the moment at which the schedule began, whenever its turns begin. A cron expression is read
in its time zone as cron daemons do: what falls into the hour that a clock change leaves out happens after it, and what
falls into the hour that comes twice happens once, unless the expression stands for every hour or minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from ..states.errors import ConfigurationError, InvalidInput
from ..states.values.acts import Schedule
from ..states.values.value import MAX_QUOTED, later, shortened

GivenInterval = float | timedelta
"""An interval as an application gives it: in seconds, or as a duration."""

_NO_RHYTHM = "A task and a time zone belong to a schedule: give an interval (`every`) or a cron expression (`cron`)."

_TWO_RHYTHMS = "A schedule has either an interval (`every`) or a cron expression (`cron`), not both."

_NO_ZONE = "A time zone belongs to a cron expression; an interval is the same in all of them."


def schedule_of(
    every: GivenInterval | None, cron: str | None, zone: str, task: str | None, default_task: str
) -> Schedule | None:
    """Return the schedule that is meant, or None if there is none. Raises `InvalidInput` for one that cannot be."""
    if every is None and cron is None:
        if task is not None or zone != "UTC":
            raise InvalidInput(_NO_RHYTHM)
        return None
    if every is not None and cron is not None:
        raise InvalidInput(_TWO_RHYTHMS)
    if every is not None and zone != "UTC":
        raise InvalidInput(_NO_ZONE)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    fields = {"every": seconds, "cron": cron, "zone": zone, "task": default_task if task is None else task}
    try:
        return Schedule.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(f"{fault['loc'][0] if fault['loc'] else 'schedule'}: {fault['msg']}.") from None


def first_moment(schedule: Schedule, now: datetime) -> datetime:
    """Return when a schedule that begins now comes first.

    Raises `InvalidInput` for an expression that is not valid or never comes and for an unknown time zone, and
    `ConfigurationError` if the package for cron expressions is not installed.
    """
    if schedule.every is not None:
        return later(now, schedule.every)
    moment = _cron_moment(schedule, now)
    if moment is None:
        raise InvalidInput(f"The cron expression {_quoted(schedule.cron)} never comes.")
    return moment


def _cron_moment(schedule: Schedule, after: datetime) -> datetime | None:
    try:
        return next((moment for moment in _cron_moments(schedule, after) if moment > after), None)
    except (OverflowError, ValueError):
        return None  # the calendar ends before it


MISSING = 'A cron expression needs the package cronsim: pip install "turnwise[cron]".'


def _cron_moments(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """Yield moments of a cron expression. Where clocks are set back, the first ones may lie before `after`."""
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        raise ConfigurationError(MISSING) from None
    local = after.astimezone(_zone(schedule.zone))
    try:
        moments = CronSim(schedule.cron or "", local)
    except CronSimError as error:
        raise InvalidInput(f"The cron expression {_quoted(schedule.cron)} is not valid: {error}.") from None
    for moment in moments:
        yield moment.astimezone(UTC)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # also on machines without a database of time zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(f"There is no time zone {_quoted(name)} on this machine.") from None


def _quoted(text: str | None) -> str:
    return repr(shortened(text or "", MAX_QUOTED))


def next_moment(schedule: Schedule, due: datetime, now: datetime) -> datetime | None:
    """Return when a schedule comes next whose moment `due` is over: the first moment after it that lies in the future,
    so what was missed is not made up for. None if it never comes again. Raises what `first_moment` raises."""
    after = max(due, now)
    if schedule.every is None:
        return _cron_moment(schedule, after)
    interval = timedelta(seconds=schedule.every)
    try:
        return due + interval * ((after - due) // interval + 1)
    except OverflowError:
        return None


_SMALL_STEP = 60.0
"""By so many seconds at most clocks are set in ordinary operation."""


def moment_set_right(schedule: Schedule, wake: datetime, now: datetime) -> datetime:
    """Return when a schedule comes next of which a clock that may have run ahead has said that it does so at `wake`: no
    later than if it began now. A moment of a cron expression does not come twice because a clock was set back by
    seconds. Raises what `first_moment` raises."""
    if schedule.every is not None:
        return min(wake, later(now, schedule.every))
    return min(wake, _cron_moment(schedule, later(now, _SMALL_STEP)) or wake)
