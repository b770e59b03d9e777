"""The HTTP/1.1 parser of one connection, which also limits the head of a request."""

from __future__ import annotations

from typing import Any

import h11

from ..problems import HttpCode
from .limits import ServerLimits

_FAULTS: dict[int, HttpCode] = {431: "headers_too_large", 501: "not_implemented"}


class LimitedConnection(h11.Connection):
    """A connection that remembers why a request is not valid, in `fault`."""

    def __init__(self, limits: ServerLimits) -> None:
        super().__init__(h11.SERVER, limits.head_bytes)
        self.fault: HttpCode = "malformed_request"
        self._limits = limits

    def next_event(self) -> Any:
        """Return the next event. Raises `h11.RemoteProtocolError`, also for a head that has arrived completely but is
        too large: h11 limits only what is incomplete."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request) and self._is_too_large(event):
                raise h11.RemoteProtocolError("The head of the request is too large.", error_status_hint=431)
        except h11.RemoteProtocolError as error:
            self.fault = _FAULTS.get(error.error_status_hint, "malformed_request")
            raise
        return event

    def _is_too_large(self, request: h11.Request) -> bool:
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        return size > self._limits.head_bytes or len(request.headers) > self._limits.headers
