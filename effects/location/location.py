"""The port of locations: a function of the application that returns where its user is.

What comes back is read by a model, and some of it was written by an outside service. So it becomes one short line: what
could begin a line of its own, hide in a text or pass for another statement is removed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

UNKNOWN = "Unknown"
"""What stands in place of a location that is not known."""

MAX_NAME = 80
"""The most characters of the name of a city, a region or a country. Chosen to be longer than almost all of them."""

MAX_LINE = 200
"""The most characters of a location as a whole: an address fits, a set of instructions hardly does."""

_SYMBOLS = frozenset(" .,'’()/&-")
"""The characters that names of places hold beside letters and digits."""

_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")


@dataclass(frozen=True)
class Location:
    """Where the user is. `zone` is the name of a time zone, such as Europe/Helsinki. What is not known stays empty."""

    city: str = ""
    region: str = ""
    country: str = ""
    zone: str = ""


LocationSource = Callable[[], Location | str | Awaitable[Location | str | None] | None]
"""Returns where the user is, or None if that is not known: a `Location`, or a text that stands in its place. A plain
function, which is called in a thread of its own, or a coroutine function."""


def describe_location(location: object) -> str:
    """Write the location as one line, such as `San Francisco, CA, United States (America/Los_Angeles)`.

    Anything that is no location, or an empty one, becomes `UNKNOWN`. `Pure.`
    """
    if isinstance(location, Location):
        names = (_name(part) for part in (location.city, location.region, location.country))
        place = ", ".join(name for name in names if name)
        zone = _zone(location.zone)
        return f"{place} ({zone})" if place and zone else place or zone or UNKNOWN
    if isinstance(location, str):
        return _line(location, MAX_LINE) or UNKNOWN
    return UNKNOWN


def _name(given: object) -> str:
    """The name of a place: letters, digits, and what else such names hold."""
    if not isinstance(given, str):
        return ""
    kept = "".join(one if one.isalnum() or one in _SYMBOLS or _is_mark(one) else " " for one in given[: 4 * MAX_NAME])
    return _line(kept, MAX_NAME).lstrip(" .,/&-").rstrip(" ,/&-")


def _zone(given: object) -> str:
    return given if isinstance(given, str) and _ZONE.fullmatch(given) else ""


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _line(text: str, limit: int) -> str:
    """The beginning of the text on one line, without invisible characters and without bullets."""
    beginning = text[: 4 * limit]
    shown = "".join(" " if one == "•" or unicodedata.category(one)[0] in "CZ" else one for one in beginning)
    return " ".join(shown.split())[:limit].strip()
