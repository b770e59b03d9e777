"""What to search for in older conversations, as a model has written it down: words, and the time from when to when.

A model may write anything. So the answer is read leniently, because a search by half of the terms is better than
none, and everything in it is bounded, because it goes on to a store.

Moments are dates and times by ISO 8601, from a year down to microseconds. A model that is asked for a period of time
may name a day, a month or a year. Such a text stands for all of it, so it is read as a span.
"""

from __future__ import annotations

import json
import re
from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from ...states.values.value import encodable
from ..text import json_objects


@dataclass(frozen=True)
class Span:
    """The moments from `first` to `last`, both included, in UTC."""

    first: datetime
    last: datetime


@dataclass(frozen=True)
class Bounds:
    """The moments between which something was said, both included, in UTC; None is no bound."""

    since: datetime | None = None
    until: datetime | None = None


ANY_TIME = Bounds()

MAX_KEYWORDS = 16
"""How many keywords are searched for: twice as many as the model is asked for."""

MAX_CHARACTERS = 100
"""The most characters of a keyword: more than the longest words and names have."""

_SEPARATORS = re.compile(r"[,;\n\uff0c\u3001\uff1b]")
"""What stands between keywords that a model has written as one text."""


@dataclass(frozen=True)
class SearchTerms:
    """The keywords of a search, none for no search, and the bounds of time."""

    keywords: tuple[str, ...] = ()
    bounds: Bounds = ANY_TIME


NOTHING = SearchTerms()


def read_search_terms(text: str) -> SearchTerms:
    """The terms in the answer of a model: those of the last JSON object in it that has keywords. `Pure.`"""
    answers = list(json_objects(text, "keywords"))
    if not answers:
        return NOTHING
    answer = json.loads(answers[-1])
    bounds = bounds_of(read_span(answer.get("from")), read_span(answer.get("to")))
    return SearchTerms(read_keywords(answer["keywords"]), bounds)


def read_keywords(given: Any) -> tuple[str, ...]:
    """The keywords in a list of texts, or in one text with separators; what is neither text nor number is passed over.
    Each stands once, whatever its case. `Pure.`"""
    if isinstance(given, str):
        given = _SEPARATORS.split(given[: MAX_KEYWORDS * MAX_CHARACTERS])
    if not isinstance(given, list | tuple):
        return ()
    keywords: dict[str, str] = {}
    for keyword in _texts(given):
        if len(keywords) == MAX_KEYWORDS:
            break
        keywords.setdefault(keyword.casefold(), keyword)
    return tuple(keywords.values())


def _texts(given: Iterable[Any]) -> Iterable[str]:
    for one in given:
        if isinstance(one, str | int | float) and not isinstance(one, bool):
            text = one if isinstance(one, str) else f"{one:g}" if isinstance(one, float) else _digits(one)
            if text := " ".join(encodable(text[: 2 * MAX_CHARACTERS]).split())[:MAX_CHARACTERS].strip():
                yield text


def _digits(number: int) -> str:
    return str(number) if abs(number) < 10**MAX_CHARACTERS else ""


_MAX_CHARACTERS = 64
"""The longest text that is read. The longest form by ISO 8601 has half as many characters."""

_YEAR_OR_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{1,2}))?")


def read_span(given: object) -> Span | None:
    """The span that a text stands for, or None if it stands for none. A moment without a time zone is in UTC.
    `Pure.`"""
    text = given.strip().upper() if isinstance(given, str) and len(given) <= _MAX_CHARACTERS else ""
    try:
        return _months(text) or _day(text) or _moment(text)
    except (ValueError, OverflowError):
        return None


def bounds_of(given_from: Span | None, given_to: Span | None) -> Bounds:
    """The bounds from the beginning of the one span to the end of the other. Spans in the wrong order are exchanged.
    `Pure.`"""
    if given_from is not None and given_to is not None and given_from.first > given_to.last:
        given_from, given_to = given_to, given_from
    return Bounds(None if given_from is None else given_from.first, None if given_to is None else given_to.last)


def _months(text: str) -> Span | None:
    """The span of a year, or of a month."""
    match = _YEAR_OR_MONTH.fullmatch(text)
    if match is None:
        return None
    year, month = int(match[1]), match[2]
    first, last = (1, 12) if month is None else (int(month), int(month))
    return _days(date(year, first, 1), date(year, last, monthrange(year, last)[1]))


def _day(text: str) -> Span | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return _days(day, day)


def _days(first: date, last: date) -> Span:
    return Span(datetime.combine(first, time.min, UTC), datetime.combine(last, time.max, UTC))


def _moment(text: str) -> Span:
    moment = datetime.fromisoformat(re.sub(r"\s*(UTC|GMT)$", "+00:00", text))
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return Span(moment, moment)
