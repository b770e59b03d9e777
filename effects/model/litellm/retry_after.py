"""How long a provider asks its clients to wait before the next request.

Providers say so in a dozen ways: in the header of RFC 9110, in headers of their own that tell when a limit is reset, in
a field of the error, or in a sentence. The most exact one counts: first a header that says how long to wait, then the
body, then the time at which the limit that was reached is reset. That of a limit which was not reached says only when
it is full again, so it says nothing about this request.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ....states.values.value import FailureKind
from .refusals import Refusal

_WAITS = {"retry-after-ms": 0.001, "x-ms-retry-after-ms": 0.001, "retry-after": 1.0, "x-retry-after": 1.0}
"""The headers that say how long to wait, and the seconds in their unit."""

_RESET = re.compile(r"(?:.+-)?rate-?limit-(?:.+-)?reset(?:-.+)?")
"""The headers that say when a limit is reset: `x-ratelimit-reset-tokens`, `anthropic-ratelimit-requests-reset`,
`ratelimit-reset`. With `remaining` in place of `reset` they say how much of it is left."""

_IN_ONE = re.compile(r"\b(?:t|reset)=(\d+)")
"""The seconds until a reset in the header `ratelimit`, in the two forms of its drafts: `"default";r=0;t=41` and
`limit=100, remaining=0, reset=41`."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"milliseconds?|millis|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|秒钟?|分钟?|小时"
_PIECE = re.compile(rf"(\d+(?:\.\d+)?)\s*({_UNIT})(?![a-z])")
_PIECES = re.compile(rf"(?:\d+(?:\.\d+)?\s*(?:{_UNIT})(?:\s*,?\s*(?:and\s+)?)?)+", re.IGNORECASE)
_LATIN = {"秒": "s", "分": "m", "小": "h"}

_BEFORE = r"(?:in|after|for|within|at least|about|approximately|another)\W+"
_LENGTH = rf"(?:\d+(?:\.\d+)?\s*(?:{_UNIT})(?![a-z])(?:\s*,?\s*(?:and\s+)?)?)+"
_NUMBER = r"\d+(?:\.\d+)?(?![\w:.-])(?!\s*(?:attempts?|times|tries|retries|requests?|tokens?|calls?)\b)"
_TOLD = re.compile(
    r"(?:retry[ _-]?(?:after|delay)(?P<unit>[ _-]?(?:in[ _-])?(?:ms|millis\w*))?\w*|"
    r"wait|quotaresetdelay|estimated_time)"
    rf"\W{{0,3}}(?:seconds:\W*)?(?:{_BEFORE}){{0,3}}(?P<named>{_LENGTH}|{_NUMBER})"
    r"|(?:try(?: it| your request)? again|retry[a-z ]{0,25}|resets?|available(?: again)?)"
    rf"\W{{0,3}}(?:seconds:\W*)?(?:(?:{_BEFORE}){{0,3}}(?P<told>{_LENGTH})|(?:\b{_BEFORE}){{1,3}}(?P<bare>{_NUMBER}))"
)
"""Where a refusal tells a wait. A number without a unit is one only behind a name for it, or behind `in` or `after`:
others count attempts, for example."""
_TOLD_IN_CHINESE = re.compile(rf"(?P<time>(?:\d+(?:\.\d+)?\s*(?:{_UNIT})\s*)+)(?:之?后|以后|内)")
_TOLD_MOMENT = re.compile(
    r"(?:try again|retry|resets?|available|access)\b\W{0,3}(?:(?:after|at|on|until)\W+){1,2}"
    r"(\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:z|utc|[+-]\d\d:?\d\d)?)"
)


def retry_after(refusal: Refusal, kind: FailureKind = "rate_limit") -> float | None:
    """The wait in seconds that a refusal of this kind asks for, or None. A moment in the past means 0 seconds."""
    waits = (_wait_in(refusal.headers), _wait_told(refusal.text))
    known = [wait for wait in waits if wait is not None]
    return known[0] if known else _reset_in(refusal.headers) if kind == "rate_limit" else None


def _wait_in(headers: Mapping[str, str]) -> float | None:
    for name, unit in _WAITS.items():
        if (value := headers.get(name)) is not None and (wait := _seconds(value, unit)) is not None:
            return wait
    return None


def _wait_told(text: str) -> float | None:
    if (found := _TOLD.search(text)) is not None:
        return _seconds(found["named"] or found["told"] or found["bare"], 0.001 if found["unit"] else 1.0)
    if (found := _TOLD_IN_CHINESE.search(text)) is not None:
        return _seconds(found["time"])
    return None if (found := _TOLD_MOMENT.search(text)) is None else _seconds_until(found[1])


def _reset_in(headers: Mapping[str, str]) -> float | None:
    """The wait for the limits in headers of their own, or in one header for all."""
    wait = _reset_of_limits(headers)
    return _seconds(found[1]) if wait is None and (found := _IN_ONE.search(headers.get("ratelimit", ""))) else wait


def _reset_of_limits(headers: Mapping[str, str]) -> float | None:
    """The longest wait for a limit of which nothing is left; where no header says what is left, the shortest one."""
    resets = {name: wait for name, value in headers.items() if _RESET.fullmatch(name) and (wait := _seconds(value))}
    left = {name: headers.get(name.replace("reset", "remaining")) for name in resets}
    if reached := [resets[name] for name in resets if _is_nothing(left[name])]:
        return max(reached)
    return min((resets[name] for name in resets if left[name] is None), default=None)


def _is_nothing(left: str | None) -> bool:
    try:
        return left is not None and float(left) <= 0
    except ValueError:
        return False


def _seconds(value: str, unit: float = 1.0) -> float | None:
    """The seconds that a value stands for: a number in this unit, a moment in seconds or milliseconds since 1970, a
    duration such as `1m2.5s`, or a date."""
    value = value.strip()
    try:
        number = float(value)
    except ValueError:
        return _duration(value) if _PIECES.fullmatch(value) else _seconds_until(value)
    if not math.isfinite(number):
        return None
    since_1970 = number / 1000 if number > 1e12 else number
    return max(since_1970 - datetime.now(UTC).timestamp() if number > 1e9 else number * unit, 0.0)


def _duration(value: str) -> float:
    return sum(_lengths_in(value.lower()))


def _lengths_in(value: str) -> Iterator[float]:
    for number, unit in _PIECE.findall(value):
        short = "ms" if unit.startswith(("ms", "milli")) else _LATIN.get(unit[0], unit[0])
        yield float(number) * _SECONDS[short]


def _seconds_until(date: str) -> float | None:
    moment = _moment(date)
    if moment is None:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def _moment(date: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(date.strip().upper().replace(" UTC", "+00:00").removesuffix("UTC"))
    with suppress(ValueError):
        return parsedate_to_datetime(date)
    return None
