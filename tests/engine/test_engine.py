"""The engine over its store: many conversations, full disks, bad configuration, blocking programs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Engine,
    InvalidInput,
    Policy,
    Questions,
    Refused,
    StoreError,
    UnknownConversation,
    presets,
)
from turnwise.persistence.codec import EncodedStep
from turnwise.persistence.errors import Damaged
from turnwise.states import UserCancel, UserMessage
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, failure, reply

from ..support.engine_scenarios import QUESTION, Gate, answers_after, full_disk, until


class TestTheStoreBelow:
    """One database, many conversations."""

    async def test_a_second_engine_on_the_file_is_refused(self, database: Path) -> None:
        """P42: a second engine is refused in one sentence, and the first one goes on."""
        async with Engine.open(database, model=ScriptedLlm([reply("Still here.")])) as engine:
            conversation = await engine.create()

            with pytest.raises(StoreError) as refused:
                await Engine.open(database, model=ScriptedLlm([]))

            assert "\n" not in refused.value.sentence
            assert (await conversation.send("Hi")).reply == "Still here."

    async def test_an_answer_that_cannot_be_stored_at_all_leaves_nobody_waiting(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """P27: a fault in the program: callers that wait get an error, and the conversation goes on once it is loaded
        again."""
        made = EncodedStep.of

        def breaks(event: Any, step: Any) -> EncodedStep:
            if event.type == "llm_response":
                monkeypatch.setattr(EncodedStep, "of", made)
                raise UnicodeEncodeError("utf-8", "", 0, 1, "a fault")
            return made(event, step)

        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Hello."))) as engine:
            conversation = await engine.create()
            monkeypatch.setattr(EncodedStep, "of", breaks)
            with pytest.raises(StoreError, match="ask for the conversation again"):
                await conversation.send("Hi", message_id="m1")
            again = await engine.get(conversation.id)
            turn = await again.send("Hi", message_id="m1")

            assert (turn.reply, turn.number) == ("Hello.", 1)
            assert (await again.replay()).divergence is None

    async def test_an_unknown_conversation(self, database: Path) -> None:
        """Bad input: an unknown id."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            with pytest.raises(UnknownConversation):
                await engine.get("nobody")
            with pytest.raises(UnknownConversation):
                await engine.delete("nobody")

    async def test_delete_really_deletes(self, database: Path) -> None:
        """After a deletion no file holds what was said."""
        async with Engine.open(database, model=ScriptedLlm([reply("Noted.")])) as engine:
            conversation = await engine.create()
            await conversation.send("my secret is xyzzy-4711")
            await engine.delete(conversation.id)

            assert await engine.list() == ()
            with pytest.raises(UnknownConversation):
                await engine.get(conversation.id)
        left = b"".join(path.read_bytes() for path in database.parent.iterdir())
        assert b"xyzzy-4711" not in left

    async def test_conversations_are_listed_newest_first(self, database: Path) -> None:
        """Summaries have an id, a state and the time of the last step."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            first, second = await engine.create(), await engine.create()
            await first.send("Hi")
            listed = await engine.list()

        assert [summary.id for summary in listed] == [first.id, second.id]
        assert listed[0].updated_at > listed[1].updated_at

    async def test_the_list_has_pages_and_filters(self, database: Path) -> None:
        """A page begins after the last conversation of the page before."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            conversations = [await engine.create() for _ in range(5)]
            await conversations[0].close()
            everything = [summary.id for summary in await engine.list()]
            page = await engine.list(limit=2, before=everything[1])
            idle = await engine.list(state="idle")

            assert [summary.id for summary in page] == everything[2:4]
            assert [summary.id for summary in idle] == everything[1:]
            assert await engine.list(owner="anna") == ()
            with pytest.raises(InvalidInput):
                await engine.list(limit=-1)
            with pytest.raises(UnknownConversation):
                await engine.list(before="nobody")

    async def test_conversations_run_side_by_side(self, database: Path) -> None:
        """One conversation handles one event at a time; conversations run concurrently."""

        async def answer(request: Any) -> str:
            await asyncio.sleep(0)
            return f"You said {request.messages[-1]['content']}"

        async with Engine.open(database, model=FunctionLlm(answer)) as engine:
            many = [await engine.create() for _ in range(20)]
            turns = await asyncio.gather(*(c.send(f"I am {n}") for n, c in enumerate(many)))

        assert [turn.reply for turn in turns] == [f"You said I am {n}" for n in range(20)]

    async def test_a_stored_conversation_replays_without_divergence(self, database: Path) -> None:
        """The stored log replays to the same steps."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), failure("authentication"), reply("Ok.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            await conversation.answer({"When?": "6:30 PM"})
            await conversation.retry()
            report = await conversation.replay()

        assert (report.events, report.divergence) == (8, None)

    async def test_other_models_are_adopted_at_rest(self, database: Path) -> None:
        """With other models in the engine, the conversation changes to them, in the log, before its next turn."""
        async with Engine.open(database, model=ScriptedLlm([reply("One.")], name="first")) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")

        async with Engine.open(database, model=ScriptedLlm([reply("Two.")], name="second")) as engine:
            again = await engine.get(conversation.id)
            turn = await again.send("Hi again")
            types = [entry.event.type for entry in await again.events()]
            divergence = (await again.replay()).divergence

        assert turn.reply == "Two."
        assert types[3:5] == ["policy_changed", "user_message"]
        assert divergence is None

    async def test_rules_change_between_turns(self, database: Path) -> None:
        """A policy holds from the next turn on; to set one is refused during a turn."""
        async with Engine.open(database, model=ScriptedLlm([reply("x", finish_reason="length"), reply("")])) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi")
            changed = presets.assistant().model_copy(
                update={"texts": presets.assistant().texts.model_copy(update={"ending": "Nothing comes to mind."})}
            )
            await conversation.set_policy(changed)
            second = await conversation.send("Hi")

        assert first.truncated
        assert (second.status, second.reply) == ("incomplete", "Nothing comes to mind.")


class TestWhenTheDiskFails:
    """P28: memory equals store, the caller gets a typed error, and the conversation goes on afterwards."""

    async def test_a_request_that_cannot_be_stored_is_refused(self, database: Path) -> None:
        """P28: a request that cannot be stored is refused as "storage" and changes nothing; sent again, it works."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            before = conversation.state
            async with full_disk(engine):
                with pytest.raises(Refused) as refused:
                    await conversation.send("Hi", message_id="m1")
                assert conversation.state == before
            turn = await conversation.send("Hi", message_id="m1")

            assert refused.value.code == "storage"
            assert turn.reply == "Hello."
            assert (await conversation.replay()).divergence is None

    async def test_an_answer_that_cannot_be_stored_is_kept_and_tried_again(
        self, database: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """P28: the answer stays at the head of its mailbox, and requests are refused until it is stored."""
        gate = Gate()
        llm = FunctionLlm(answers_after(gate, "Kept."))

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            async with full_disk(engine):
                gate.opened.set()
                await until(lambda: "An answer could not be stored" in caplog.text)
                with pytest.raises(Refused) as refused:
                    await conversation.cancel()
                assert conversation.state.type == "llm_requesting"

            assert refused.value.code == "storage"
            assert (await turn).reply == "Kept."
            assert len(llm.requests) == 1
            assert (await conversation.replay()).divergence is None


class TestConfiguration:
    """Invalid configuration is reported before it is used."""

    def test_a_tool_without_types_is_refused_at_once(self, database: Path) -> None:
        """Bad input: a tool function without types, in one sentence that names it."""

        def guess(what):  # type: ignore[no-untyped-def]
            return what

        with pytest.raises(ConfigurationError) as refused:
            Engine.open(database, model=ScriptedLlm([]), tools=[guess])

        assert "guess" in refused.value.sentence
        assert "what" in refused.value.sentence

    async def test_an_unknown_model_is_found_before_anybody_is_asked(self, database: Path) -> None:
        """Bad input: a model that litellm does not know."""
        async with Engine.open(database, model="no-such-provider/no-such-model") as engine:
            with pytest.raises(ConfigurationError) as refused:
                await engine.check()

        assert "no-such-provider/no-such-model" in refused.value.sentence

    async def test_a_provider_without_a_key_is_found_before_it_is_asked(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bad input: no key for a real provider."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        async with Engine.open(database, model="openai/gpt-4.1-mini") as engine:
            with pytest.raises(ConfigurationError) as refused:
                await engine.check()

        assert "OPENAI_API_KEY" in refused.value.sentence

    async def test_events_of_a_hosts_own_making(self, database: Path) -> None:
        """`dispatch` takes any event and returns its step."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "never"))) as engine:
            conversation = await engine.create()
            at = engine.now()
            step = await conversation.dispatch(UserMessage(event_id="a", at=at, text="Hi"))
            stopped = await conversation.dispatch(UserCancel(event_id="b", at=at))

        assert step.state.type == "llm_requesting"
        assert stopped.state.type == "idle"


class TestWithoutAnEventLoop:
    """The engine without an event loop."""

    def test_the_blocking_engine_is_the_same(self, database: Path) -> None:
        """`open_blocking`: the same calls, without await."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])

        with Engine.open_blocking(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = engine.create(system="You book tables.")
            asked = conversation.send("A table")
            seen = next(iter(conversation.updates()))
            turn = conversation.answer({asked.questions[0].question: "6:30 PM"})

            assert asked.status == "awaiting_user"
            assert seen.type == "snapshot"
            assert turn.reply == "Booked."
            assert conversation.state.type == "idle"
            assert [summary.id for summary in engine.list()] == [conversation.id]

    def test_it_takes_what_the_other_takes(self) -> None:
        """Every parameter of `open`, so that type checkers know them."""
        blocking, other = signature(Engine.open_blocking), signature(Engine.open)

        assert blocking.parameters == other.parameters


class TestADamagedDatabase:
    """A database that cannot be read."""

    async def test_one_damaged_conversation_does_not_hold_up_the_others(self, database: Path) -> None:
        """An engine opens although a conversation cannot be read; reading that one raises Damaged with one sentence."""
        policy = Policy(questions=Questions(deadline=3600))
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])] * 2)
        async with Engine.open(database, model=asking, tools=["ask_user_question"], policy=policy) as engine:
            broken, whole = await engine.create(), await engine.create()
            for conversation in (broken, whole):
                await conversation.send("A table")
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("UPDATE events SET payload = replace(payload, 'table', 'chair') WHERE conversation = 1")

        answering = ScriptedLlm([reply("Booked.")])
        async with Engine.open(database, model=answering, tools=["ask_user_question"]) as engine:
            turn = await (await engine.get(whole.id)).answer({"When?": "6:30 PM"})
            with pytest.raises(Damaged) as refused:
                await (await engine.get(broken.id)).transcript()

        assert turn.reply == "Booked."
        assert "\n" not in refused.value.sentence
