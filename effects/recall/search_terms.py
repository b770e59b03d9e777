"""What to search for in older conversations, as a model has written it down.

A model may write anything. So the answer is read leniently, because a search by half of the terms is better than none,
and everything in it is bounded, because it goes on to a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...states.values.value import encodable
from ..model.json_objects import json_objects
from .moments import ANY_TIME, Bounds, bounds_of, read_span

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
