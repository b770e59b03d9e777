"""The limits of the HTTP host, which keep one client from using up the server."""

from __future__ import annotations

from dataclasses import dataclass


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
