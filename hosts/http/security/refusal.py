"""How a guard refuses a request that has not reached an endpoint."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from ..problems import HttpError, ProblemResponse

POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed (RFC 6455, section 7.4.1)."""


async def refuse(error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with a problem. A WebSocket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
    else:
        await ProblemResponse(error.problem, error.headers)(scope, receive, send)
