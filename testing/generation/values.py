"""The smallest parts of generated values: texts, moments, durations, costs.

Beside the ordinary ones stand the extremes that break programs: an empty text, quotes and line breaks, the last moment
of the calendar, the largest amount of money that a float can hold.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeVar, get_args

from ...states.values.messages import Usage
from ...states.values.value import TRANSIENT, FailureKind, Value

V = TypeVar("V", bound=Value)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The moment around which most generated events happen."""

TRICKY_TEXTS = (
    "a",
    "b",
    "",
    " ",
    "{0} {x} %s",
    'say "yes"',
    "one\ntwo\r\n\tthree",
    "back\\slash",
    "日本語 مرحبا 👩‍👩‍👧",
    "\u2028\u0000",
)
"""Texts that break programs, the plain ones first."""

_NEAR = (0, 0, 0.000_001, 1, 1, 60, 3_600, -1, -86_400)

INSTANTS = (
    *(NOON + timedelta(seconds=seconds) for seconds in _NEAR),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)
"""Moments around `NOON`, some of them the same, and the ends of the calendar."""

SECONDS = (1.0, 5.0, 600.0, 0.0, 0.25, 1e12, 1e308)
"""Durations, from none to longer than the calendar."""

USAGES = (
    *(
        Usage(input_tokens=sent, output_tokens=made, cost=cost)
        for cost in (None, None, 0.0, 0.004, 2.5, 1e308)
        for sent, made in ((0, 0), (1, 0), (40, 60), (4_000, 1))
    ),
    Usage(input_tokens=40, output_tokens=60, cached_tokens=40, reasoning_tokens=50),
    Usage(cached_tokens=1),
)
"""What requests cost, from nothing to the largest float."""

FAILURE_KINDS: tuple[FailureKind, ...] = (*sorted(TRANSIENT), *sorted(set(get_args(FailureKind)) - TRANSIENT))
"""Why something fails: first what is transient."""


def changed(value: V, **changes: object) -> V:
    """A copy of the value with these fields changed; nothing is validated. `Pure.`"""
    return value.model_copy(update=changes)
