"""Tools of servers and applications over litellm and a real socket: none of them fails the turns of the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, Policy, Retry, tool

from ..effects.schemas.test_schemas import ODD, TEXT, has
from ..support.engine_scenarios import results
from ..support.servers.mcp_programs import Program, listed
from ..support.servers.openai_server import Body, OpenAiServer, calls, says
from .test_litellm import model_at

ONCE = Policy(retry=Retry(attempts=1))
ALL = [listed("good", has(a=TEXT)), *(listed(f"odd{n}", schema) for n, schema in enumerate(ODD.values()))]


def offered(body: Body) -> list[str]:
    """Return the names of the tools in a request."""
    return [one["function"]["name"] for one in body.get("tools", [])]


@tool(parameters=has(**{"$filter": TEXT, "list of": {"type": "array", "items": has(**{"my key": TEXT})}}))
def search(**arguments: Any) -> str:
    """Search."""
    return json.dumps(arguments)


def many(count: int) -> Sequence[Any]:
    """Return this many tools."""
    return [tool(lambda: "", name=f"tool{n}", description=f"Tool {n}.") for n in range(count)]


class TestOdd:
    """What servers list."""

    @pytest.mark.slow
    async def test_every_odd_tool_is_offered_beside_a_good_one(self, database: Path, tmp_path: Path) -> None:
        """In one request, which the strictest provider takes."""
        server = Program(tmp_path / "s", ALL).server()
        async with (
            OpenAiServer([says("Fine.")]) as provider,
            Engine.open(database, model=model_at(provider), mcps={"s": server}, policy=ONCE) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Fine."
        assert len(offered(provider.requests[0])) == len(ALL)

    @pytest.mark.parametrize("encoded", [0, 1, 2])
    async def test_names_of_properties_come_back(self, encoded: int, database: Path) -> None:
        """A call is checked, stored and run under the properties' own names, also if its arguments were encoded more
        than once."""
        written: Any = {"filter": "a", "list_of": [{"my_key": "b"}]}
        for _ in range(encoded):
            written = json.dumps(written)
        async with (
            OpenAiServer([calls(("search", written)), says("Found.")]) as provider,
            Engine.open(database, model=model_at(provider), tools=[search], policy=ONCE) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Hi")
            (result,) = results(await conversation.transcript())

        assert json.loads(result) == {"$filter": "a", "list of": [{"my key": "b"}]}


class TestLeftOut:
    """What cannot be offered is told."""

    async def test_too_many(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The first ones are offered, also in the list in the system message, and one warning tells the others."""
        caplog.set_level(logging.WARNING, "turnwise.tools")
        async with (
            OpenAiServer([says("One."), says("Two.")]) as provider,
            Engine.open(database, model=model_at(provider), tools=many(131), policy=ONCE) as engine,
        ):
            conversation = await engine.create()
            for text in ("Hi", "Hi again"):
                await conversation.send(text)

        assert [offered(body) for body in provider.requests] == [[f"tool{n}" for n in range(128)]] * 2
        assert "tool128" not in json.dumps(provider.requests)
        assert len(caplog.records) == 1
        assert "The tool tool130 is left out" in caplog.text

    @pytest.mark.slow
    async def test_the_check_tells_them(self, tmp_path: Path) -> None:
        """A sentence for each tool, those of servers too."""
        bad = listed("bad", {"type": "object", "$ref": "https://example.com/x"})
        server = Program(tmp_path / "s", [listed("good"), bad]).server()
        async with (
            OpenAiServer() as provider,
            Engine.open("sqlite://", model=model_at(provider), tools=many(128), mcps={"s": server}) as engine,
        ):
            told = await engine.check()

        assert told == (
            "A tool of s is left out: The schema of s:bad refers to https://example.com/x, which is not in it.",
            "The tool s:good is left out if all are offered together: a request holds at most 128 tools.",
        )

    async def test_the_check_tells_nothing_if_all_are_offered(self) -> None:
        """And raises for what stands in the way of every turn."""
        async with OpenAiServer() as provider:
            assert await Engine.open("sqlite://", model=model_at(provider), tools=[search]).check() == ()
        with pytest.raises(ConfigurationError):
            await Engine.open("sqlite://", model="nobody/knows").check()
