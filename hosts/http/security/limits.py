"""The limits of the HTTP host, which keep one client from using up the server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from starlette.requests import HTTPConnection

from ..problems import HttpError

logger = logging.getLogger("turnwise.http")


@dataclass(frozen=True)
class HttpLimits:
    """How much a client may send, and how long the server waits for one."""

    body_bytes: int = 5_000_000
    """The largest body of a request, in bytes: a message of the greatest length with its images."""

    body_seconds: float = 30.0
    """How long a client may take to send a body."""

    send_seconds: float = 30.0
    """How long a stream waits for a client that does not read, before it is disconnected."""

    keep_alive_seconds: float = 15.0
    """How often a stream sends a comment, so that proxies do not take the connection for an idle one."""

    wrong_tokens: int = 20
    """How many wrong tokens of one client are answered as such within a minute; further ones get 429."""


BURST = 60.0
"""Seconds from the first wrong token of a client until its count begins anew."""

MOST_CLIENTS = 1024
"""How many clients are counted apart from each other. What comes from more of them at once is counted together."""

_OTHERS = "other addresses"


@dataclass
class _Burst:
    """The wrong tokens of a client since a moment."""

    began: float
    count: int = 0


class WrongTokens:
    """Counts the wrong tokens of each client, and says how the next one is refused.

    Nobody is kept out by what others do: the right token is always taken, also from an address that has sent many wrong
    ones, since a whole office or a proxy may share it. What makes guessing hopeless is the length of the token
    (`check_hard_to_guess`); the limit tells a client that retries for ever to stop, and keeps the log short. A burst is
    logged once, when it begins.
    """

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._bursts: dict[str, _Burst] = {}

    def refusal(self, connection: HTTPConnection) -> HttpError:
        """Count a wrong token, and return how it is refused."""
        now = self._now()
        burst = self._burst(_client_of(connection), now)
        burst.count += 1
        if burst.count <= self._most:
            return HttpError("unauthorized", "This is not the token of the server.")
        seconds = max(1, round(burst.began + BURST - now))
        return HttpError("too_many_attempts", headers={"retry-after": str(seconds)})

    def _burst(self, client: str, now: float) -> _Burst:
        """Return the burst of this client that is under way, or one that begins."""
        self._forget_old(now)
        if client not in self._bursts and len(self._bursts) >= MOST_CLIENTS:
            client = _OTHERS
        if client not in self._bursts:
            logger.warning("A wrong token came from %s.", client)
            self._bursts[client] = _Burst(now)
        return self._bursts[client]

    def _forget_old(self, now: float) -> None:
        """Forget bursts that are over. They stand in the order in which they began, so each is looked at once."""
        while self._bursts:
            oldest = next(iter(self._bursts))
            if now - self._bursts[oldest].began < BURST:
                return
            del self._bursts[oldest]


def _client_of(connection: HTTPConnection) -> str:
    """Return the address by which a client is counted. One client may have all addresses of an IPv6 network of 64 bits
    (RFC 6177)."""
    if connection.client is None:
        return "an unknown address"
    try:
        address = ip_address(connection.client.host)
    except ValueError:
        return repr(connection.client.host[:100])
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    return f"{IPv6Address(int(address) >> 64 << 64)}/64" if mapped is None else str(mapped)
