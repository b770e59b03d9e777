"""The port of locations: a function that tells where the user is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """Where the user is. `zone` is the name of a time zone, such as Europe/Helsinki."""

    city: str = ""
    region: str = ""
    country: str = ""
    zone: str = ""


LocationSource = Callable[[], Location | Awaitable[Location | None] | None]
"""Returns the location, or None if it is not known. A function, or a coroutine function."""
