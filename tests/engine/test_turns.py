"""A turn from a message to its reply: its kinds, what it cost, and what may go wrong on the way."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args, get_origin

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from tests.support.effect_ids import unmarked
from turnwise import (
    BaseTurn,
    CancelledTurn,
    CompletedTurn,
    Delivery,
    EndedTurn,
    Engine,
    FailedTurn,
    IncompleteTurn,
    InvalidInput,
    Limits,
    ModelRequest,
    Policy,
    QueuedTurn,
    Refused,
    Retry,
    RunningTurn,
    ToolContext,
    Turn,
    TurnEndedUpdate,
    Usage,
    UserQuestion,
    WaitsForAnswer,
    WaitsForApproval,
    WaitsForResolution,
    tool,
)
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine.conversation import ITERATIONS_TO_SEND, Conversation
from turnwise.engine.turns import TurnStatus
from turnwise.states import ToolCall
from turnwise.testing import ManualClock, RecordingChannel
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, failure, reply

from ..support.cases import holds_for
from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import QUESTION, Gate, Watcher, answers_after, assert_paired, results
from ..support.scenarios.examples import example

pytestmark = BOTH_STORES

# --- A turn from a message to its reply, and what may go wrong on the way.


class TestATurn:
    """A message and its answer."""

    async def test_a_message_is_answered(self, database: Database) -> None:
        """The shortest conversation: one message, one reply, at rest again."""
        llm = ScriptedLlm([reply("Hello.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(system="Be brief.")
            turn = await conversation.send("Hi")

            assert (turn.status, turn.reply, turn.number) == ("completed", "Hello.", 1)
            assert conversation.state.type == "idle"
            assert [message["role"] for message in llm.requests[0].messages] == ["system", "user"]
        llm.assert_finished()

    async def test_a_message_sent_twice_is_said_once(self, database: Database) -> None:
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

    async def test_a_message_sent_twice_at_once_is_said_once(self, database: Database) -> None:
        """P3: also while the first is being answered, when any other message is refused as busy."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Once."))) as engine:
            conversation = await engine.create()
            both = [asyncio.ensure_future(conversation.send("Hi", message_id="m1")) for _ in range(2)]
            await gate.arrived.wait()
            gate.opened.set()
            first, second = await asyncio.gather(*both)

            assert first == second

    async def test_a_message_sent_twice_is_known_after_a_restart(self, database: Database) -> None:
        """P3: the store remembers what was taken, not the process."""
        async with Engine.open(database, model=ScriptedLlm([reply("Once.")])) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi", message_id="m1")

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            again = await (await engine.get(conversation.id)).send("Hi", message_id="m1")

        assert again == first

    async def test_an_id_used_for_another_message_is_refused(self, database: Database) -> None:
        """The same id with other content is refused."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", message_id="m1")

            with pytest.raises(Refused) as refused:
                await conversation.send("Something else", message_id="m1")

            assert refused.value.code == "event_id_reused"

    async def test_a_message_while_busy_is_refused(self, database: Database) -> None:
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

    async def test_not_waiting_returns_when_the_message_is_stored(self, database: Database) -> None:
        """`wait=False` returns as soon as the message is durable."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi", wait=False)

            assert (turn.status, turn.number) == ("running", 1)
            assert [entry.event.type for entry in await conversation.events()] == ["opened", "user_message"]
            gate.opened.set()

    @pytest.mark.parametrize("text", ["", "  \n", "half a \ud83d", "x" * 1_000_001])
    async def test_a_message_that_is_none_is_refused_in_one_sentence(self, database: Database, text: str) -> None:
        """Bad input gets a typed, one-sentence error, and nothing is stored."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput) as invalid:
                await conversation.send(text)

            assert len(invalid.value.sentence) < 200
            assert "\n" not in invalid.value.sentence
            assert len(await conversation.events()) == 1

    async def test_what_is_wrong_is_named_as_the_host_named_it(self, database: Database) -> None:
        """An error about the id of a message calls it `message_id`, as hosts do."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput, match=r"^message_id: Input should be a valid string\.$"):
                await conversation.send("Hi", message_id=5)  # type: ignore[arg-type]

    async def test_the_model_that_failed_is_tried_again(self, database: Database) -> None:
        """P11: after one transient failure there is one answer."""
        policy = Policy(retry=Retry(base=0.001))
        llm = ScriptedLlm([failure("server_error"), reply("Here.")])

        async with Engine.open(database, model=llm) as engine:
            turn = await (await engine.create(policy=policy)).send("Hi")

        assert turn.reply == "Here."
        llm.assert_finished()

    async def test_a_failed_turn_says_why_and_may_be_retried(self, database: Database) -> None:
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

    async def test_a_message_sent_again_finds_the_newest_try(self, database: Database) -> None:
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

    async def test_the_next_model_is_asked_when_the_first_fails(self, database: Database) -> None:
        """P11: with two models the second takes over when the first has failed three times."""
        policy = Policy(retry=Retry(base=0.001))
        first = ScriptedLlm([failure("rate_limit")] * 3, name="first")
        second = ScriptedLlm([reply("I am the second.")], name="second")

        async with Engine.open(database, model=first, fallback_models=[second]) as engine:
            turn = await (await engine.create(policy=policy)).send("Hi")

        assert turn.reply == "I am the second."
        first.assert_finished()

    async def test_a_limit_ends_the_turn(self, database: Database) -> None:
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

    async def test_results_stand_in_call_order(self, database: Database) -> None:
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
    async def test_a_bad_call_does_not_hold_the_others_up(self, database: Database, bad: Any, told: str) -> None:
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

    async def test_ids_that_a_provider_repeats_do_not_collide(self, database: Database) -> None:
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

    async def test_a_tool_knows_its_call_and_shows_progress(self, database: Database) -> None:
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

    async def test_a_broken_performer_fails_the_call_and_not_the_engine(self, database: Database) -> None:
        """A fault in a performer becomes an answer; people read a sentence, never a traceback."""

        def explode(request: Any) -> str:
            raise ZeroDivisionError("secret detail")

        async with Engine.open(database, model=FunctionLlm(explode)) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert "secret" not in (turn.failure or "")


