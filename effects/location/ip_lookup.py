"""Finds out where an IP address is, by asking an outside service.

Packages for this are clients of one service each, and databases for local lookups need a licence or a download every
month. A lookup is one GET request, so it is made directly, and the URL of the service can be replaced.
"""

from __future__ import annotations

import json
import time
from ipaddress import ip_address
from typing import Any

from ...states.errors import ConfigurationError
from .location import Location

SERVICE = "https://ipwho.is/"
"""The service that is asked by default. It takes the address behind this URL, or looks up the address that asks, and
needs no key."""

DEADLINE = 5.0
"""Seconds that one lookup may take as a whole."""

MAX_ANSWER = 65_536
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
    """

    def __init__(self, address: str | None = None, *, url: str | None = None) -> None:
        try:
            looked_up = "" if address is None else str(ip_address(address.strip()))
        except (ValueError, AttributeError):
            raise ConfigurationError("The IP address of the location is not an IP address.") from None
        service = SERVICE if url is None else url
        if not str(service).startswith(("https://", "http://")):
            raise ConfigurationError("The URL of a service for locations begins with https:// or http://.")
        self.url = f"{service}{looked_up}"
        """The URL of the request."""

    def __call__(self) -> Location | None:
        """Ask the service; None if it does not know the location. Blocks for at most about `DEADLINE`. Raises an error
        of httpx, ValueError or TimeoutError if there is no usable answer."""
        answer = json.loads(self._read())
        return _location_in(answer) if isinstance(answer, dict) else None

    def _read(self) -> bytes:
        """Return the body of the answer. It is not decompressed, so that it cannot become larger than `MAX_ANSWER`."""
        import httpx

        until, body = time.monotonic() + DEADLINE, b""
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        with httpx.stream("GET", self.url, headers=headers, timeout=DEADLINE) as response:
            response.raise_for_status()
            for chunk in response.iter_raw(_CHUNK):
                body += chunk
                if len(body) > MAX_ANSWER:
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
