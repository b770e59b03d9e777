"""Changes of the conversation itself: its tools, its title and what the application notes about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from turnwise import ConfigurationError, Engine, InvalidInput, ModelRequest, Policy, Profile, Refused, tool
from turnwise.persistence.opening import open_store
from turnwise.states import DetailsChanged, ToolsChanged
from turnwise.testing import FunctionLlm, call, reply

from ..support.engine_scenarios import Gate


@tool(crash="pure")
def look() -> str:
    """Look."""
    return "seen"


@tool(crash="pure")
def listen() -> str:
    """Listen."""
    return "heard"


class Watching:
    """A model that notes which tools it was offered. At "Look" it calls a tool first, once the gate is open."""

    def __init__(self) -> None:
        self.offered: list[list[str]] = []
        self.gate = Gate()
        self.llm = FunctionLlm(self.answer)

    async def answer(self, request: ModelRequest) -> Any:
        """Note the tools, and answer."""
        self.offered.append(sorted(each["function"]["name"] for each in request.tools))
        if request.messages[-1]["content"] == "Look":
            await self.gate()
            return call("look")
        return reply("Done.")


def changes(conversation_events: Any) -> list[tuple[Any, int]]:
    """Return the changes of tools in a log."""
    events = [entry.event for entry in conversation_events]
    return [(event.tools, event.from_turn) for event in events if isinstance(event, ToolsChanged)]


class TestTools:
    """`set_tools` chooses among the tools of the engine, from the next turn on."""

    async def test_the_next_turn_has_other_tools(self, database: Path) -> None:
        """And so have those after it, also in the next process; None stands for all."""
        model = Watching()
        async with Engine.open(database, model=model.llm, tools=[look, listen]) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await conversation.set_tools(["listen"])
            await conversation.send("Hello")
        async with Engine.open(database, model=model.llm, tools=[look, listen]) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.send("Hello")
            await conversation.set_tools([])
            await conversation.send("Hello")
            await conversation.set_tools(None)
            await conversation.send("Hello")
            events = await conversation.events()

        assert model.offered == [["listen", "look"], ["listen"], ["listen"], [], ["listen", "look"]]
        assert changes(events) == [(("listen",), 2), ((), 4), (None, 5)]

    async def test_a_turn_under_way_keeps_its_tools(self, database: Path) -> None:
        """The change is stored at once, and counts from the turn after it."""
        model = Watching()
        async with Engine.open(database, model=model.llm, tools=[look, listen]) as engine:
            conversation = await engine.create()
            sending = asyncio.ensure_future(conversation.send("Look"))
            await model.gate.arrived.wait()
            await conversation.set_tools([listen])
            model.gate.opened.set()
            turn = await sending
            await conversation.send("Hello")

        assert turn.reply == "Done."
        assert model.offered == [["listen", "look"], ["listen", "look"], ["listen"]]

    async def test_a_turn_that_begins_meanwhile_keeps_its_tools(self, database: Path) -> None:
        """The change is made again, for the turn after it."""
        model = Watching()
        async with Engine.open(database, model=model.llm, tools=[look, listen]) as engine:
            conversation = await engine.create()
            await asyncio.gather(
                conversation.send("Hello", wait=False), *(conversation.set_tools(["listen"]) for _ in range(3))
            )
            await conversation.wait()
            await conversation.send("Hello")

            assert {from_turn for _, from_turn in changes(await conversation.events())} == {2}
        assert model.offered == [["listen", "look"], ["listen"]]

    async def test_a_turn_that_another_engine_began_is_respected(self) -> None:
        """The engine learns of it when it stores the change."""
        store, model = await open_store("sqlite://"), Watching()
        async with (
            Engine.open(store=store, model=model.llm, tools=[look, listen]) as one,
            Engine.open(store=store, model=model.llm, tools=[look, listen]) as other,
        ):
            here = await one.create()
            there = await other.get(here.id)
            for _ in range(3):
                await there.send("Hello")

            await here.set_tools(["listen"])

            assert changes(await here.events()) == [(("listen",), 4)]
        await store.close()

    @pytest.mark.parametrize("bad", [["nothing"], ["look", "nothing"], "look", {"look": 1}, 7, [7]])
    async def test_a_tool_that_the_engine_does_not_have_is_named(self, database: Path, bad: Any) -> None:
        """Nothing changes."""
        async with Engine.open(database, model=Watching().llm, tools=[look, listen]) as engine:
            conversation = await engine.create()

            with pytest.raises(ConfigurationError):
                await conversation.set_tools(bad)

            assert len(await conversation.events()) == 1

    async def test_a_closed_conversation_takes_no_change(self, database: Path) -> None:
        """Neither of its tools nor of its details."""
        async with Engine.open(database, model=Watching().llm, tools=[look]) as engine:
            conversation = await engine.create()
            await conversation.close()

            for asking in (
                conversation.set_tools(["look"]),
                conversation.set_title("Dinner"),
                conversation.set_metadata({}),
            ):
                with pytest.raises(Refused) as refused:
                    await asking
                assert refused.value.code == "closed"


class TestRepeats:
    """A change that was made is not checked again when it is repeated."""

    async def test_by_an_engine_that_could_not_make_it(self, database: Path) -> None:
        """It no longer has the tool, nor the model; another request under the same id is still an error."""
        policy = Policy(profiles=(Profile(name="quiet", tools=("listen",)),))
        async with Engine.open(database, model=Watching().llm, tools=[look, listen]) as engine:
            conversation = await engine.create()
            await conversation.set_policy(policy, request_id="policy")
            await conversation.set_tools(["listen"], request_id="tools")
        async with Engine.open(database, model=Watching().llm, tools=[look]) as engine:
            again = await engine.get(conversation.id)
            for asking in (
                again.set_policy(policy, request_id="policy"),
                again.set_tools(["listen"], request_id="tools"),
            ):
                await asking
            for failing in (
                again.set_policy(policy, request_id="tools"),
                again.set_tools(["listen"], request_id="policy"),
            ):
                with pytest.raises(Refused) as refused:
                    await failing
                assert refused.value.code == "event_id_reused"
            with pytest.raises(ConfigurationError):
                await again.set_tools(["listen"], request_id="new")

            assert len(await again.events()) == 3


class TestDetails:
    """The title and the metadata are stored, and what is not given stays."""

    async def test_they_are_replaced_one_by_one(self, database: Path) -> None:
        """Also during a turn, and they survive the process."""
        async with Engine.open(database, model=Watching().llm, tools=[look]) as engine:
            conversation = await engine.create()
            await conversation.set_title("Dinner")
            await conversation.set_metadata({"table": 4, "guests": ["Ada", "Bo"]})
            await conversation.set_title("Lunch")
        async with Engine.open(database, model=Watching().llm, tools=[look]) as engine:
            (summary,) = await engine.list()

        assert (summary.title, summary.metadata) == ("Lunch", {"table": 4, "guests": ["Ada", "Bo"]})

    async def test_a_handle_reads_what_it_can_change(self, database: Path) -> None:
        """Its tools, its title and its metadata are there without a look into the list, also in a new process."""
        async with Engine.open(database, model=Watching().llm, tools=[look, listen]) as engine:
            plain = await engine.create()
            assert (plain.tools, plain.owner, plain.title, plain.metadata) == (None, None, None, {})
            conversation = await engine.create(tools=["look"], owner="ada", title="Dinner", metadata={"guests": ["Bo"]})
            assert (conversation.tools, conversation.title) == (("look",), "Dinner")
            await conversation.set_tools([listen])
            await conversation.set_title(" ")
            conversation.metadata["guests"].append("Cy")  # a copy
        async with Engine.open(database, model=Watching().llm, tools=[look, listen]) as engine:
            again = await engine.get(conversation.id)

        assert (again.tools, again.owner, again.title, again.metadata) == (("listen",), "ada", None, {"guests": ["Bo"]})

    def test_so_does_a_blocking_one(self) -> None:
        """The same names, without an event loop."""
        with Engine.open_blocking("sqlite://", tools=[look]) as engine:
            conversation = engine.create(tools=[look], owner="ada", metadata={"table": 4})
            conversation.set_title("Dinner")

            found = (conversation.tools, conversation.owner, conversation.title, conversation.metadata)

        assert found == (("look",), "ada", "Dinner", {"table": 4})

    async def test_a_title_that_is_too_long_is_refused(self, database: Path) -> None:
        """In words that a person who typed it understands."""
        async with Engine.open(database, model=Watching().llm) as engine:
            conversation = await engine.create()
            for asking in (conversation.set_title("x" * 1_001), engine.create(title="x" * 1_001)):
                with pytest.raises(InvalidInput) as refused:
                    await asking
                assert refused.value.sentence == "title: String should have at most 1000 characters."


class TestMarks:
    """A host finds by its marks what it has made for itself; nobody else can set or remove one."""

    MARK: ClassVar = {"turnwise.completion": "stateless"}

    async def test_they_stand_in_the_metadata_and_stay(self, database: Path) -> None:
        """New metadata leaves them, whether it repeats them or not, and a list finds them."""
        async with Engine.open(database, model=Watching().llm) as engine:
            marked = await engine.create(marks={"completion": "stateless"}, metadata={"table": 4})
            await engine.create()
            await marked.set_metadata({"table": 5})
            await marked.set_metadata({**marked.metadata, "guests": 2})
            found = await engine.list(metadata=self.MARK)

        assert [summary.metadata for summary in found] == [{**self.MARK, "table": 5, "guests": 2}]

    async def test_nobody_else_sets_them(self, database: Path) -> None:
        """Not when a conversation is created, nor by a change, as a method or as an event; nor another value."""
        async with Engine.open(database, model=Watching().llm) as engine:
            plain, marked = await engine.create(), await engine.create(marks={"completion": "stateless"})
            event = DetailsChanged(event_id="1", at=engine.now(), metadata=self.MARK)
            for asking in (
                engine.create(metadata=self.MARK),
                engine.create(metadata={"turnwise.": 1}),
                plain.set_metadata(self.MARK),
                plain.dispatch(event),
                marked.set_metadata({"turnwise.completion": "kept"}),
            ):
                with pytest.raises(InvalidInput) as refused:
                    await asking
                assert refused.value.sentence == "metadata: Names that begin with turnwise. are reserved."

            assert len(await engine.list(metadata=self.MARK)) == 1

    async def test_such_a_conversation_is_not_copied(self, database: Path) -> None:
        """A copy would be taken for one that the host made, and be removed with those."""
        async with Engine.open(database, model=Watching().llm) as engine:
            marked = await engine.create(marks={"completion": "stateless"})
            with pytest.raises(InvalidInput, match="cannot be forked"):
                await marked.fork()

            assert len(await engine.list()) == 1
