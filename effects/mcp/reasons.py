"""Says why a server cannot be reached, without what it sent or what was sent to it."""

from __future__ import annotations

import httpx2
import mcp_types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from .server import McpServer

_ENDED = "its program ended before it answered; what it printed is logged by turnwise.mcp, at the level DEBUG"


def reason_of(error: BaseException, server: McpServer, status: int | None) -> str:
    """Why the connection failed, as a part of a sentence. `status` is the last HTTP status that refused a request, or
    None. `Pure.`"""
    match error := _first(error):
        case OSError() if not isinstance(error, TimeoutError):
            return _why_not_started(error, server)
        case TimeoutError():
            return f"it did not answer within {server.connect_timeout:g} s"
        case httpx2.ConnectError():
            return "nothing answers at its address"
        case MCPError():
            return _why_refused(error, server, status)
        case ValidationError():
            return "it answers with what the protocol does not allow"
        case _:
            return type(error).__name__


def _why_not_started(error: OSError, server: McpServer) -> str:
    match error:
        case FileNotFoundError() if server.cwd is not None and error.filename == str(server.cwd):
            return f"there is no folder {server.cwd}"
        case FileNotFoundError():
            return f"there is no program called {server.command}"
        case PermissionError():
            return f"{server.command} cannot be started"
        case _:
            return type(error).__name__


def _why_refused(error: MCPError, server: McpServer, status: int | None) -> str:
    if server.command is not None and error.code == mcp_types.CONNECTION_CLOSED:
        return _ENDED
    if status is not None:
        return f"it answered with the HTTP status {status}"
    return f"it answered with the error {error.code}"


def refuses_version(error: BaseException) -> bool:
    """Whether the server knows none of the versions from before 2026, or not their handshake. `Pure.`"""
    first = _first(error)
    refusals = (mcp_types.UNSUPPORTED_PROTOCOL_VERSION, mcp_types.METHOD_NOT_FOUND)
    return isinstance(first, MCPError) and first.code in refusals


def _first(error: BaseException) -> BaseException:
    """The error itself, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
