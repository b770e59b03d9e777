"""Tells methods from other functions: the first parameter of a method receives the object that it is taken from.

A class body runs before its class exists, so a tool that is declared there is not bound to an object yet. It becomes a
tool that a model can call when it is taken from an object, as a method does.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Literal

from ...states.errors import ConfigurationError

Receiver = Literal["instance", "class"]
"""What the first parameter of a method receives."""

RECEIVER_NAMES = frozenset({"self", "cls"})
"""The names of the first parameter of a method."""


def is_unbound_method(function: Any) -> bool:
    """Whether this is the function of a method, which was taken from a class and not from an object. `Pure.`"""
    if inspect.ismethod(function) or not inspect.isfunction(plain := inspect.unwrap(function)):
        return False
    owner = plain.__qualname__.rpartition(".")[0]
    is_in_class = bool(owner) and not owner.endswith("<locals>")
    return is_in_class and not RECEIVER_NAMES.isdisjoint(plain.__code__.co_varnames[:1])


def unbound_method(function: Any) -> ConfigurationError:
    """The error for the function of a method that is given without its object. `Pure.`"""
    owner, _, name = function.__qualname__.rpartition(".")
    kind = owner.rpartition(".")[2]
    return ConfigurationError(
        f"{kind}.{name} is a method that is not bound to an object: take it from an instance, as in {kind}(…).{name}."
    )


def is_in_its_class_body(function: Any) -> bool:
    """Whether the body of the class to which the function belongs is running now."""
    owner = function.__qualname__.rpartition(".")[0]
    return any(frame.f_locals.get("__qualname__") == owner for frame in _frames() if _is_class_body(frame))


def names_of_caller(depth: int) -> Mapping[str, object]:
    """The local names of the caller `depth` frames above: a tool that is made inside a function may use types that are
    defined there. In a class body these are the names of the functions around it, too."""
    frame: FrameType | None = sys._getframe(depth + 1)
    found: list[Mapping[str, object]] = []
    while frame is not None:
        found.append(frame.f_locals)
        frame = frame.f_back if _is_class_body(frame) else None
    return {name: value for names in reversed(found) for name, value in names.items()}


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_class_body(frame: FrameType) -> bool:
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED and "__qualname__" in frame.f_locals
