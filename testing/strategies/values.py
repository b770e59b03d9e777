"""The smallest things that conversations are made up from: texts, moments, lengths of time, costs.

Beside the ordinary stand the extremes that break programs: no text, half a page of quotes and line breaks, the last
moment of the calendar, all the money that a number can hold.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...states.values.failures import TRANSIENT, FailureKind
from ...states.values.messages import Usage
from ...states.values.value import Value

V = TypeVar("V", bound=Value)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The moment around which most made-up events happen."""

TRICKY = (
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

_NEAR = (0, 0, 0.000_001, 1, 1, 60, 3_600, -1, -86_400)

INSTANTS = (
    *(NOON + timedelta(seconds=seconds) for seconds in _NEAR),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)
"""Moments around `NOON`, some of them the same, and the ends of the calendar."""

SECONDS = (1.0, 5.0, 600.0, 0.0, 0.25, 1e12, 1e308)
"""Lengths of time, from none to longer than the calendar."""

USAGES = tuple(
    Usage(input_tokens=sent, output_tokens=made, cost=cost)
    for cost in (None, None, 0.0, 0.004, 2.5, 1e308)
    for sent, made in ((0, 0), (1, 0), (40, 60), (4_000, 1))
)
"""What requests cost, from nothing to all the money that a number can hold."""

KINDS: tuple[FailureKind, ...] = (*sorted(TRANSIENT), *sorted(set(get_args(FailureKind)) - TRANSIENT))
"""Why something fails: first what passes by itself."""


@cache
def texts() -> SearchStrategy[str]:
    """Any text that can be written as UTF-8."""
    return st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@cache
def words() -> SearchStrategy[str]:
    """Texts that say something."""
    return texts().filter(str.strip)


@cache
def instants() -> SearchStrategy[datetime]:
    """Moments around `NOON`, and the ends of the calendar."""
    return st.sampled_from(INSTANTS)


@cache
def seconds() -> SearchStrategy[float]:
    """Lengths of time, from none to longer than the calendar."""
    return st.sampled_from(SECONDS)


@cache
def usages() -> SearchStrategy[Usage]:
    """What requests cost."""
    return st.sampled_from(USAGES)


def changed(value: V, **changes: object) -> V:
    """This value, but for what is changed; nothing is checked. `Pure.`"""
    return value.model_copy(update=changes)
