"""What a server lists becomes tools, as far as it can be offered."""

from __future__ import annotations

import time
from typing import Any

import pytest
from mcp_types import Tool as ListedTool

from turnwise.effects.mcp.server import McpServer, McpTool
from turnwise.effects.mcp.tools import MAX_DESCRIPTION, MAX_SCHEMA, ServerTool, tools_of
from turnwise.effects.tools.normalization import InvalidArguments
from turnwise.states.policy import Policy
from turnwise.states.values.messages import ToolResult

from ...support.servers.mcp_programs import Listed, listed

SERVER = McpServer(command="x")


async def nothing(*given: Any, **arguments: Any) -> ToolResult:
    """Stand for the connection."""
    return ToolResult(text="")


def offered(*tools: Listed, server: McpServer = SERVER) -> dict[str, ServerTool]:
    """Return the tools that a server offers which lists these."""
    made = tools_of("files", server, [ListedTool.model_validate(tool) for tool in tools], nothing)
    return {tool.name: tool for tool in made.tools}


class TestOffering:
    """A tool goes to the model as its server describes it."""

    def test_the_schema_is_unchanged(self) -> None:
        """Also what only other programs understand, and the order of the properties."""
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "self": {"type": "string", "x-mcp-header": "Self", "pattern": "^a"},
                "context": {"$ref": "#/$defs/c"},
                "arguments": {"title": "A"},
            },
            "$defs": {"c": {"type": ["integer", "null"], "default": None}},
            "additionalProperties": False,
        }
        tool = offered(listed("read", schema, description="Read."))["files:read"]

        assert tool.definition() == {
            "type": "function",
            "function": {"name": "files:read", "description": "Read.", "parameters": schema},
        }
        assert list(tool.parameters["properties"]) == ["self", "context", "arguments"]
        assert tool.arguments.values('{"context": 3, "self": "b"}') == {"context": 3, "self": "b"}

    def test_what_holds_for_its_calls_is_in_the_settings(self) -> None:
        """Those of the tool go before those of the server."""
        own = {"write": McpTool(approval=False, timeout=5, exclusive=False), "rm": McpTool(enabled=False)}
        server = McpServer(command="x", approval=True, timeout=9, tools=own)
        tools = offered(listed("read"), listed("write"), listed("rm"), server=server)

        assert {name: (tool.timeout, tool.exclusive) for name, tool in tools.items()} == {
            "files:read": (9, True),
            "files:write": (5, False),
        }
        assert [tool.needs_approval("{}", Policy()) for tool in tools.values()] == [True, False]

    def test_who_approves_is_in_the_settings(self) -> None:
        """Where it is said who approves, each call needs approval, except those of a tool that is exempt."""
        own = {"read": McpTool(approval=False), "rm": McpTool(approval_by="operator"), "ls": McpTool(approval=True)}
        server = McpServer(command="x", tools=own)
        strict = McpServer(command="x", tools=own, approval_by="operator")
        listing = [listed(name) for name in ("read", "write", "rm", "ls")]

        def approvals(of: McpServer) -> list[tuple[object, str]]:
            return [(tool.approval, tool.approval_by) for tool in offered(*listing, server=of).values()]

        assert approvals(server) == [(False, "user"), (False, "user"), (True, "operator"), (True, "user")]
        assert approvals(strict) == [(False, "user"), *[(True, "operator")] * 3]

    def test_only_a_server_that_may_ask_has_exclusive_tools(self) -> None:
        """Other calls may run at the same time."""
        assert not offered(listed("read"), server=McpServer(command="x", elicitation=False))["files:read"].exclusive


class TestLeavingOut:
    """What cannot be offered is left out with one warning, and the others are offered."""

    @pytest.mark.parametrize(
        ("tool", "reason"),
        [
            (listed("bad", {"type": "string"}), 'must describe an object: its "type" must be "object"'),
            (listed("bad", {"type": "object", "properties": {"a": {"minimum": "1"}}}), "is not valid at properties"),
            (listed("bad", {"type": "object", "$ref": "https://example.com/schema"}), "which is not in it"),
            (listed("bad", {"type": "object", "title": "a" * MAX_SCHEMA}), "has more than 100,000 characters"),
            (listed("bad\nname"), "cannot be the name of a tool"),
            (listed(""), "cannot be the name of a tool"),
            (listed("a" * 129), "cannot be the name of a tool"),
        ],
    )
    def test_what_is_not_valid(self, tool: Listed, reason: str, caplog: pytest.LogCaptureFixture) -> None:
        """The warning says why."""
        assert list(offered(tool, listed("good"))) == ["files:good"]

        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert reason in record.getMessage()
        assert len(record.getMessage()) < 1_000

    def test_a_name_that_is_listed_twice(self, caplog: pytest.LogCaptureFixture) -> None:
        """The first one is offered."""
        tools = offered(listed("read", description="first"), listed("read", description="second"))

        assert [tool.description for tool in tools.values()] == ["first"]
        assert "files lists the tool files:read twice" in caplog.text

    def test_thousands_of_tools(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first of them are offered."""
        monkeypatch.setattr("turnwise.effects.mcp.tools.MAX_TOOLS", 20)

        tools = offered(*(listed(f"tool {number}") for number in range(5_000)))

        assert list(tools) == [f"files:tool {number}" for number in range(20)]
        assert [record.getMessage() for record in caplog.records] == [
            "files has more than 20 tools; the others are left out"
        ]

    def test_a_huge_description(self) -> None:
        """It is cut."""
        assert len(offered(listed("read", description="a" * 1_000_000))["files:read"].description) == MAX_DESCRIPTION


class TestPatterns:
    """A regular expression of a server that is not trusted is not applied here."""

    SLOW = "(a+)+$"

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"path": {"type": "string", "pattern": SLOW}}},
            {"patternProperties": {SLOW: {}}, "additionalProperties": False},
            {"patternProperties": {SLOW: {}}, "unevaluatedProperties": False},
        ],
    )
    def test_a_pattern_that_would_take_hours(self, schema: dict[str, Any]) -> None:
        """The other keywords are checked."""
        tool = offered(listed("read", {"type": "object", "required": ["path"], **schema}))["files:read"]
        hostile = f'"{"a" * 5_000}!"'
        began = time.process_time()

        tool.arguments.accepted(f'{{"path": {hostile}, {hostile}: 1}}')
        with pytest.raises(InvalidArguments):
            tool.arguments.accepted(f"{{{hostile}: 1}}")

        assert time.process_time() - began < 10

    def test_those_of_a_trusted_server_are(self) -> None:
        """It is a part of the application."""
        trusted = McpServer(command="x", trusted=True)
        schema = {"type": "object", "properties": {"path": {"type": "string", "pattern": "^/"}}}
        tool = offered(listed("read", schema), server=trusted)["files:read"]

        with pytest.raises(InvalidArguments):
            tool.arguments.accepted('{"path": "a"}')