# --- A turn is one of a few classes, one for each status.


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "Paid."


KINDS = [get_origin(kind) for kind in get_args(Turn)]
ENDED = tuple(get_origin(kind) for kind in get_args(EndedTurn))


class TestTheKinds:
    """What a program may rely on for every kind."""

    def test_each_status_has_its_class(self) -> None:
        """The classes of the union have the statuses, each one of them."""
        statuses = [{one.name: one for one in dataclasses.fields(kind)}["status"].default for kind in KINDS]

        assert statuses == list(get_args(TurnStatus))

    @holds_for("kind", KINDS)
    def test_each_has_every_attribute(self, kind: type[BaseTurn]) -> None:
        """A program that asks only for the status finds the attributes of all turns, in the same order."""
        assert [one.name for one in dataclasses.fields(kind)] == [one.name for one in dataclasses.fields(BaseTurn)]

    def test_a_program_can_ask_whether_something_is_a_turn(self) -> None:
        """By the class of all of them; the union, which takes the type of an answer, cannot be asked."""
        assert all(issubclass(kind, BaseTurn) for kind in KINDS)
        assert not isinstance("a turn", BaseTurn)

    def test_what_waits_is_made_with_what_it_waits_for(self) -> None:
        """A turn without the call that it waits for cannot be made."""
        with pytest.raises(TypeError):
            WaitsForAnswer(number=1)  # type: ignore[call-arg]


class TestWhatTheEngineReturns:
    """The class of the turn that a request returns."""

    async def test_turns_that_have_ended(self, database: Database) -> None:
        """Completed, incomplete, failed."""
        llm = ScriptedLlm([reply("Hello."), call("unknown"), failure("authentication")])
        one_request = Policy(limits=Limits(requests=1, last="plain"))
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            completed = await conversation.send("One")
            await conversation.set_policy(one_request)
            incomplete = await conversation.send("Two")
            failed = await conversation.send("Three")

        assert type(completed) is CompletedTurn
        assert type(incomplete) is IncompleteTurn
        assert type(failed) is FailedTurn
        assert failed.failure
        assert (completed.questions, completed.call_id, completed.call) == ((), None, None)

    async def test_turns_that_wait(self, database: Database) -> None:
        """A question, an approval, and the end of a turn that was cancelled."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), call("pay", amount=5)])
        async with Engine.open(database, model=llm, tools=["ask_user_question", pay]) as engine:
            conversation = await engine.create()
            asked = await conversation.send("Book")
            assert isinstance(asked, WaitsForAnswer)
            held = await conversation.answer({asked.questions[0].question: "6:30 PM"})
            assert isinstance(held, WaitsForApproval)
            await conversation.cancel()
            (cancelled,) = await conversation.turns()

        assert (held.call.name, held.call.call_id) == ("pay", held.call_id)
        assert type(cancelled) is CancelledTurn

    async def test_turns_that_nobody_waited_for(self, database: Database) -> None:
        """Running, and queued with the number 0; each is a `Turn`."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create(policy=Policy(when_busy="queue"))
            running = await conversation.send("One", wait=False)
            queued = await conversation.send("Two", wait=False)
            gate.opened.set()

        assert (running, queued) == (RunningTurn(number=1), QueuedTurn())
        assert type(running) in KINDS
        assert type(queued) in KINDS
        assert queued.number == 0


