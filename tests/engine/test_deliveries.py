"""What is said to the user arrives: at least once, in order, also when a channel is down or the process dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import unmarked
from turnwise import Conversation, Delivery, Engine, EngineClosed, Speech, presets, tool
from turnwise.effects import dispatcher
from turnwise.effects.channels import delivery
from turnwise.persistence.errors import Damaged
from turnwise.persistence.maintenance.doctor import examine, repair
from turnwise.persistence.opening import open_store
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states.policy import SpeechRules
from turnwise.testing import ManualClock, RecordingChannel, ScriptedLlm, call, calls, reply
from turnwise.testing.doubles import FunctionLlm

from ..support.databases import BOTH_STORES, Database, call_for, change
from ..support.engine_scenarios import Gate, Watcher, talk, until

pytestmark = BOTH_STORES


class Line:
    """A channel that can fail."""

    def __init__(self, name: str = "line") -> None:
        self.down = True
        self.channel = RecordingChannel(self._check, name=name)

    def _check(self, delivery: Delivery) -> None:
        if self.down:
            raise ConnectionError("the line is down")


@asynccontextmanager
async def talking(
    database: Database, *texts: str, clock: ManualClock, channels: list[Any], ends: bool = True
) -> AsyncIterator[Conversation]:
    """Return a conversation in which the agent has said these texts."""
    llm = ScriptedLlm([calls(*(call("talk", text=text) for text in texts)), *([reply("…")] if ends else [])])
    async with Engine.open(database, model=llm, tools=[talk], channels=channels, clock=clock) as engine:
        conversation = await engine.create(policy=presets.talk())
        await conversation.send("Hi")
        yield conversation


async def still_to_deliver(database: Database) -> list[tuple[str, int]]:
    """Return the rows of the outbox: the target, and the number of failed attempts."""
    store = await open_store(database, read_only=True)
    try:
        return [(one.target, one.attempts) for one in await store.outbox(await store.ids())]
    finally:
        await store.close()


class TestChannelsThatAreDown:
    """A channel that fails is tried again, and delays only its own deliveries."""

    async def test_it_is_tried_again_in_order_and_the_others_hear_at_once(self, database: Database) -> None:
        """S20, B2: first in, first out for each channel; the turn and other channels do not wait."""
        clock, line, whole = ManualClock(), Line(), RecordingChannel()

        async with talking(database, "a", "b", clock=clock, channels=[line.channel, whole]) as conversation:
            assert whole.texts == ["a", "b"]
            assert (line.channel.texts, len(line.channel.failed)) == ([], 1)
            assert conversation.state.type == "idle"
            await clock.until_asleep()
            line.down = False
            await clock.advance(1)
            await until(lambda: line.channel.texts == ["a", "b"])

        assert await still_to_deliver(database) == []
        assert [delivery.key for delivery in line.channel.deliveries] == [one.key for one in whole.deliveries]

    async def test_it_is_tried_later_each_time_and_each_failure_is_told(self, database: Database) -> None:
        """B4: watchers see `delivery_failed`; the waits double, up to a minute."""
        clock, line = ManualClock(), Line()

        async with talking(database, "a", clock=clock, channels=[line.channel]) as conversation:
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            waits = []
            for attempts in range(2, 10):
                await clock.until_asleep()
                due = clock.sleepers[0]
                waits.append((due - clock.now()).total_seconds())
                await clock.advance_to(due)
                await until(lambda attempts=attempts: len(line.channel.failed) == attempts)
            await watcher.until("delivery_failed", 8)
            await watcher.stop()

        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
        assert await still_to_deliver(database) == [("line", 9)]

    async def test_each_receipt_is_told(self, database: Database) -> None:
        """Watchers see the result of each attempt on each channel, after the delivery itself and as it happens."""
        clock, line, whole = ManualClock(), Line(), RecordingChannel(name="whole")
        opening = Engine.open(database, model=ScriptedLlm([reply("a")]), channels=[line.channel, whole], clock=clock)

        async with opening as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hi")
            await clock.until_asleep()
            line.down = False
            await clock.advance(1)
            await watcher.until("delivered", 2)
            await watcher.stop()

        told = [(one.type, one.data) for one in watcher.updates if one.type.startswith("deliver")]
        key = told[1][1]["key"]
        assert unmarked(key) == f"{conversation.id}/2"
        this = {"turn": 1, "ordinal": 1, "key": key}
        failed = {**this, "channel": "line", "sentence": "The channel line failed on a delivery."}
        assert told[0] == ("delivery", {"turn": 1, "ordinal": 1, "text": "a"})
        assert sorted(told[1:3], key=str) == [("delivered", {**this, "channel": "whole"}), ("delivery_failed", failed)]
        assert told[3:] == [("delivered", {**this, "channel": "line"})]

    async def test_it_may_be_down_for_weeks(self, database: Database) -> None:
        """S20: after any number of failed attempts the next one comes within a minute."""
        clock, line = ManualClock(), Line()
        async with talking(database, "a", clock=clock, channels=[line.channel]):
            pass
        change(database, "UPDATE outbox SET attempts = 100000")

        async with Engine.open(database, model=ScriptedLlm([]), channels=[line.channel], clock=clock):
            await clock.until_asleep()
            await clock.advance(60)
            await until(lambda: len(line.channel.failed) == 2)
            await clock.until_asleep()
            line.down = False
            await clock.advance(60)
            await until(lambda: line.channel.texts == ["a"])

    async def test_a_plain_function_delivers_once(self, database: Database) -> None:
        """A channel whose `deliver` is a plain function has delivered when it returns; it is not called again."""

        texts: list[str] = []

        class Plain:
            name = "plain"

            def deliver(self, delivery: Delivery) -> None:
                texts.append(delivery.text)

        clock = ManualClock()
        async with talking(database, "a", clock=clock, channels=[Plain()]):
            await clock.advance(100)

        assert texts == ["a"]
        assert await still_to_deliver(database) == []

    async def test_its_name_is_read_once(self, database: Database) -> None:
        """The name of a channel is read once; changing it later changes nothing."""

        class Renamed(RecordingChannel):
            names = iter(range(100))

            @property
            def name(self) -> str:
                return f"line {next(self.names)}"

            @name.setter
            def name(self, name: str) -> None:
                pass

        channel = Renamed()
        async with talking(database, "a", clock=ManualClock(), channels=[channel]):
            pass

        assert channel.texts == ["a"]
        assert await still_to_deliver(database) == []

    async def test_nothing_is_stored_where_there_are_no_channels(self, database: Database) -> None:
        """Without channels there are no rows."""
        async with talking(database, "a", clock=ManualClock(), channels=[]):
            pass

        assert await still_to_deliver(database) == []


class TestWaiting:
    """Tools wait for the first attempt of earlier deliveries; turns do not."""

    async def test_a_model_is_asked_while_a_delivery_is_under_way(self, database: Database) -> None:
        """S20: a channel that is slow or hangs delays neither this turn nor the next."""
        gate = Gate()
        channel = RecordingChannel(lambda delivery: gate())

        async with Engine.open(database, model=ScriptedLlm([reply("a"), reply("b")]), channels=[channel]) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await gate.arrived.wait()
            turn = await conversation.send("Again")
            assert (turn.reply, channel.texts) == ("b", [])
            gate.opened.set()

        assert channel.texts == ["a", "b"]

    async def test_a_tool_waits(self, database: Database) -> None:
        """B2: also one of the next turn."""
        gate, ran = Gate(), asyncio.Event()
        channel = RecordingChannel(lambda delivery: gate())

        @tool
        async def work() -> str:
            """Do something."""
            ran.set()
            return "done"

        llm = ScriptedLlm([reply("a"), call("work"), reply("b")])
        async with Engine.open(database, model=llm, tools=[work], channels=[channel]) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            sending = asyncio.ensure_future(conversation.send("Again"))
            await until(lambda: len(llm.requests) == 2 and conversation.state.type == "tool_executing")
            assert not ran.is_set()
            gate.opened.set()
            assert (await sending).reply == "b"


class TestTheNextProcess:
    """Deliveries that had not arrived when a process ended are made by the next one."""

    async def test_it_arrives_after_a_restart_once_and_under_the_same_key(self, database: Database) -> None:
        """S13, B9: each is made once after the restart; acknowledged deliveries are not repeated."""
        clock, line, whole = ManualClock(), Line(), RecordingChannel()
        async with talking(database, "a", "b", clock=clock, channels=[line.channel, whole]):
            pass
        keys = [delivery.key for delivery in whole.deliveries]
        line.down = False

        channels = [line.channel, whole]
        async with Engine.open(database, model=ScriptedLlm([]), channels=channels, clock=clock):
            await clock.until_asleep()
            assert line.channel.texts == []
            await clock.advance(1)
            await until(lambda: len(line.channel.texts) == 2)

        assert [delivery.key for delivery in line.channel.deliveries] == keys
        assert [(one.text, one.turn, one.ordinal) for one in line.channel.deliveries] == [("a", 1, 1), ("b", 1, 2)]
        assert len(whole.deliveries) == 2
        assert await still_to_deliver(database) == []

    async def test_a_clock_that_was_set_back_does_not_hold_it_up(self, database_file: Path) -> None:
        """The next attempt is never further ahead than the longest wait between two attempts."""
        clock, line = ManualClock(), Line()
        async with talking(database_file, "a", clock=clock, channels=[line.channel]):
            pass
        line.down = False
        set_back = ManualClock(clock.now() - timedelta(hours=1))

        async with Engine.open(database_file, model=ScriptedLlm([]), channels=[line.channel], clock=set_back):
            await set_back.until_asleep()
            await set_back.advance(60)
            await until(lambda: line.channel.texts == ["a"])

    @pytest.mark.parametrize("damage", ["next_attempt = 'soon'", "attempts = 'x'", "seq = 'x'"])
    async def test_what_cannot_be_read_is_said_in_a_sentence_and_can_be_mended(
        self, damage: str, database: Database
    ) -> None:
        """A damaged outbox raises Damaged and no other error; nothing is guessed."""
        async with talking(database, "a", clock=ManualClock(), channels=[Line().channel]):
            pass
        change(database, f"UPDATE outbox SET {damage}")

        with pytest.raises(Damaged, match="What is to be delivered cannot be read"):
            await Engine.open(database, model=ScriptedLlm([]))

        store = await SqliteStore.open(database)
        assert await repair(store, (await examine(store)).findings)
        await store.close()
        async with Engine.open(database, model=ScriptedLlm([])):
            pass

    async def test_an_attempt_that_was_under_way_is_made_again(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A delivery without a receipt is repeated, because nobody knows whether it arrived."""
        monkeypatch.setattr(dispatcher, "SENDING_GRACE", 0)  # as long as a process has that is told to end
        monkeypatch.setattr(delivery, "CLOSING_TIMEOUT", 0)
        gate, clock = Gate(), ManualClock()
        stuck = RecordingChannel(lambda delivery: gate(), name="line")
        llm = ScriptedLlm([call("talk", text="a"), reply("…")])
        engine = await Engine.open(database, model=llm, tools=[talk], channels=[stuck], clock=clock)
        conversation = await engine.create(policy=presets.talk())
        sending = asyncio.ensure_future(conversation.send("Hi"))
        await gate.arrived.wait()
        await engine.close()
        await asyncio.gather(sending, return_exceptions=True)

        line = RecordingChannel(name="line")
        model = ScriptedLlm([reply("…")])
        async with Engine.open(database, model=model, tools=[talk], channels=[line], clock=clock) as engine:
            await until(lambda: line.texts == ["a"])

    async def test_the_old_comes_before_what_the_turn_says_next(self, database: Database) -> None:
        """A turn that goes on after a crash delivers after what it had left."""
        clock, line = ManualClock(), Line()
        answers = iter([call("talk", text="a")])

        async def model(request: Any) -> Any:
            answer = next(answers, None)
            if answer is None:
                await asyncio.Event().wait()
            return answer

        llm = FunctionLlm(model, name="scripted")
        engine = await Engine.open(database, model=llm, tools=[talk], channels=[line.channel], clock=clock)
        conversation = await engine.create(policy=presets.talk())
        await conversation.send("Hi", wait=False)
        await until(lambda: len(llm.requests) == 2)
        await engine.close()
        line.down = False

        script = ScriptedLlm([call("talk", text="b"), reply("…")])
        async with Engine.open(database, model=script, tools=[talk], channels=[line.channel], clock=clock) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            await clock.advance(1)
            await until(lambda: line.channel.texts == ["a", "b"])

    async def test_a_closed_conversation_still_delivers(self, database: Database) -> None:
        """P31: the deliveries of a closed conversation still arrive."""
        clock, line = ManualClock(), Line()
        async with talking(database, "a", clock=clock, channels=[line.channel]) as conversation:
            await conversation.close()
        line.down = False

        async with Engine.open(database, model=ScriptedLlm([]), channels=[line.channel], clock=clock):
            await clock.until_asleep()
            await clock.advance(1)
            await until(lambda: line.channel.texts == ["a"])

    async def test_a_channel_that_is_gone_is_reported_and_its_deliveries_stay(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        """This is not an error: a later engine may have that channel again."""
        clock, line = ManualClock(), Line()
        async with talking(database, "a", clock=clock, channels=[line.channel]) as conversation:
            conversation_id = conversation.id

        async with Engine.open(database, model=ScriptedLlm([]), channels=[RecordingChannel()], clock=clock) as engine:
            await call_for(engine, conversation_id)
            what = "still has a delivery for the channel line, which this engine does not have"
            await until(lambda: what in caplog.text)

        assert await still_to_deliver(database) == [("line", 1)]

    async def test_what_is_deleted_is_not_delivered(self, database: Database) -> None:
        """Deleting a conversation deletes its deliveries, also those that wait for another attempt."""
        clock, line = ManualClock(), Line()
        llm = ScriptedLlm([call("talk", text="a"), reply("…")])
        async with Engine.open(database, model=llm, tools=[talk], channels=[line.channel], clock=clock) as engine:
            conversation = await engine.create(policy=presets.talk())
            await conversation.send("Hi")
            await clock.until_asleep()
            await engine.delete(conversation.id)
            line.down = False
            await clock.advance(100)
            assert clock.sleepers == ()

        assert line.channel.texts == []
        assert await still_to_deliver(database) == []


@tool(crash="idempotent", acts=("speech",))
async def say_last(text: str) -> Speech:
    """Speak to the user at the end of the turn."""
    return Speech(text=text)


EACH = presets.talk().replace(speech=SpeechRules(keep="each", empty="deliver"))
"""Rules under which one step delivers several texts."""


def says_three() -> ScriptedLlm:
    """Return a model that speaks three times at the end of its turn."""
    return ScriptedLlm([calls(*(call("say_last", text=text) for text in "abc")), reply("…")])


class TestConversationsThatAreOver:
    """Their deliveries still go out, and the engine waits for them."""

    @staticmethod
    @asynccontextmanager
    async def over(
        database: Database, gate: Gate, channel: RecordingChannel
    ) -> AsyncIterator[tuple[Engine, Conversation]]:
        """A conversation that is closed while the first of three deliveries waits at the gate."""
        async with Engine.open(database, model=says_three(), tools=[say_last], channels=[channel]) as engine:
            conversation = await engine.create(policy=EACH)
            await conversation.send("Hi")
            await gate.arrived.wait()
            await conversation.close()
            yield engine, conversation

    async def test_all_of_it_is_tried_before_the_engine_closes(self, database: Database) -> None:
        """P31: deliveries queued behind a slow one still go out."""
        gate = Gate()

        async def deliver(delivery: Delivery) -> None:
            await gate()
            await asyncio.sleep(0.02)

        channel = RecordingChannel(deliver)
        async with self.over(database, gate, channel):
            gate.opened.set()

        assert channel.texts == ["a", "b", "c"]
        assert await still_to_deliver(database) == []

    async def test_a_program_can_wait_for_all_of_it(self, database: Database) -> None:
        """`delivered` waits for them."""
        gate = Gate()
        channel = RecordingChannel(lambda delivery: gate())

        async with self.over(database, gate, channel) as (engine, _):
            asyncio.get_running_loop().call_soon(gate.opened.set)
            await engine.delivered()
            assert channel.texts == ["a", "b", "c"]

    async def test_none_of_it_goes_out_once_it_is_deleted(self, database: Database) -> None:
        """Deliveries of a deleted conversation do not go out."""
        gate, arrived = Gate(), list[str]()

        async def deliver(delivery: Delivery) -> None:
            arrived.append(delivery.text)
            await gate()

        async with self.over(database, gate, RecordingChannel(deliver)) as (engine, conversation):
            await engine.delete(conversation.id)
            gate.opened.set()
            await engine.delivered()

        assert arrived == ["a"]

    async def test_one_that_another_engine_has_moved_counts_too(self) -> None:
        """The engine that committed a step delivers it, whichever engine goes on with the conversation."""
        store = await open_store("sqlite://")
        gate = Gate()
        channel = RecordingChannel(lambda delivery: gate())
        opening = Engine.open(store=store, model=says_three(), tools=[say_last], channels=[channel])
        async with opening as engine, Engine.open(store=store, model=ScriptedLlm([reply("…")])) as other:
            conversation = await engine.create(policy=EACH)
            await conversation.send("Hi")
            await gate.arrived.wait()
            await (await other.get(conversation.id)).send("And?")
            await engine.refresh(conversation.id)
            asyncio.get_running_loop().call_soon(gate.opened.set)
            await engine.delivered()
            assert channel.texts == ["a", "b", "c"]
        await store.close()


class TestLeaving:
    """A program that ends right after a turn: its deliveries go out first."""

    @staticmethod
    def slow(name: str = "slow") -> RecordingChannel:
        """A channel that takes a while, like a network."""
        return RecordingChannel(lambda delivery: asyncio.sleep(0.05), name=name)

    @pytest.mark.parametrize("url", ["sqlite://", "dinner.db"])
    async def test_closing_waits_for_the_first_attempt(self, url: str, tmp_path: Path) -> None:
        """S20: also for what is said at the very end of a turn, and for a database in memory."""
        channel, url = self.slow(), url if url == "sqlite://" else str(tmp_path / url)

        async with Engine.open(url, model=ScriptedLlm([reply("a"), reply("b")]), channels=[channel]) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await conversation.send("Again")

        assert channel.texts == ["a", "b"]

    async def test_a_program_can_wait_for_it_and_go_on(self, database: Database) -> None:
        """`delivered` returns once every delivery was tried; it does not wait for those that failed."""
        clock, line, channel = ManualClock(), Line(), self.slow()
        opening = Engine.open(database, model=ScriptedLlm([reply("a")]), channels=[line.channel, channel], clock=clock)

        async with opening as engine:
            await engine.delivered()  # nothing was said yet
            await (await engine.create()).send("Hi")
            await engine.delivered()
            assert (channel.texts, len(line.channel.failed)) == (["a"], 1)
            await engine.delivered()

        assert await still_to_deliver(database) == [("line", 1)]
        with pytest.raises(EngineClosed):
            await engine.delivered()

    async def test_what_stood_behind_a_failure_is_tried_as_well_once_that_has_arrived(
        self, database_file: Path
    ) -> None:
        """A delivery queued behind a failing one is tried once the channel works, also while the engine closes."""
        clock, line, gate = ManualClock(), Line(), Gate()

        async def deliver(delivery: Delivery) -> None:
            line._check(delivery)
            if delivery.text == "b":
                await gate()

        channel = RecordingChannel(deliver, name="line")
        async with talking(database_file, "a", "b", clock=clock, channels=[channel]):
            await clock.until_asleep()
            line.down = False
            await clock.advance(1)
            await gate.arrived.wait()
            asyncio.get_running_loop().call_later(0.02, gate.opened.set)

        assert channel.texts == ["a", "b"]
        assert await still_to_deliver(database_file) == []

    async def test_what_was_never_tried_is_tried_before_a_short_visit_ends(self, database_file: Path) -> None:
        """Deliveries left by a crash go out in the next process, however short; failed ones keep their place."""
        clock, line = ManualClock(), Line()
        async with talking(database_file, "a", "b", clock=clock, channels=[line.channel]):
            pass
        assert await still_to_deliver(database_file) == [("line", 1), ("line", 0)]
        change(database_file, "UPDATE outbox SET attempts = 0, next_attempt = NULL WHERE attempts = 1")

        channel = self.slow("line")
        async with Engine.open(database_file, model=ScriptedLlm([]), channels=[channel], clock=clock):
            pass

        assert channel.texts == ["a", "b"]
        assert await still_to_deliver(database_file) == []

    async def test_a_channel_that_hangs_delays_it_by_its_deadline_only(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A delivery that has not arrived stays in the outbox."""
        monkeypatch.setattr(delivery, "ATTEMPT_TIMEOUT", 0.02)
        hangs, channel = RecordingChannel(lambda delivery: asyncio.Event().wait(), name="hangs"), self.slow()

        async with Engine.open(database, model=ScriptedLlm([reply("a")]), channels=[hangs, channel]) as engine:
            await (await engine.create()).send("Hi")

        assert channel.texts == []  # it takes longer than that as well
        assert sorted(await still_to_deliver(database)) == [("hangs", 1), ("slow", 1)]

    async def test_what_is_said_in_the_step_that_closes_a_conversation_goes_out(self, database: Database) -> None:
        """S8: a tool that says something now, and is not to be stopped, is the last to end."""
        begun, go_on, channel = asyncio.Event(), asyncio.Event(), RecordingChannel()

        @tool(acts=("speech",), exclusive=True)
        async def announce() -> Speech:
            """Say goodbye."""
            begun.set()
            with suppress(asyncio.CancelledError):
                await go_on.wait()
            return Speech(text="Goodbye.", when="now")

        async with Engine.open(
            database, model=ScriptedLlm([call("announce")]), tools=[announce], channels=[channel]
        ) as engine:
            conversation = await engine.create()
            sending = asyncio.ensure_future(conversation.send("Hi"))
            await begun.wait()
            await conversation.close()
            turn = await sending

        assert (turn.status, turn.deliveries, channel.texts) == ("cancelled", ("Goodbye.",), ["Goodbye."])

    async def test_nothing_of_a_deleted_conversation_goes_out_any_more(self, database: Database) -> None:
        """Deliveries of a deleted conversation do not go out."""
        gate = Gate()
        channel = RecordingChannel(lambda delivery: gate())
        llm = ScriptedLlm([calls(call("talk", text="a"), call("talk", text="b")), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[channel]) as engine:
            conversation = await engine.create(policy=presets.talk())
            sending = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            await engine.delete(conversation.id)
            gate.opened.set()
            await asyncio.gather(sending, return_exceptions=True)
            await engine.delivered()

        assert channel.texts == []
