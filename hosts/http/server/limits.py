"""The limits of the server, which hold before a request is complete and after a response has begun."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    """How many clients there may be, how long the server waits for each, and how long it takes to stop."""

    connections: int = 500
    """How many connections there may be at once. Chosen so that a process with the usual limit of 1,024 open files has
    some left for the database."""

    head_bytes: int = 16_384
    """The largest head of a request: its first line and its headers."""

    headers: int = 100
    """How many headers a request may have. A browser sends about twenty."""

    head_seconds: float = 15.0
    """How long a client may take to send the head of a request."""

    linger_seconds: float = 5.0
    """How long the server reads on, and drops, what a client still sends when its request was refused. Without it the
    client would see a broken connection in place of the refusal."""

    send_seconds: float = 30.0
    """How long the server waits for a client that does not read."""

    engine_seconds: float = 20.0
    """How long the engine may take to close when the server stops: it tries once more to deliver what was said."""

    stream_seconds: float = 2.0
    """How long the connections may take to end after that."""
