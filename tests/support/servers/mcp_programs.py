"""MCP servers for tests: real programs, and the engine's view of them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from turnwise.effects.mcp.server import McpServer
from turnwise.effects.mcp.servers import McpServers
from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.performers import execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.messages import ToolResult
from turnwise.states.values.questions import UserQuestion

from ..pictures import SampleFiles
from ..tools import tool_context

EVERYTHING = Path(__file__).parents[2] / "fixtures" / "mcp"
"""The folder of the SDK's example server that has a tool for each feature of the protocol."""

PROGRAM = Path(__file__).parent / "mcp_server.py"

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
        """Have the server begin silently (`silent`), not end by itself (`lingering`), know only the newest version of
        the protocol (`newest`), or begin with a child and a grandchild that ignore SIGTERM (`fertile`)."""
        (self.folder / name).touch()

    def family(self) -> list[int]:
        """Return the ids of the server, its child and its grandchild."""
        written = self.folder / "family"
        return [int(pid) for pid in written.read_text().split()] if written.exists() else []

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
    registry: ToolRegistry,
    name: str,
    show: Callable[[str], None] = lambda line: None,
    context: ToolContext | None = None,
    **arguments: Any,
) -> ToolResult:
    """Call a tool, and return its result."""
    tool = registry.find(name)
    assert tool is not None, name
    given = tool_context(show) if context is None else context
    result = await execute(tool, json.dumps(arguments), given, files=SampleFiles())
    assert isinstance(result, ToolResult)
    return result


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return when this holds. Fails after so many seconds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs. One that has ended may wait for somebody to take note of it."""
    try:
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def everything_over_http(port: int) -> Iterator[str]:
    """The address of the SDK's example server, while it runs at this port of 127.0.0.1."""
    command = [sys.executable, str(EVERYTHING / "everything_server.py"), "--port", str(port), "--log-level", "ERROR"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "the example server ended"
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def everything_over_stdio(**settings: Any) -> McpServer:
    """Return the settings to start the SDK's example server as a program."""
    program = "from everything_server import mcp; mcp.run()"
    return McpServer(command=sys.executable, args=["-c", program], cwd=EVERYTHING, **settings)


@dataclass(frozen=True)
class AnsweringContext(ToolContext):
    """The context of a call whose user answers at once. `replies` gives the answer to a question by its text; without
    one the user does what `otherwise` says."""

    replies: Callable[[str], str | list[str]] | None = None
    otherwise: Literal["declined", "unanswered"] = "declined"
    asked: list[UserQuestion] = field(default_factory=list)

    async def ask(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Any:
        """Note the questions, and return the answers."""
        texts = [question.question for question in questions if isinstance(question, UserQuestion)]
        self.asked.extend(question for question in questions if isinstance(question, UserQuestion))
        if self.replies is None:
            return SimpleNamespace(action=self.otherwise, answers={}, annotations={})
        answers = {text: self.replies(text) for text in texts}
        return SimpleNamespace(action="answered", answers=answers, annotations={})


def answering(replies: Callable[[str], str | list[str]] | None, **more: Any) -> AnsweringContext:
    """Return the context of a call whose user answers so."""
    return AnsweringContext("c", "c/3", "call_2_0", lambda line: None, replies=replies, **more)
