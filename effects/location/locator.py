"""Knows where the user is when a request is built, without making anybody wait for it.

A location seldom changes and may be slow to find out: an outside service may be slow or gone. So it is asked for once
and kept for a while, a request waits for it only briefly, and a failure is a location that is not known.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from ..application_functions import Returned, call_within
from ..clock import Clock
from ..logs import performer_logger
from .ip_lookup import DEADLINE, IpLookup
from .location import UNKNOWN, LocationSource, describe_location

KEPT = timedelta(minutes=10)
"""How long a location is used before it is asked for again: people travel, and computers change networks."""

KEPT_UNKNOWN = timedelta(minutes=1)
"""How long an unknown location is used, so that a service that is gone is not asked for each request."""

WAIT = 1.0
"""Seconds that requests wait for a location, together: one that has not arrived by then delays no further request, and
is used once it is there."""

logger = performer_logger("turnwise.location")


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
