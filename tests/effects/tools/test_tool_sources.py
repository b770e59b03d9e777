"""Tools that come and go while an engine is open."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from turnwise.effects.model.port import ModelCall
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.schema_arguments import SchemaArguments
from turnwise.effects.tools.tool import AnyTool, Tool, tool
from turnwise.states.openai_writing import legal_name


class ColonTool(Tool[..., Any]):
    """A tool with a colon in its name."""

    names: ClassVar[re.Pattern[str]] = re.compile(r"\w+:\w+")


def served(name: str, schema: dict[str, Any] | None = None) -> AnyTool:
    """A tool of a server, which returns its arguments."""

    def echo(**arguments: Any) -> dict[str, Any]:
        return arguments

    arguments = SchemaArguments(echo, {"type": "object"} if schema is None else schema)
    return ColonTool(name=name, description="", arguments=arguments, function=echo)


class Source:
    """A source whose tools the test changes."""

    def __init__(self, *tools: AnyTool) -> None:
        self.version = 0
        self._tools = tools

    def change(self, *tools: AnyTool) -> None:
        """Offer these tools from now on."""
        self._tools = tools
        self.version += 1

    def tools(self) -> Iterable[AnyTool]:
        """Return the tools."""
        return self._tools

    def approver_of(self, name: str) -> None:
        """Nobody must approve anything."""

    def owns(self, name: str) -> bool:
        """Whether the name begins with that of a server of this source."""
        return name.startswith(("x:", "y:"))


@tool
def look() -> str:
    """Look."""
    return "seen"


def offered(registry: ToolRegistry, **choices: Any) -> list[str]:
    """Return the names of the tools that a conversation with these choices is offered."""
    allowed = registry.allowed(choices.get("chosen"), choices.get("of_profile"))
    return [definition["function"]["name"] for definition in registry.definitions(allowed)]


class TestVersions:
    """What is known of the tools is that of the current version."""

    def test_tools_come_and_go(self) -> None:
        """They are offered behind those that the engine was opened with."""
        source = Source(served("x:read"))
        registry = ToolRegistry([look], [source])
        before, first = registry.version, offered(registry)

        source.change(served("x:write"), served("y:find"))

        assert first == ["look", "x:read"]
        assert offered(registry) == ["look", "x:write", "y:find"]
        assert registry.version != before
        assert registry.find("x:read") is None

    def test_a_call_is_checked_against_the_schema_of_now(self) -> None:
        """Also if the model was offered another one."""
        source = Source(served("x:read"))
        registry = ToolRegistry([], [source])
        call = ModelCall("p", "x:read", "{}")
        (before,) = registry.resolve_calls(1, [call])
        needs_a_path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        source.change(served("x:read", needs_a_path))

        (after,) = registry.resolve_calls(2, [call])

        assert (before.fault, after.fault) == (None, "Invalid input: path: Field required")


class TestNames:
    """A tool with a name that no provider takes is offered under another name, and found by both."""

    def test_it_is_found_by_the_name_that_providers_accept(self) -> None:
        """The call is stored under its own name."""
        registry = ToolRegistry([], [Source(served("x:read"))])

        (call,) = registry.resolve_calls(1, [ModelCall("p", legal_name("x:read"), "{}")])

        assert (call.name, call.fault) == ("x:read", None)

    def test_two_tools_that_providers_could_not_tell_apart(self, caplog: pytest.LogCaptureFixture) -> None:
        """The application's own tool is kept."""
        taken = legal_name("x:read")
        own = tool(look.function, name=taken)

        registry = ToolRegistry([own], [Source(served("x:read"), served("x:write"))])

        assert offered(registry) == [taken, "x:write"]
        assert registry.find(taken) is own
        assert f"x:read is left out: providers could not tell it from {taken}" in caplog.text

    def test_a_server_may_have_a_tool_called_like_a_built_in_one(self) -> None:
        """Behind the prefix of a server of the application a name means the tool of the server, or none."""
        source = Source(served("x:respond_to_user"))
        registry = ToolRegistry(["respond_to_user"], [source])
        found = registry.find("x:respond_to_user")
        source.change()

        assert found is not None
        assert not found.acts
        assert registry.find("x:respond_to_user") is None
        assert registry.find("z:respond_to_user") is not None

    def test_an_unknown_tool_is_told_the_names_that_the_model_sees(self) -> None:
        """The tools of a server have other names in a request, and a model repeats what it reads."""
        source = Source(served("x:read"), served("x:write"))
        (call,) = ToolRegistry([look], [source]).resolve_calls(1, [ModelCall("p", "write")])

        assert call.fault is not None
        named = call.fault.partition("Known: ")[2].removesuffix(".").split(", ")
        assert sorted(named) == sorted(map(legal_name, ("look", "x:read", "x:write")))

    def test_what_is_away_is_described_as_away(self) -> None:
        """The model reads that the tool may come back."""
        registry = ToolRegistry([look], [Source()])

        (call,) = registry.resolve_calls(1, [ModelCall("p", "x:read", "{}")])

        assert call.fault == "x:read is not available now: its server is not connected, or no longer offers it."


class TestChoices:
    """Which of them a conversation is offered."""

    SOURCE: ClassVar = Source(served("x:read"), served("x:write"), served("y:find"))

    def test_every_profile_allows_them(self) -> None:
        """J9: a profile's list of tools narrows the tools of the application, not those of MCP servers."""
        registry = ToolRegistry([look, "talk"], [self.SOURCE])

        assert offered(registry, of_profile=["look"]) == ["look", "x:read", "x:write", "y:find"]
        assert offered(registry, of_profile=[]) == ["x:read", "x:write", "y:find"]

    def test_a_conversation_chooses_by_name(self) -> None:
        """One tool, or all of a server; what is not chosen is not offered, whatever the profile says."""
        registry = ToolRegistry([look], [self.SOURCE])

        assert offered(registry, chosen=["look", "y:find"]) == ["look", "y:find"]
        assert offered(registry, chosen=["x:*"]) == ["x:read", "x:write"]
        assert offered(registry, chosen=["x:*"], of_profile=["look"]) == ["x:read", "x:write"]
        assert offered(registry, chosen=["look"], of_profile=[]) == []

    def test_all_of_a_server_includes_what_it_offers_later(self) -> None:
        """The choice is stored as it was made."""
        source = Source(served("x:read"))
        registry = ToolRegistry([], [source])
        source.change(served("x:read"), served("x:write"))

        assert offered(registry, chosen=["x:*"]) == ["x:read", "x:write"]

    def test_a_star_means_nothing_where_there_is_no_server(self) -> None:
        """Names are not patterns."""
        registry = ToolRegistry([look], [self.SOURCE])

        assert offered(registry, chosen=["*", "l*", "z:*"]) == []


@pytest.mark.slow
def test_thousands_of_tools_are_looked_up_quickly(caplog: pytest.LogCaptureFixture) -> None:
    """What is known of them is computed once for each version, not for each call."""
    caplog.set_level(logging.WARNING)
    asked = 0

    class Counting(Source):
        def tools(self) -> Iterable[AnyTool]:
            nonlocal asked
            asked += 1
            return super().tools()

    registry = ToolRegistry([], [Counting(*(served(f"x:tool_{number}") for number in range(500)))])

    for number in range(500):
        assert registry.find(legal_name(f"x:tool_{number}")) is not None

    assert asked == 1
