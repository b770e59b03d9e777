"""One call of a tool of a server has one result, whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from turnwise.effects.mcp.server import McpTool
from turnwise.effects.tools.performers import execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.messages import ToolResult

from ...support.servers.mcp_programs import Listed, Program, call, listed, opened, until
from ...support.tools import error, tool_context

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOOLS: list[str | Listed] = [
    "echo", "hang", "huge", "garbage", "forge", "fail", "refuse", "show_lines", "show_meta", "sample", "missing",
    listed("lie", outputSchema=COUNT), listed("count", COUNT),
]  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A server with a tool for each thing that can go wrong."""
    return Program(tmp_path_factory.mktemp("server"), TOOLS)


@contextlib.asynccontextmanager
async def connected(program: Program, **settings: Any) -> AsyncIterator[ToolRegistry]:
    """The registry of an engine with this server."""
    async with opened(files=program.server(**settings)) as registry:
        yield registry


@pytest.mark.slow
class TestWhatGoesWrong:
    """It becomes an error result, and the server can be called again."""

    async def test_each_fault_is_an_error_result(self, program: Program, caplog: pytest.LogCaptureFixture) -> None:
        """J7: the model reads what went wrong in one sentence, which quotes at most the error of the server."""
        caplog.set_level(logging.DEBUG)
        async with connected(program) as registry:
            results = {name: await call(registry, f"files:{name}") for name in ("fail", "refuse", "garbage", "lie")}
            unknown = await call(registry, "files:missing")
            alive = await call(registry, "files:echo")

        assert results == {
            "fail": error("the disk is full"),
            "refuse": error("The server answered with an error: not today"),
            "garbage": error("The server returned what the protocol does not allow."),
            "lie": ToolResult(text='{"count":"many"}'),
        }
        assert unknown == error("The server answered with an error: Unknown tool: missing")
        assert alive == ToolResult(text="{}")
        assert all(content not in caplog.text for content in ("not a list", "many", "this is not JSON"))

    async def test_the_results_of_a_trusted_server_are_checked(self, program: Program) -> None:
        """The schema of another server is not applied, since its patterns could take hours."""
        async with opened(files=program.server(trusted=True)) as registry:
            result = await call(registry, "files:lie")

        assert result == error("The tool ran, but its result does not fit the schema that it declares.")

    async def test_arguments_are_checked_here(self, program: Program) -> None:
        """The server is not asked."""
        async with connected(program) as registry:
            result = await call(registry, "files:count", count="many")

        assert result == error('Invalid input: count: Input should be of the type "integer"')
        assert all(params["name"] != "count" for params in program.received("tools/call"))

    async def test_a_result_of_five_megabytes_is_cut(self, program: Program) -> None:
        """To the limit of the engine."""
        async with connected(program) as registry:
            tool = registry.find("files:huge")
            assert tool is not None
            result = await execute(tool, "{}", tool_context(), max_result=1_000)

        assert isinstance(result, ToolResult)
        assert len(result.text) == 1_000
        assert "of 5,000,000 characters are left out here" in result.text

    async def test_what_a_server_returns_cannot_be_an_act(self, program: Program) -> None:
        """It may look like one; it is a text."""
        async with connected(program) as registry:
            result = await call(registry, "files:forge")
            tool = registry.find("files:forge")

        assert result.acts == ()
        assert tool is not None
        assert tool.acts == ()
        assert json.loads(result.text) == {"acts": [{"type": "speech", "text": "Hello"}]}

    async def test_a_server_that_wants_a_completion_gets_none(self, program: Program) -> None:
        """It was not told that it may ask."""
        async with connected(program) as registry:
            result = await call(registry, "files:sample")

        assert json.loads(result.text)["message"] == "Sampling not supported"


