"""Conversations and engines that end, and what is left of them."""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from turnwise import (
    Engine,
    EngineClosed,
    Refused,
    StoreError,
    tool,
)
from turnwise.effects.tools.tool import AnyTool
from turnwise.engine.registry import RECENT
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, reply

from ..support.engine_scenarios import Gate, Watcher, answers_after, until


class TestClosing:
    """The end of a conversation, of an engine, of a process."""

    async def test_a_closed_conversation_takes_nothing_and_can_be_read(self, database: Path) -> None:
        """P31: closed: requests are refused, watchers end, and what was said can still be read."""
        async with Engine.open(database, model=ScriptedLlm([reply("Bye.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.close()
            await asyncio.wait_for(watcher.collecting, 60)

            with pytest.raises(Refused) as refused:
                await conversation.send("Hello?")
            assert refused.value.code == "closed"
            assert [message.text for message in await conversation.transcript()] == ["Hi", "Bye."]
            assert [summary.state for summary in await engine.list()] == ["closed"]

    async def test_a_closed_conversation_ends_with_its_engine(self, database: Path) -> None:
        """A handle raises EngineClosed afterwards, also for a conversation that was closed before."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()
            await conversation.close()

        with pytest.raises(EngineClosed):
            await conversation.send("Hello?")

    async def test_closing_stops_what_runs(self, database: Path) -> None:
        """P31: a conversation closed while a tool runs cancels it first."""
        gate = Gate()

        @tool
        async def waits() -> None:
            """Wait."""
            await gate()

        async with Engine.open(database, model=ScriptedLlm([call("waits")]), tools=[waits]) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Go"))
            await gate.arrived.wait()
            await conversation.close()

            assert conversation.state.type == "closed"
            assert (await turn).status == "cancelled"

    @pytest.mark.slow
    async def test_the_memory_of_a_closed_conversation_is_freed(self, database: Path) -> None:
        """P31: once nobody holds a handle, neither a task nor a loop of it remains."""
        async with Engine.open(database, model=ScriptedLlm([reply("Bye.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await conversation.close()
            del conversation
            await until(lambda: gc.collect() >= 0 and engine.in_memory == 0)
            await until(lambda: len(asyncio.all_tasks()) == 1)  # the engine may still look for schedules in its store

    @pytest.mark.slow
    async def test_memory_does_not_grow_with_the_database(self, database: Path) -> None:
        """Of conversations at rest without a handle, only the most recent ones stay in memory."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            ids = [(await engine.create()).id for _ in range(RECENT + 10)]
            for conversation_id in ids:
                await (await engine.get(conversation_id)).send("Hi")
            await until(lambda: gc.collect() >= 0 and engine.in_memory <= RECENT)

            assert engine.in_memory == RECENT

    async def test_an_engine_closes_in_the_middle_of_a_turn_and_keeps_what_was_stored(self, database: Path) -> None:
        """P31: whatever was acknowledged is there when it is opened again; callers that wait get EngineClosed."""
        gate = Gate()

        engine = await Engine.open(database, model=FunctionLlm(answers_after(gate, "never")))
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi"))
        await gate.arrived.wait()
        await engine.close()
        await engine.close()

        with pytest.raises(EngineClosed):
            await turn
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")], name="function")) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            assert [message.text for message in await again.transcript()] == ["Hi", "Hello."]


def payment(begun: asyncio.Event, says: str = "paid", *, stubborn: bool = True) -> AnyTool:
    """A tool that runs until it is cancelled; a stubborn one then finishes."""

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        with suppress(asyncio.CancelledError) if stubborn else nullcontext():
            await asyncio.Event().wait()
        await asyncio.sleep(0.05)
        return says

    return pay


class TestWhatFinishesAllTheSame:
    """A tool that finishes although its engine closes: its result is stored."""

    @pytest.mark.parametrize("says", ["paid", ""])
    async def test_its_result_is_kept(self, says: str, database: Path) -> None:
        """P28: a payment that was made is not in doubt: the next process shows its result to the model; nothing that
        follows from it starts in this one."""
        begun = asyncio.Event()
        pay = payment(begun, says)
        llm = ScriptedLlm([call("pay")])
        engine = await Engine.open(database, model=llm, tools=[pay])
        conversation = await engine.create()
        sending = asyncio.ensure_future(conversation.send("Pay, please"))
        await begun.wait()
        await engine.close()
        with pytest.raises(EngineClosed):
            await sending

        model = ScriptedLlm([reply("It is paid.")])
        async with Engine.open(database, model=model, tools=[pay]) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            assert [message.text for message in await again.transcript()][2:] == [says, "It is paid."]

    async def test_one_that_is_cut_off_is_in_doubt(self, database: Path) -> None:
        """A tool that stops is in doubt, as after a crash."""
        begun = asyncio.Event()
        pay = payment(begun, stubborn=False)
        engine = await Engine.open(database, model=ScriptedLlm([call("pay")]), tools=[pay])
        conversation = await engine.create()
        await conversation.send("Pay, please", wait=False)
        await begun.wait()
        await engine.close()

        async with Engine.open(database, model=ScriptedLlm([]), tools=[pay]) as engine:
            assert [summary.state for summary in await engine.list()] == ["in_doubt"]

    async def test_of_a_deleted_conversation_nothing_is_kept(
        self, database: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If the disk takes nothing either, the result is lost and the engine closes without an error."""
        begun = asyncio.Event()
        pay = payment(begun)
        async with Engine.open(database, model=ScriptedLlm([call("pay")]), tools=[pay]) as engine:
            conversation = await engine.create()
            await conversation.send("Pay, please", wait=False)
            await begun.wait()
            await engine.delete(conversation.id)

        assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


class TestClosingWhileSomethingBegins:
    """An engine may be closed at any moment; afterwards nothing runs, and the file is unlocked."""

    @pytest.mark.parametrize("steps", [*range(0, 24, 3), 1000])
    async def test_an_engine_that_is_still_opening(self, steps: int, database: Path) -> None:
        """P31: opening raises EngineClosed if the engine is closed meanwhile."""
        engine = Engine.open(database, model=ScriptedLlm([]))
        opening = asyncio.ensure_future(engine.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        await engine.close()

        (opened,) = await asyncio.gather(opening, return_exceptions=True)
        assert opened is engine or isinstance(opened, EngineClosed)
        with pytest.raises(EngineClosed):
            await engine.list()
        async with Engine.open(database, model=ScriptedLlm([])):
            pass

    @pytest.mark.parametrize("steps", range(6))
    async def test_a_conversation_that_is_being_read(self, steps: int, database: Path) -> None:
        """P31: a load that is under way raises EngineClosed; nobody waits for ever."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation_id = (await engine.create()).id
        engine = await Engine.open(database, model=FunctionLlm(lambda _: reply("Hello."), name="scripted"))

        async def say_something() -> None:
            await (await engine.get(conversation_id)).send("Hi")

        saying = asyncio.ensure_future(say_something())
        for _ in range(steps):
            await asyncio.sleep(0)
        await engine.close()

        with pytest.raises((EngineClosed, StoreError)):
            await asyncio.wait_for(saying, 60)

    async def test_a_conversation_that_is_being_made(self, database: Path) -> None:
        """P31: a conversation that is created meanwhile may be stored, but nobody gets a handle on it."""
        engine = await Engine.open(database, model=ScriptedLlm([]))
        making = asyncio.ensure_future(engine.create())
        await asyncio.sleep(0)
        await engine.close()

        with pytest.raises(EngineClosed):
            await making

    async def test_an_engine_that_is_open_may_be_entered(self) -> None:
        """An engine is not opened a second time: one in memory would be another database."""
        engine = await Engine.open("sqlite://", model=ScriptedLlm([]))
        conversation = await engine.create()

        async with engine:
            assert [summary.id for summary in await engine.list()] == [conversation.id]

        with pytest.raises(EngineClosed):
            await engine.list()
