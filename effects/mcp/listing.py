"""Reads the list of tools of a server, page by page."""

from __future__ import annotations

import mcp_types
from mcp import Client

from .offered_tools import MAX_TOOLS

MAX_PAGES = 100
"""The most pages that are read, so that a server whose list never ends does not hold anybody up."""


async def list_tools(client: Client) -> list[mcp_types.Tool]:
    """Return the tools that the server lists; a few more than are offered at most. Raises what the SDK raises."""
    listed: list[mcp_types.Tool] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += page.tools
        cursor = page.next_cursor
        if cursor is None or len(listed) > MAX_TOOLS:
            break
    return listed
