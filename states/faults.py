"""What pydantic finds wrong with a value, told in bounded time whatever the value is.

pydantic looks for every fault. A list of a million wrong items has a million of them, and to describe one takes many
times as long as to find it. So of very many faults only their number is told, and where a few
items are allowed, no more are read than show that there are too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from pydantic import ValidationError
from pydantic_core import ErrorDetails

MAX_FAULTS = 2_000
"""The most faults that are described, which takes hundredths of a second. Nobody reads that many."""


def faults_of(error: ValidationError) -> list[ErrorDetails]:
    """What is wrong, at least one fault, without what was given. More than `MAX_FAULTS` faults are told as one, which
    has no location. `Pure.`"""
    if has_many_faults(error):
        return [ErrorDetails(type="faults_many", loc=(), msg=sentence_of_many(error), input=None)]
    return error.errors(include_url=False, include_input=False)


def has_many_faults(error: ValidationError) -> bool:
    """Whether these are more faults than are described. `Pure.`"""
    return error.error_count() > MAX_FAULTS


def sentence_of_many(error: ValidationError) -> str:
    """How many faults there are, in a sentence without a full stop, like those of pydantic. `Pure.`"""
    return f"Input has {error.error_count():,} faults"


def read_up_to(given: object, number: int) -> object:
    """Return the first items of what is given for a tuple, at most so many: the rest is neither read nor validated.
    What is no collection of items is returned as it is, and pydantic says so."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return given
    return tuple(islice(given, number))