class TestAsJson:
    """A turn as a server sends it."""

    def turns(self) -> list[Turn]:
        """Return one turn of each kind, with everything set that it can have."""
        usage = Usage(input_tokens=5, output_tokens=7, cost=0.25)
        said: dict[str, Any] = {"reply": "Hi.", "deliveries": ("Hi.",), "usage": usage, "profile": "cook"}
        question = UserQuestion(question="When?")
        made = ToolCall(call_id="c", name="pay", raw_arguments='{"amount": 5}')
        broken = ToolCall(call_id="c", name="pay", raw_arguments="[5")
        return [
            CompletedTurn(number=1, final_content="Hi.", user_response="Hi.", **said),
            IncompleteTurn(number=2, truncated=True, limit="requests", failure="Not verified.", **said),
            FailedTurn(number=3, failure="No key.", **said),
            CancelledTurn(number=4, silent=True),
            WaitsForAnswer(number=5, questions=(question,), call_id="c", **said),
            WaitsForApproval(number=6, call_id="c", call=made),
            WaitsForResolution(number=7, call_id="c", call=broken),
            RunningTurn(number=8),
            QueuedTurn(),
        ]

    def test_each_kind_fits_the_schema(self) -> None:
        """What is sent is valid, and the schema names everything that is sent."""
        schema = TypeAdapter(BaseTurn).json_schema(mode="serialization")
        for turn in self.turns():
            sent = json.loads(json.dumps(turn.data, allow_nan=False))

            assert sent == turn.data
            assert sent.keys() <= schema["properties"].keys()
            Draft202012Validator(schema).validate(sent)
        assert [type(turn) for turn in self.turns()] == KINDS

    def test_it_is_the_data_of_its_end(self) -> None:
        """A client reads the answer to a request as it reads the update `turn_ended`."""
        for turn in self.turns():
            if isinstance(turn, ENDED):
                assert turn.data == TurnEndedUpdate.of((1, 1), turn).data

    def test_what_it_waits_for(self) -> None:
        """The questions, or the call with its arguments as an object; a text that is no JSON object as it is."""
        asks, approves, doubts, runs = (turn.data for turn in self.turns()[4:8])

        assert (asks["questions"], asks["call_id"]) == ([{"question": "When?", "options": []}], "c")
        assert (approves["call"]["arguments"], approves["call_id"]) == ({"amount": 5}, "c")
        assert (doubts["call"]["arguments"], doubts["call"]["raw_arguments"]) == ({}, "[5")
        assert not {"questions", "call_id", "call"} & runs.keys()


# --- What was said in a turn has reached quick channels when the turn is returned.


MemoryStore = example("memory_store").MemoryStore


def engine(channel: RecordingChannel, **options: Any) -> Engine:
    """An engine whose commits do not wait, with a model that answers at once."""
    return Engine.open(store=MemoryStore(), model=FunctionLlm(lambda _: "Hello."), channels=[channel], **options)


def takes(iterations: int) -> Callable[[Delivery], Awaitable[None]]:
    """What a channel does that takes so many iterations of the event loop for a delivery."""

    async def deliver(_: Delivery) -> None:
        for _ in range(iterations):
            await asyncio.sleep(0)

    return deliver


async def send(conversation: Conversation) -> None:
    """Send a message, and wait for the turn."""
    await conversation.send("Hi")


async def send_and_wait(conversation: Conversation) -> None:
    """Send a message, and wait for the turn under way by another call."""
    await conversation.send("Hi", wait=False)
    await conversation.wait()


