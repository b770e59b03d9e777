"""MCP servers for tests: real programs, and the engine's view of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnwise.effects.mcp.server import McpServer
from turnwise.effects.mcp.servers import McpServers
from turnwise.effects.tools.execution import execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.messages import ToolResult

from .tools import tool_context

PROGRAM = Path(__file__).parent / "servers" / "mcp_server.py"

Listed = dict[str, Any]
"""A tool as a server lists it."""


def listed(name: str, schema: dict[str, Any] | None = None, **more: Any) -> Listed:
    """Return a tool as a server lists it. Without a schema it takes anything."""
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


class Program:
    """The server `mcp_server.py` with these tools, in a folder of its own."""

    def __init__(self, folder: Path, tools: Sequence[str | Listed] = ("echo", "pid")) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.offer(*tools)

    def offer(self, *tools: str | Listed) -> None:
        """List these tools from now on. The server tells it after its next call."""
        written = [listed(tool) if isinstance(tool, str) else tool for tool in tools]
        (self.folder / "tools.json").write_text(json.dumps(written))

    def mark(self, name: str) -> None:
        """Have the server begin silently (`silent`), or not end by itself (`lingering`)."""
        (self.folder / name).touch()

    def received(self, method: str) -> list[Any]:
        """Return the parameters of each message with this method that the server has received."""
        lines = (self.folder / "received.jsonl").read_text().splitlines()
        return [message.get("params") for message in map(json.loads, lines) if message.get("method") == method]

    def server(self, **settings: Any) -> McpServer:
        """Return the settings to start it with."""
        return McpServer(command=sys.executable, args=["-I", str(PROGRAM), str(self.folder)], **settings)


@asynccontextmanager
async def opened(**servers: McpServer) -> AsyncIterator[ToolRegistry]:
    """The registry of an engine with these servers, while they are connected."""
    source = McpServers(servers)
    await source.open()
    try:
        yield ToolRegistry([], [source])
    finally:
        await source.close()


async def call(
    registry: ToolRegistry, name: str, show: Callable[[str], None] = lambda line: None, **arguments: Any
) -> ToolResult:
    """Call a tool, and return its result."""
    tool = registry.find(name)
    assert tool is not None, name
    result = await execute(tool, json.dumps(arguments), tool_context(show))
    assert isinstance(result, ToolResult)
    return result


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return when this holds. Fails after so many seconds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
