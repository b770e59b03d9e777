"""Knows where the user is when a request is built, without making anybody wait for it.

The port is a function of the application that returns where its user is; without one an outside service can be asked
for the place of an IP address. What comes back is read by a model, and some of it was written by an outside service.
So it becomes one short line: what could begin a line of its own, hide in a text or pass for another statement is
removed.

A location seldom changes and may be slow to find out: an outside service may be slow or gone. So it is asked for once
and kept for a while, a request waits for it only briefly, and a failure is a location that is not known.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final

from ..states.errors import ConfigurationError
from .application_functions import Returned, call_within
from .clock import Clock
from .logs import performer_logger

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


KEPT = timedelta(minutes=10)
"""How long a location is used before it is asked for again: people travel, and computers change networks."""

KEPT_UNKNOWN = timedelta(minutes=1)
"""How long an unknown location is used, so that a service that is gone is not asked for each request."""

WAIT = 1.0
"""Seconds that requests wait for a location, together: one that has not arrived by then delays no further request, and
is used once it is there."""

logger: Final = performer_logger("turnwise.location")


def location_source(
    given: LocationSource | None, *, enabled: bool, ip_address: str | None, auto_detect: bool
) -> LocationSource | None:
    """Return the source of the location, or None if the location is not to be found out.

    Unless it is `enabled`, there is no source. The one of the application takes precedence, then comes the lookup of
    the configured address. Only with `auto_detect` is an outside service asked where the address of this computer is.
    Raises `ConfigurationError` for an invalid address.
    """
    lookup = IpLookup(ip_address) if ip_address else IpLookup() if auto_detect else None
    if given is not None and not enabled:
        logger.warning("The location is not stated in requests: the setting location_enabled is off.")
    return (given or lookup) if enabled else None


class Locator:
    """Knows where the user is, from its `source`; without one the location is never known."""

    def __init__(self, source: LocationSource | None, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._lookup: asyncio.Task[str] | None = None
        self._asked: datetime | None = None
        self._waited_for_until = 0.0

    async def describe(self) -> str:
        """Return the location as one line, and `UNKNOWN` if it is not known within `WAIT`. Raises nothing but
        CancelledError, when the caller's task is cancelled."""
        if self._source is None:
            return UNKNOWN
        time = asyncio.get_running_loop().time
        if self._lookup is None or self._is_old(self._lookup):
            self._asked = self._clock.now()
            self._lookup = asyncio.create_task(self._ask(self._source))
            self._waited_for_until = time() + WAIT
        lookup, remaining = self._lookup, self._waited_for_until - time()
        if not lookup.done() and remaining > 0:
            await asyncio.wait({lookup}, timeout=remaining)
        return _result_of(lookup)

    def _is_old(self, lookup: asyncio.Task[str]) -> bool:
        """Whether the location must be asked for again. Also if the clock was set back."""
        if not lookup.done() or self._asked is None:
            return False
        age = self._clock.now() - self._asked
        return not timedelta() <= age < (KEPT_UNKNOWN if _result_of(lookup) == UNKNOWN else KEPT)

    async def _ask(self, source: LocationSource) -> str:
        outcome = await call_within(DEADLINE, "location", source)
        if isinstance(outcome, Returned):
            return describe_location(outcome.value)
        reason = "no answer in time" if outcome is None else type(outcome.error).__name__
        logger.warning("The location is not known: %s.", reason)
        return UNKNOWN


def _result_of(lookup: asyncio.Task[str]) -> str:
    """What a lookup has found, if it has ended."""
    return lookup.result() if lookup.done() and not lookup.cancelled() else UNKNOWN


SERVICE = "https://ipwho.is/"
"""The service that is asked by default. It takes the address behind this URL, or looks up the address that asks, and
needs no key."""

DEADLINE = 5.0
"""Seconds that one lookup may take as a whole."""

_MAX_ANSWER = 65_536
"""The most bytes of an answer that are read; answers have about 2,000."""

_CHUNK = 4096

_FIELDS = {
    "city": ("city",),
    "region": ("region", "regionName", "region_name"),
    "country": ("country_name", "country"),
    "zone": ("timezone", "time_zone"),
}
"""The members of an answer that hold each part of a location: the first of them that is a text counts. The services
agree on most names, so that another one can often be asked without any code."""


class IpLookup:
    """A `LocationSource` that looks up an IP address: `address`, or the one from which the service is asked.

    The service gets a GET request for `url`, by default `SERVICE`, with the address appended, and returns JSON with
    city, region, country and time zone. Raises `ConfigurationError` for what is not an IP address, and for a URL that
    is not one of HTTP.

    Packages for this are clients of one service each, and databases for local lookups need a licence or a download
    every month. A lookup is one GET request, so it is made directly, and the URL of the service can be replaced.
    """

    def __init__(self, address: str | None = None, *, url: str | None = None) -> None:
        try:
            looked_up = "" if address is None else str(ip_address(address.strip()))
        except (ValueError, AttributeError):
            raise ConfigurationError("The IP address of the location is not an IP address.") from None
        service = SERVICE if url is None else url
        if not str(service).startswith(("https://", "http://")):
            raise ConfigurationError("The URL of a service for locations begins with https:// or http://.")
        self.url: str = f"{service}{looked_up}"
        """The URL of the request."""

    def __call__(self) -> Location | None:
        """Ask the service; None if it does not know the location. Blocks for at most about `DEADLINE`. Raises an error
        of httpx, ValueError or TimeoutError if there is no usable answer."""
        answer = json.loads(self._read())
        return _location_in(answer) if isinstance(answer, dict) else None

    def _read(self) -> bytes:
        """Return the body of the answer. It is not decompressed, so that it cannot become larger than `_MAX_ANSWER`."""
        import httpx

        until, body = time.monotonic() + DEADLINE, b""
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        with httpx.stream("GET", self.url, headers=headers, timeout=DEADLINE) as response:
            response.raise_for_status()
            for chunk in response.iter_raw(_CHUNK):
                body += chunk
                if len(body) > _MAX_ANSWER:
                    raise ValueError("The answer is too long.")
                if time.monotonic() > until:
                    raise TimeoutError("The answer came too slowly.")
        return body


def _location_in(answer: dict[str, Any]) -> Location | None:
    """The location in the answer of a service; None if it says that it has none."""
    if answer.get("success") is False or answer.get("error") or answer.get("status") in ("fail", "error"):
        return None
    found = {part: _text_in(answer, names) for part, names in _FIELDS.items()}
    return Location(**found) if any(found.values()) else None


def _text_in(answer: dict[str, Any], names: tuple[str, ...]) -> str:
    """The text under one of these names. A time zone may be an object with an `id`."""
    values = (answer.get(name) for name in names)
    texts = (value.get("id") if isinstance(value, dict) else value for value in values)
    return next((text for text in texts if isinstance(text, str)), "")
