"""Reads the list of tools of a server, page by page.

The SDK refuses a page as a whole if the protocol does not allow one of its tools. So the schema of such a tool is
repaired before the SDK reads the message; a tool that is not allowed even then is removed, and the others are offered.
"""

from __future__ import annotations

from typing import Any

import mcp_types
from mcp import Client
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from ..logs import performer_logger
from ..wire.repairs import repaired
from .offered_tools import MAX_TOOLS

MAX_PAGES = 100
"""The most pages that are read, so that a server whose list never ends does not hold anybody up."""

_LOGGER = performer_logger("turnwise.mcp")


async def list_tools(client: Client) -> list[mcp_types.Tool]:
    """Return the tools that the server lists; a few more than are offered at most. Raises what the SDK raises."""
    listed: list[mcp_types.Tool] = []
    cursor: str | None = None
    known: set[str | None] = {None, ""}
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += page.tools
        cursor = page.next_cursor
        if cursor in known or len(listed) > MAX_TOOLS:  # no further page, or one that was read before
            break
        known.add(cursor)
    return listed


class ListingFilter:
    """Removes the tools that the protocol does not allow from what the server called `name` lists, and the schemas of
    results unless it `is_trusted`: the SDK applies them, which may take hours. `version` is that of the protocol, and
    None until the connection is made."""

    def __init__(self, name: str, *, is_trusted: bool) -> None:
        self.version: str | None = None
        self._name = name
        self._is_trusted = is_trusted
        self._is_told = False

    def take(self, message: object) -> None:
        """Take what the server answers to any request, and change it if it is a list with such tools."""
        if self.version is None or not isinstance(message, mcp_types.JSONRPCResponse):
            return
        page, tools = message.result, message.result.get("tools")
        if not isinstance(tools, list):
            return
        if not isinstance(page.get("nextCursor"), str):
            page.pop("nextCursor", None)
        for tool in tools if not self._is_trusted else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
        if self._is_allowed(page, tools) or not self._is_allowed(page, []):
            return
        mended = [tool if self._is_allowed(page, [tool]) else _mended(tool) for tool in tools]
        page["tools"] = [tool for tool in mended if self._is_allowed(page, [tool])]
        left_out = len(tools) - len(page["tools"])
        if left_out and not self._is_told:
            _LOGGER.warning("%s lists tools that the protocol does not allow; %d are left out", self._name, left_out)
            self._is_told = True

    def _is_allowed(self, page: dict[str, Any], tools: list[Any]) -> bool:
        """Whether the protocol allows the page with these tools."""
        assert self.version is not None
        try:
            parse_server_result("tools/list", self.version, {**page, "tools": tools})
        except ValidationError:
            return False
        return True


def _mended(tool: Any) -> Any:
    """The tool with what its server means by its schema."""
    if not isinstance(tool, dict):
        return tool
    try:
        return {**tool, "inputSchema": repaired(tool.get("inputSchema"))}
    except RecursionError:
        return tool