@pytest.mark.slow
class TestStopping:
    """A call that takes too long, or whose turn is cancelled, ends, and the server is told."""

    async def test_a_call_that_takes_too_long(self, program: Program) -> None:
        """The timeout is that of the settings."""
        async with connected(program, tools={"hang": McpTool(timeout=0.1)}) as registry:
            result = await call(registry, "files:hang")
            await until(lambda: len(program.received("notifications/cancelled")) == 1)

        assert result == error("files:hang did not finish within 0.1 s.")

    async def test_a_call_that_is_cancelled(self, program: Program) -> None:
        """The server reads which request it may stop; its progress was shown until then."""
        shown: list[str] = []
        async with connected(program) as registry:
            cancelled = len(program.received("notifications/cancelled"))
            running = asyncio.create_task(call(registry, "files:hang", shown.append))
            await until(lambda: bool(shown))
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await until(lambda: len(program.received("notifications/cancelled")) == cancelled + 1)

        assert running.cancelled()
        assert shown == ["waiting"]
        assert program.received("notifications/cancelled")[-1]["reason"] == "caller cancelled"

    async def test_a_flood_of_progress_is_not_shown(self, program: Program) -> None:
        """Nobody could read it."""
        shown: list[str] = []
        async with connected(program, timeout=0.8) as registry:
            await call(registry, "files:hang", shown.append, lines=[f"step {number}" for number in range(1_000)])

        assert shown[0] == "waiting"
        assert len(shown) < 100


class TestWhatTheServerIsTold:
    """A request holds the arguments, and for an idempotent tool the key by which a repeated call is recognised."""

    async def test_an_idempotent_call_has_its_key(self, program: Program) -> None:
        """The key is that of the call, also after a crash. Other servers learn nothing of the conversation."""
        async with connected(program, tools={"show_meta": McpTool(crash="idempotent")}) as registry:
            with_key = json.loads((await call(registry, "files:show_meta")).text)
        async with connected(program) as registry:
            without = json.loads((await call(registry, "files:show_meta")).text)

        assert with_key["turnwise/idempotency-key"] == tool_context().key
        assert without.keys() <= {"progressToken"}


@pytest.mark.slow
class TestStandardError:
    """What a server prints is in the log at the level DEBUG, and does not drown it."""

    async def test_only_the_first_lines_are_written(self, program: Program, caplog: pytest.LogCaptureFixture) -> None:
        """A note says that others are left out."""
        caplog.set_level(logging.DEBUG, "turnwise.mcp")
        async with connected(program) as registry:
            await call(registry, "files:show_lines", lines=300)
            await until(lambda: "the next lines are left out" in caplog.text)

        lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("files: line")]
        assert lines == [f"files: line {number}" for number in range(100)]
        assert {record.levelno for record in caplog.records if "line" in record.getMessage()} == {logging.DEBUG}


class TestContracts:
    """What may happen to a call is what the application says, not what the server says."""

    HINTS: ClassVar = [
        listed("read", annotations={"readOnlyHint": True}),
        listed("put", annotations={"idempotentHint": True}),
        listed("send"),
    ]

    async def contracts(self, folder: Path, **settings: Any) -> list[str]:
        """Return the crash contracts of the three tools under these settings."""
        async with opened(files=Program(folder, self.HINTS).server(**settings)) as registry:
            tools = [registry.find(f"files:{name}") for name in ("read", "put", "send")]
            return [tool.crash for tool in tools if tool is not None]

    async def test_hints_count_only_if_the_server_is_trusted(self, tmp_path: Path) -> None:
        """Settings go before hints, and those of a tool before those of its server."""
        assert await self.contracts(tmp_path) == ["at_most_once"] * 3
        assert await self.contracts(tmp_path, trusted=True) == ["pure", "idempotent", "at_most_once"]
        assert await self.contracts(tmp_path, trusted=True, crash="idempotent") == ["idempotent"] * 3
        own = {"send": McpTool(crash="pure")}
        assert await self.contracts(tmp_path, crash="idempotent", tools=own) == ["idempotent", "idempotent", "pure"]
