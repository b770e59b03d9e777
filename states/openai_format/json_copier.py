"""Turns what an application hands over into JSON values that can be stored exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ..values.surrogates import encodable

MAX_DEPTH = 50
"""How deep lists and objects may be nested. Chosen so that every JSON parser reads them."""

MAX_VALUES = 100_000
"""The most values within one message. Chosen so that values that contain each other, which have no end, are cut off."""

_MAX_BITS = 1_000
"""The size of the largest whole number. Chosen so that every JSON parser reads it."""


class JsonCopier:
    """Copies values of Python as JSON values, and notes what it had to change.

    `lost` says that something that JSON cannot hold was left out, `mended` that half a character (a lone surrogate) was
    replaced.
    """

    def __init__(self) -> None:
        self.lost = False
        self.mended = False
        self._count = 0

    def copy_object(self, given: Mapping[Any, Any] | BaseModel, depth: int = 0) -> dict[str, Any]:
        """Return the copy of an object. Models of pydantic, as the libraries of providers return them, are objects
        without their members that are None."""
        members = given.model_dump(exclude_none=True) if isinstance(given, BaseModel) else given
        copied = ((key, self._copy(value, depth)) for key, value in members.items() if self._is_key(key))
        return {self._copy_text(key): value for key, value in copied if value is not _LOST}

    def _copy(self, value: object, depth: int) -> Any:
        self._count += 1
        match value:
            case _ if self._count > MAX_VALUES:
                self.lost = True
                return _LOST
            case str():
                return self._copy_text(value)
            case None | bool() | int() | float() if _is_exact(value):
                return value
            case Mapping() | BaseModel() if depth < MAX_DEPTH:
                return self.copy_object(value, depth + 1)
            case list() | tuple() if depth < MAX_DEPTH:
                return list(self._copy_list(value, depth + 1))
            case _:
                self.lost = True
                return _LOST

    def _copy_list(self, values: list[Any] | tuple[Any, ...], depth: int) -> Iterator[Any]:
        copied = (self._copy(value, depth) for value in values)
        yield from (value for value in copied if value is not _LOST)

    def _copy_text(self, text: str) -> str:
        if type(text) is str and text.isascii():
            return text
        mended = encodable(text)
        self.mended = self.mended or mended != text
        return mended

    def _is_key(self, key: object) -> bool:
        is_text = isinstance(key, str)
        self.lost = self.lost or not is_text
        return is_text


_LOST = object()


def _is_exact(value: bool | float | None) -> bool:
    """Whether every JSON parser reads this value as it is; members of an enumeration, for example, are none."""
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool or (type(value) is int and value.bit_length() <= _MAX_BITS)
