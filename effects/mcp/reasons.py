"""Says why a server cannot be reached, without what it sent or what was sent to it."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError

from .server import McpServer


def reason_of(error: BaseException, server: McpServer) -> str:
    """Why the connection failed, as a part of a sentence. `Pure.`"""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case FileNotFoundError():
            return f"there is no program called {server.command}"
        case PermissionError():
            return f"{server.command} cannot be started"
        case TimeoutError():
            return f"it did not answer within {server.connect_timeout:g} s"
        case MCPError():
            return f"it answered with the error {error.code}"
        case _:
            return f"{type(error).__name__}"
