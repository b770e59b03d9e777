"""Bounds how many references a check against a schema follows.

A schema of a few lines can refer to its own parts so that each of them is looked at twice as often as the one before.
A check would then take hours, and nothing could interrupt it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

MAX_FOLLOWED = 10_000
"""How many references are followed at most, for an empty value: a third of a second."""

MAX_FOLLOWED_FOR_PART = 20
"""How many more are followed for each part of the value. Chosen to be more than the alternatives of honest schemas."""

_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")

_left: ContextVar[list[int]] = ContextVar("turnwise-references-left")
"""How many references the check that runs may still follow."""


class TooManyReferences(Exception):
    """A check follows more references than it may."""


class BoundedValidator:
    """The same validator, which raises `TooManyReferences` while the errors are read. Its class must be one that
    `with_bounded_references` made."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Yield what does not fit, in the order of the schema."""
        _left.set([MAX_FOLLOWED + MAX_FOLLOWED_FOR_PART * _parts_of(instance)])
        yield from self._validator.iter_errors(instance)


@cache
def with_bounded_references(dialect: Any) -> Any:
    """The class of validators for the same dialect that counts the references which it follows."""
    from jsonschema.validators import extend  # type: ignore[import-untyped]  # only for tools with a schema

    known = {keyword: dialect.VALIDATORS[keyword] for keyword in _KEYWORDS if keyword in dialect.VALIDATORS}
    return extend(dialect, {keyword: partial(_follow, follow) for keyword, follow in known.items()})


def _follow(follow: Callable[..., Any], validator: Any, reference: str, instance: object, schema: object) -> Any:
    """Count, and follow the reference: the function of a keyword, as `jsonschema` calls it."""
    left = _left.get()
    left[0] -= 1
    if left[0] < 0:
        raise TooManyReferences
    return follow(validator, reference, instance, schema)


def _parts_of(value: object) -> int:
    """How many values a JSON value is made of. `Pure.`"""
    count, rest = 0, [value]
    while rest:
        count += 1
        part = rest.pop()
        if isinstance(part, dict):
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return count