@pytest.mark.parametrize("speak", [send, send_and_wait])
async def test_a_quick_channel_has_the_reply(speak: Callable[[Conversation], Awaitable[None]]) -> None:
    """A caller that looks at its channel finds what the turn says, although deliveries do not hold up a turn."""
    channel = RecordingChannel(takes(ITERATIONS_TO_SEND // 4))

    async with engine(channel) as opened:
        await speak(await opened.create())

        assert channel.texts == ["Hello."]


async def test_a_slow_channel_is_not_waited_for() -> None:
    """The turn is returned, and the delivery goes on."""
    may_go_on = asyncio.Event()

    async def slowly(_: Delivery) -> None:
        await may_go_on.wait()

    channel = RecordingChannel(slowly)
    async with engine(channel) as opened:
        turn = await (await opened.create()).send("Hi")
        before = list(channel.texts)
        may_go_on.set()

    assert (turn.reply, before, channel.texts) == ("Hello.", [], ["Hello."])


class FailingDispatcher:
    """A dispatcher that cannot tell what was tried, and does everything else as the one that it wraps."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Fail."""
        raise LookupError("no such conversation")


async def test_an_error_of_the_dispatcher_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The turn is stored, so its caller gets it."""

    def failing(*arguments: Any) -> Any:
        return FailingDispatcher(InProcessDispatcher(*arguments))

    with caplog.at_level(logging.ERROR, logger="turnwise.loop"):
        async with engine(RecordingChannel(), dispatcher=failing) as opened:
            turn = await (await opened.create()).send("Hi")
            messages = caplog.messages.copy()

    assert turn.reply == "Hello."
    assert "The dispatcher failed." in messages


# --- What a conversation has cost so far.


ONE = Usage(input_tokens=10, output_tokens=2, cost=0.25, cached_tokens=4, reasoning_tokens=1)
"""What each answer of the model costs."""


def costs(request: ModelRequest) -> Any:
    """Ask, fail or answer, as the last message says."""
    last = str(request.messages[-1]["content"])
    if last.endswith("Fail"):
        return failure("authentication", "No key.")
    answer = call("ask_user_question", questions=[QUESTION]) if last.endswith("Ask") else reply("Done.")
    return replace(answer, usage=ONE)


class TestUsage:
    """`usage` sums up the whole conversation."""

    async def test_every_turn_counts(self, database: Database) -> None:
        """Those that have ended, those that failed, the one that waits for a person, and a compaction; also after a
        restart."""
        options: dict[str, Any] = {"tools": ["ask_user_question"], "policy": Policy(retry=Retry(attempts=1))}
        async with Engine.open(database, model=FunctionLlm(costs), **options) as engine:
            conversation = await engine.create()
            nothing = await conversation.usage()
            await conversation.send("Hello")
            one = await conversation.usage()
            await conversation.send("Fail")
            await conversation.send("Hello")
            await conversation.compact()
            three = await conversation.usage()
            await conversation.send("Ask")
            four = await conversation.usage()
            turns = await conversation.turns()
        async with Engine.open(database, model=FunctionLlm(costs), **options) as engine:
            again = await (await engine.get(conversation.id)).usage()

        assert (nothing, one, three) == (Usage(), ONE, ONE + ONE + ONE)
        assert four == again == three + ONE
        assert sum((turn.usage for turn in turns), Usage()) == ONE + ONE

    async def test_it_may_begin_at_a_moment(self) -> None:
        """Then it counts what was stored since, that moment included; a moment needs a time zone."""
        clock = ManualClock()
        async with Engine.open("sqlite://", model=FunctionLlm(costs), clock=clock) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await clock.advance(3_600)
            noon = clock.now()
            await conversation.send("Hello")
            await conversation.send("Hello")

            assert await conversation.usage(since=noon) == ONE + ONE
            assert await conversation.usage(since=noon + timedelta(seconds=1)) == Usage()
            with pytest.raises(InvalidInput) as refused:
                await conversation.usage(since=noon.replace(tzinfo=None))

        assert refused.value.subject == "since"

    async def test_a_turn_under_way_counts_as_far_as_it_has_come(self, database: Database) -> None:
        """Each answer of the model counts as soon as it is stored."""
        gate = Gate()

        async def slowly(request: ModelRequest) -> Any:
            if request.messages[-1]["role"] == "tool":
                await gate()
            return costs(request)

        async with Engine.open(database, model=FunctionLlm(slowly), tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("Ask")
            answering = asyncio.ensure_future(conversation.answer({"When?": "6:30 PM"}))
            await gate.arrived.wait()
            before = await conversation.usage()
            gate.opened.set()
            turn = await answering

            assert before == ONE
            assert turn.usage == await conversation.usage() == ONE + ONE
