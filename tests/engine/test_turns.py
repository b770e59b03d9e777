"""A turn from a message to its reply, and what may go wrong on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import unmarked
from turnwise import (
    Engine,
    InvalidInput,
    Limits,
    Policy,
    Refused,
    Retry,
    ToolContext,
    tool,
)
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, failure, reply

from ..support.engine_scenarios import Gate, Watcher, answers_after, assert_paired, results


class TestATurn:
    """A message and its answer."""

    async def test_a_message_is_answered(self, database: Path) -> None:
        """The shortest conversation: one message, one reply, at rest again."""
        llm = ScriptedLlm([reply("Hello.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(system="Be brief.")
            turn = await conversation.send("Hi")

            assert (turn.status, turn.reply, turn.number) == ("completed", "Hello.", 1)
            assert conversation.state.type == "idle"
            assert [message["role"] for message in llm.requests[0].messages] == ["system", "user"]
        llm.assert_finished()

    async def test_a_message_sent_twice_is_said_once(self, database: Path) -> None:
        """P3: the same message_id twice succeeds both times: one row, one model call."""
        llm = ScriptedLlm([reply("Once.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi", message_id="m1")
            rows = len(await conversation.events())
            second = await conversation.send("Hi", message_id="m1")

            assert first == second
            assert len(await conversation.events()) == rows
        llm.assert_finished()

    async def test_a_message_sent_twice_at_once_is_said_once(self, database: Path) -> None:
        """P3: also while the first is being answered, when any other message is refused as busy."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Once."))) as engine:
            conversation = await engine.create()
            both = [asyncio.ensure_future(conversation.send("Hi", message_id="m1")) for _ in range(2)]
            await gate.arrived.wait()
            gate.opened.set()
            first, second = await asyncio.gather(*both)

            assert first == second

    async def test_a_message_sent_twice_is_known_after_a_restart(self, database: Path) -> None:
        """P3: the store remembers what was taken, not the process."""
        async with Engine.open(database, model=ScriptedLlm([reply("Once.")])) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi", message_id="m1")

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            again = await (await engine.get(conversation.id)).send("Hi", message_id="m1")

        assert again == first

    async def test_an_id_used_for_another_message_is_refused(self, database: Path) -> None:
        """The same id with other content is refused."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", message_id="m1")

            with pytest.raises(Refused) as refused:
                await conversation.send("Something else", message_id="m1")

            assert refused.value.code == "event_id_reused"

    async def test_a_message_while_busy_is_refused(self, database: Path) -> None:
        """P2: a message during a turn is refused at once with the code busy; nothing changes."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("First"))
            await gate.arrived.wait()
            before, rows = conversation.state, await conversation.events()

            with pytest.raises(Refused) as refused:
                await conversation.send("Second")

            assert refused.value.code == "busy"
            assert conversation.state == before
            assert await conversation.events() == rows
            gate.opened.set()
            assert (await turn).reply == "Done."

    async def test_not_waiting_returns_when_the_message_is_stored(self, database: Path) -> None:
        """`wait=False` returns as soon as the message is durable."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi", wait=False)

            assert (turn.status, turn.number) == ("running", 1)
            assert [entry.event.type for entry in await conversation.events()] == ["opened", "user_message"]
            gate.opened.set()

    @pytest.mark.parametrize("text", ["", "  \n", "half a \ud83d", "x" * 1_000_001])
    async def test_a_message_that_is_none_is_refused_in_one_sentence(self, database: Path, text: str) -> None:
        """Bad input gets a typed, one-sentence error, and nothing is stored."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput) as invalid:
                await conversation.send(text)

            assert len(invalid.value.sentence) < 200
            assert "\n" not in invalid.value.sentence
            assert len(await conversation.events()) == 1

    async def test_what_is_wrong_is_named_as_the_host_named_it(self, database: Path) -> None:
        """An error about the id of a message calls it `message_id`, as hosts do."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput, match=r"^message_id: Input should be a valid string\.$"):
                await conversation.send("Hi", message_id=5)  # type: ignore[arg-type]

    async def test_the_model_that_failed_is_tried_again(self, database: Path) -> None:
        """P11: after one transient failure there is one answer."""
        policy = Policy(retry=Retry(base=0.001))
        llm = ScriptedLlm([failure("server_error"), reply("Here.")])

        async with Engine.open(database, model=llm) as engine:
            turn = await (await engine.create(policy=policy)).send("Hi")

        assert turn.reply == "Here."
        llm.assert_finished()

    async def test_a_failed_turn_says_why_and_may_be_retried(self, database: Path) -> None:
        """P11: three failures of the only model lead to Failed with a sentence; a retry is a new turn."""
        policy = Policy(retry=Retry(base=0.001))
        llm = ScriptedLlm([*[failure("timeout", "The model did not answer in time.")] * 3, reply("Here.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(policy=policy)
            failed = await conversation.send("Hi")
            again = await conversation.retry()

            assert (failed.status, failed.reply) == ("failed", "")
            assert failed.failure == "Failed after 3 attempts: The model did not answer in time."
            assert (again.status, again.reply, again.number) == ("completed", "Here.", 2)
            assert [m.text for m in await conversation.transcript()] == ["Hi", "Here."]

    async def test_a_message_sent_again_finds_the_newest_try(self, database: Path) -> None:
        """P28, P11: a message that is sent again after a retry returns the turn that answered it."""
        policy = Policy(retry=Retry(attempts=1))
        llm = ScriptedLlm([failure("timeout"), failure("timeout"), reply("Here."), reply("Other.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(policy=policy)
            failed = await conversation.send("Hi", message_id="m")
            assert failed == await conversation.send("Hi", message_id="m")
            await conversation.retry()
            again = await conversation.retry()
            await conversation.send("And now?")

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            sent_again = await (await engine.get(conversation.id)).send("Hi", message_id="m")

        assert (failed.number, failed.status) == (1, "failed")
        assert (sent_again.number, sent_again.reply) == (3, "Here.")
        assert sent_again == again

    async def test_the_next_model_is_asked_when_the_first_fails(self, database: Path) -> None:
        """P11: with two models the second takes over when the first has failed three times."""
        policy = Policy(retry=Retry(base=0.001))
        first = ScriptedLlm([failure("rate_limit")] * 3, name="first")
        second = ScriptedLlm([reply("I am the second.")], name="second")

        async with Engine.open(database, model=first, fallback_models=[second]) as engine:
            turn = await (await engine.create(policy=policy)).send("Hi")

        assert turn.reply == "I am the second."
        first.assert_finished()

    async def test_a_limit_ends_the_turn(self, database: Path) -> None:
        """The last request of the budget goes out without tools, and the turn ends with what it brings."""

        @tool
        def look() -> str:
            """Look."""
            return "nothing"

        llm = ScriptedLlm([call("look"), reply("I found nothing.")])

        async with Engine.open(database, model=llm, tools=[look]) as engine:
            turn = await (await engine.create(policy=Policy(limits=Limits(requests=2)))).send("Look")

        assert turn.reply == "I found nothing."
        assert [request.tool_choice for request in llm.requests] == ["auto", "none"]


class TestTools:
    """What the model may call."""

    async def test_results_stand_in_call_order(self, database: Path) -> None:
        """P4: calls [a, b, c] run in order, one at a time, and the model is asked once after c."""
        ran: list[str] = []

        @tool
        async def note(word: str) -> str:
            """Write down a word."""
            ran.append(word)
            return f"noted {word}"

        llm = ScriptedLlm([calls(*(call("note", word=word) for word in "abc")), reply("All noted.")])

        async with Engine.open(database, model=llm, tools=[note]) as engine:
            conversation = await engine.create()
            await conversation.send("Write")
            said = await conversation.transcript()

        assert ran == ["a", "b", "c"]
        assert results(said) == ["noted a", "noted b", "noted c"]
        assert_paired(said)
        llm.assert_finished()

    @pytest.mark.parametrize(
        ("bad", "told"),
        [
            (call("breaks"), "breaks failed: RuntimeError. "),
            (call("missing"), "There is no tool called missing."),
            (call("hangs"), "hangs did not finish within 0.05 s."),
            (call("note", words="x"), "Invalid input: "),
        ],
    )
    async def test_a_bad_call_does_not_hold_the_others_up(self, database: Path, bad: Any, told: str) -> None:
        """P5: b raises, does not exist, takes too long or has bad arguments: an error result, and c still runs."""

        @tool
        def note(word: str) -> str:
            """Write down a word."""
            return word

        @tool
        def breaks() -> str:
            """Break."""
            raise RuntimeError("the oven is cold")

        @tool(timeout=0.05)
        async def hangs() -> None:
            """Hang."""
            await asyncio.Event().wait()

        llm = ScriptedLlm([calls(call("note", word="a"), bad, call("note", word="c")), reply("Done.")])

        async with Engine.open(database, model=llm, tools=[note, breaks, hangs]) as engine:
            conversation = await engine.create()
            await conversation.send("Go")
            said = await conversation.transcript()

        first, second, third = results(said)
        assert (first, third) == ("a", "c")
        assert second.startswith(told)
        assert_paired(said)
        llm.assert_finished()

    async def test_ids_that_a_provider_repeats_do_not_collide(self, database: Path) -> None:
        """P29: repeated call ids, also within one response, do not collide."""

        @tool
        def note(word: str) -> str:
            """Write down a word."""
            return word

        def script() -> list[Any]:
            return [calls(call("note", word="a"), call("note", word="b")), call("note", word="c"), reply("Done.")]

        llm = ScriptedLlm([*script(), *script()])

        async with Engine.open(database, model=llm, tools=[note]) as engine:
            conversation = await engine.create()
            await conversation.send("One")
            await conversation.send("Two")
            said = await conversation.transcript()

        ids = [message.tool_call_id for message in said if message.role == "tool"]
        assert results(said) == list("abcabc")
        assert len(set(ids)) == len(ids)
        assert_paired(said)

    async def test_a_tool_knows_its_call_and_shows_progress(self, database: Path) -> None:
        """A tool may take a ToolContext: the conversation's id, a key for this call, and progress to show."""
        seen: list[ToolContext] = []

        @tool
        async def work(context: ToolContext) -> str:
            """Work."""
            seen.append(context)
            context.progress("half way")
            await asyncio.sleep(0)
            return "worked"

        llm = ScriptedLlm([call("work"), reply("Done.")])

        async with Engine.open(database, model=llm, tools=[work]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await conversation.send("Work")
            shown = await watcher.until("tool_progress")
            await watcher.stop()

            assert unmarked(seen[0].key) == f"{conversation.id}/2"
            assert shown.data == {"call_id": seen[0].call_id, "text": "half way", "turn": 1}
            assert shown.id is None

    async def test_a_broken_performer_fails_the_call_and_not_the_engine(self, database: Path) -> None:
        """A fault in a performer becomes an answer; people read a sentence, never a traceback."""

        def explode(request: Any) -> str:
            raise ZeroDivisionError("secret detail")

        async with Engine.open(database, model=FunctionLlm(explode)) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert "secret" not in (turn.failure or "")
