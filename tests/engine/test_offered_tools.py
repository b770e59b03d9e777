"""What an engine says of itself to programs: its models, tools and channels, and whether it is open."""

from __future__ import annotations

import asyncio
import json

import pytest

from turnwise import Engine, StoreError, tool
from turnwise.testing import FunctionLlm, RecordingChannel, reply


@tool
async def find_table(cuisine: str, party: int = 2) -> str:
    """Look for a free table."""
    return cuisine


def engine_of_two_models() -> Engine:
    """An engine with two models to fall back on each other, and two tools."""
    one, two = (FunctionLlm(lambda _: reply("Hi."), name=name) for name in ("one", "two"))
    return Engine.open("sqlite://", model=one, fallback_models=[two], tools=[find_table, "ask_user_question"])


class TestWhatIsOffered:
    """The names are those that `create` takes."""

    async def test_each_name_can_be_chosen(self) -> None:
        """The first model is the one that is asked by default."""
        async with engine_of_two_models() as engine:
            assert engine.model_names == ("one", "two")
            assert engine.tool_names == ("find_table", "ask_user_question")
            for name in engine.model_names:
                assert (await engine.create(model=name, tools=engine.tool_names)).policy.models[0].name == name

    async def test_a_tool_is_described(self) -> None:
        """As a model reads it, and as JSON."""
        found, asks = engine_of_two_models().tools

        assert (found.name, found.description) == ("find_table", "Look for a free table.")
        assert found.parameters["properties"].keys() == {"cuisine", "party"}
        assert asks.description
        assert json.loads(json.dumps(found.data)) == found.data

    async def test_an_engine_without_tools_has_none(self) -> None:
        """It has its model all the same, also before it is opened."""
        engine = Engine.open("sqlite://")

        assert (engine.model_names, engine.tools, engine.tool_names) == (("rehearsal",), (), ())

    async def test_the_channels_are_named(self) -> None:
        """In the order in which they were given; most engines that people read through a page have none."""
        channels = [RecordingChannel(name="one"), RecordingChannel(name="two")]

        assert Engine.open("sqlite://", channels=channels).channel_names == ("one", "two")
        assert Engine.open("sqlite://").channel_names == ()
        with Engine.open_blocking("sqlite://", channels=channels) as engine:
            assert engine.channel_names == ("one", "two")


class TestIsOpen:
    """Whether whoever is handed an engine has to open it."""

    async def test_from_the_end_of_opening_to_the_beginning_of_closing(self) -> None:
        """It is not open while it opens, and not while it closes."""
        engine = engine_of_two_models()
        seen = [engine.is_open]
        opening = asyncio.ensure_future(engine.__aenter__())
        await asyncio.sleep(0)
        seen.append(engine.is_open)
        await opening
        seen.append(engine.is_open)
        closing = asyncio.ensure_future(engine.close())
        await asyncio.sleep(0)
        seen.append(engine.is_open)
        await closing
        seen.append(engine.is_open)

        assert seen == [False, False, True, False, False]

    async def test_one_that_could_not_be_opened_is_not_open(self, tmp_path: object) -> None:
        """The database is a folder."""
        engine = Engine.open(str(tmp_path))

        with pytest.raises(StoreError):
            await engine

        assert not engine.is_open

    def test_without_an_event_loop(self) -> None:
        """The blocking engine says the same, also when it is closed."""
        with Engine.open_blocking("sqlite://", tools=[find_table]) as engine:
            assert engine.is_open
            assert (engine.model_names, engine.tool_names) == (("rehearsal",), ("find_table",))

        assert not engine.is_open
