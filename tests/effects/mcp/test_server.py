"""What an application may configure of an MCP server."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from turnwise.effects.mcp.server import McpServer, McpTool

from ...support.cases import holds_for

SECRET = "sk-secret-value"


class TestSettings:
    """A server is a command or an address, and its settings are checked where they are made."""

    def test_a_command_and_its_defaults(self) -> None:
        """A server needs nothing but a command; its tools then run at most once and need no approval."""
        server = McpServer(command="uvx", args=["mcp-server-git"])

        assert (server.timeout, server.connect_timeout, server.approval) == (60.0, 30.0, False)
        assert (server.crash, server.trusted, server.elicitation, dict(server.tools)) == (None, False, True, {})

    def test_tools_are_read_from_plain_data(self) -> None:
        """Settings come from TOML, so each part may be given as a dict."""
        server = McpServer.model_validate({"url": "https://a.example", "tools": {"find": {"crash": "pure"}}})

        assert server.tools == {"find": McpTool(crash="pure")}

    @holds_for(
        ("given", "sentence"),
        [
            ({}, "an MCP server takes either a command or a url"),
            ({"command": "a", "url": "http://b"}, "an MCP server takes either a command or a url"),
            ({"url": "http://b", "args": ["c"]}, "args, env and cwd belong to a command, not to a url"),
            ({"command": "a", "headers": {"b": "c"}}, "headers belong to a url, not to a command"),
            ({"url": "ftp://b"}, "the address of an MCP server begins with http:// or https://"),
            ({"command": ""}, "String should have at least 1 character"),
            ({"command": "a", "timeout": 0}, "Input should be greater than 0"),
            ({"command": "a", "connect_timeout": float("inf")}, "Input should be a finite number"),
            ({"command": "a", "crash": "reconcile"}, "Input should be 'pure', 'idempotent' or 'at_most_once'"),
            ({"command": "a", "tools": {"b": {"crush": "pure"}}}, "Extra inputs are not permitted"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, given: dict[str, object], sentence: str) -> None:
        """One sentence says what is wrong."""
        with pytest.raises(ValidationError) as refused:
            McpServer.model_validate(given)

        assert [error["msg"] for error in refused.value.errors()] == [sentence]

    def test_secrets_stand_neither_in_its_repr_nor_in_errors(self) -> None:
        """Keys are passed by variables, headers and addresses."""
        by_command = McpServer(command="a", env={"KEY": SECRET})
        by_url = McpServer(url=f"https://user:{SECRET}@b.example", headers={"Authorization": SECRET})
        with pytest.raises(ValidationError) as refused:
            McpServer(command="a", headers={"Authorization": SECRET})

        assert SECRET not in f"{by_command!r} {by_url!r} {by_url} {refused.value}"
