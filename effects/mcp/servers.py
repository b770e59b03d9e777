"""The MCP servers of an engine: the source of their tools, opened and closed with the engine.

An engine opens although a server is down. The server is logged, its tools are not offered, and it is tried again
until it is there. The SDK takes a second to import, so it is imported by a thread, when an engine with a server
opens.

The SDK logs each message at the level DEBUG, and messages that are not valid as errors. They hold what tools return,
which may be personal, so it is kept from that. What goes wrong with a server is logged here without its content, by
the logger `turnwise.mcp`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...states.errors import ConfigurationError
from ...states.values.messages import Approver
from ...states.values.value import MAX_QUOTED, shortened
from ..tools.tool import AnyTool
from .server import McpServer

if TYPE_CHECKING:
    from .connection import McpConnection


_MAX_OPENING = 10.0
"""The most seconds that an engine waits for its servers when it opens. Slower ones are connected in the background."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class McpServers:
    """The servers of an engine by their names. It is a `ToolSource`.

    Raises ConfigurationError for a name that cannot be that of a server, and if the package `mcp` is missing.
    """

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        for name in servers:
            if not _NAME.fullmatch(name):
                raise ConfigurationError(
                    f"{shortened(name, MAX_QUOTED)} cannot be the name of an MCP server: it takes up to 40 letters, "
                    "digits, _ and -."
                )
        if servers and find_spec("mcp") is None:
            raise ConfigurationError('MCP servers need the package mcp: pip install "turnwise[mcp]".')
        self.version: int = 0
        self._servers = dict(servers)
        self._connections: dict[str, McpConnection] = {}
        self._stopped = asyncio.Event()

    def tools(self) -> Iterable[AnyTool]:
        """Return the tools of the servers that are connected now."""
        return [tool for connection in self._connections.values() for tool in connection.tools]

    def owns(self, name: str) -> bool:
        """Whether this is the name of one of the servers, and of a tool behind it."""
        server, colon, _ = name.partition(":")
        return bool(colon) and server in self._servers

    def approver_of(self, name: str) -> Approver | None:
        """Return who must approve each call of the tool of this name, also while its server is not connected; None if
        nobody must."""
        server, _, tool = name.partition(":")
        return self._servers[server].approver_of(tool) if self.owns(name) else None

    async def open(self) -> None:
        """Begin to connect, and return when every server was tried, or after `_MAX_OPENING` seconds."""
        if not self._servers or self._connections:
            return
        module = await asyncio.to_thread(import_module, f"{__package__}.connection")
        if self._stopped.is_set():
            return
        _keep_sdk_quiet()
        for name, server in self._servers.items():
            self._connections[name] = module.McpConnection(name, server, self._change)
            self._connections[name].start()
        await self._tried(_MAX_OPENING)

    def stop_opening(self) -> None:
        """Have `open` return soon. The connections are to be closed afterwards."""
        self._stopped.set()

    async def close(self) -> None:
        """End all connections, and the programs of their servers. Takes seconds if a server does not end by itself."""
        self.stop_opening()
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(connection.close() for connection in connections.values()))

    async def check(self) -> tuple[str, ...]:
        """Make sure that each server can be reached, and return a sentence for each tool that is left out. Raises
        ConfigurationError."""
        checked = self if self._connections else McpServers(self._servers)
        await checked.open()
        try:
            await checked._tried(max((server.connect_timeout for server in self._servers.values()), default=0))
            for sentence in checked.faults():
                raise ConfigurationError(sentence)
            return checked.left_out
        finally:
            if checked is not self:
                await checked.close()

    @property
    def left_out(self) -> tuple[str, ...]:
        """A sentence for each listed tool that is not offered."""
        return tuple(
            sentence if sentence.endswith(".") else f"{sentence}."
            for connection in self._connections.values()
            for sentence in connection.offered.left_out
        )

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each server that is not connected now."""
        for name, connection in self._connections.items():
            if not connection.is_connected:
                yield f"The MCP server {name} cannot be reached: {connection.failure}."

    async def _tried(self, seconds: float) -> None:
        """Return when every server was tried, after so many seconds, or when opening is to stop."""
        tries = asyncio.ensure_future(self._all_tried())
        stop = asyncio.ensure_future(self._stopped.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {tries, stop}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tries.cancel()
            stop.cancel()

    async def _all_tried(self) -> None:
        for connection in list(self._connections.values()):
            await connection.has_been_tried.wait()

    def _change(self) -> None:
        self.version += 1


_LEVELS = {"mcp": logging.CRITICAL, "client": logging.CRITICAL, "httpx2": logging.WARNING}
"""The loggers of the SDK, and of its HTTP client, which logs addresses."""


def _keep_sdk_quiet() -> None:
    """Set the levels of the SDK's loggers. Those that the application has set stay as they are."""
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
