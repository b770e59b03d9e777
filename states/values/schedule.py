"""When a conversation begins turns of its own accord, and what it then has to do."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from .value import FilledText, Seconds, Value, check_encodable

MAX_CRON = 200
"""The longest cron expression, in characters: several times what an expression of five fields needs."""

MAX_ZONE = 100
"""The longest name of a time zone, in characters: more than three times the longest name that exists."""

LONGEST_INTERVAL = 315_360_000.0
"""The longest interval, in seconds: ten years. Chosen so that the next moment is always within the calendar."""


CronExpression = Annotated[str, Field(min_length=1, max_length=MAX_CRON), AfterValidator(check_encodable)]
"""A cron expression, as people write it; where the next moment is computed, it is checked."""

ZoneName = Annotated[str, Field(min_length=1, max_length=MAX_ZONE), AfterValidator(check_encodable)]
"""The name of a time zone, such as Europe/Berlin."""


class Schedule(Value):
    """When a conversation wakes up: after each interval of `every` seconds, or at the moments of a `cron` expression in
    the time zone `zone`. At each of these moments it reads `task` and begins a turn.

    Exactly one of `every`, at least a second, and `cron` is given. Whether the expression and the zone are valid is
    checked where the next moment is computed.
    """

    every: Annotated[Seconds, Field(ge=1, le=LONGEST_INTERVAL)] | None = None
    cron: CronExpression | None = None
    zone: ZoneName = "UTC"
    task: FilledText

    @model_validator(mode="after")
    def _has_one_rhythm(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise PydanticCustomError("schedule_unclear", "a schedule needs either an interval or a cron expression")
        return self
