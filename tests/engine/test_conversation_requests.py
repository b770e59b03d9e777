"""What an application asks of a conversation besides messages, and requests that do not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.effect_ids import call_of
from turnwise import (
    CancelledTurn,
    ConfigurationError,
    Conversation,
    Engine,
    InvalidInput,
    ModelRequest,
    Policy,
    Profile,
    Refused,
    RunningTurn,
    Schedule,
    Transfer,
    Turn,
    WaitsForAnswer,
    tool,
)
from turnwise.persistence.errors import Damaged
from turnwise.persistence.opening import open_store
from turnwise.states import DetailsChanged, ToolsChanged
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, call, reply

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import QUESTION, Gate, Watcher, full_disk, until
from ..support.scenarios.repeated_requests import ANSWER, RESUMES, RUNNING, engine_at
from ..support.store_internals import query

pytestmark = BOTH_STORES

# --- Changes of the conversation itself: its tools, its title and what the application notes about it.


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

    async def test_the_next_turn_has_other_tools(self, database: Database) -> None:
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

    async def test_a_turn_under_way_keeps_its_tools(self, database: Database) -> None:
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

    async def test_a_turn_that_begins_meanwhile_keeps_its_tools(self, database: Database) -> None:
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
    async def test_a_tool_that_the_engine_does_not_have_is_named(self, database: Database, bad: Any) -> None:
        """Nothing changes."""
        async with Engine.open(database, model=Watching().llm, tools=[look, listen]) as engine:
            conversation = await engine.create()

            with pytest.raises(ConfigurationError):
                await conversation.set_tools(bad)

            assert len(await conversation.events()) == 1

    async def test_a_closed_conversation_takes_no_change(self, database: Database) -> None:
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

    async def test_by_an_engine_that_could_not_make_it(self, database: Database) -> None:
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

    async def test_they_are_replaced_one_by_one(self, database: Database) -> None:
        """Also during a turn, and they survive the process."""
        async with Engine.open(database, model=Watching().llm, tools=[look]) as engine:
            conversation = await engine.create()
            await conversation.set_title("Dinner")
            await conversation.set_metadata({"table": 4, "guests": ["Ada", "Bo"]})
            await conversation.set_title("Lunch")
        async with Engine.open(database, model=Watching().llm, tools=[look]) as engine:
            (summary,) = await engine.list()

        assert (summary.title, summary.metadata) == ("Lunch", {"table": 4, "guests": ["Ada", "Bo"]})

    async def test_a_handle_reads_what_it_can_change(self, database: Database) -> None:
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

    async def test_a_title_that_is_too_long_is_refused(self, database: Database) -> None:
        """In words that a person who typed it understands."""
        async with Engine.open(database, model=Watching().llm) as engine:
            conversation = await engine.create()
            for asking in (conversation.set_title("x" * 1_001), engine.create(title="x" * 1_001)):
                with pytest.raises(InvalidInput) as refused:
                    await asking
                assert refused.value.sentence == "title: String should have at most 1000 characters."


class TestSystemPrompts:
    """`set_system` changes what models are told from the next request on."""

    async def test_it_holds_from_the_next_request_on_also_within_a_turn(self, database: Database) -> None:
        """The requests before are written again with the prompt that they had, and the log replays."""
        model = ScriptedLlm([call("look"), reply("Seen."), reply("Again.")])

        @tool(crash="pure")
        async def look() -> str:
            await conversation.set_system("Be brief.")
            return "a table"

        async with Engine.open(database, model=model, tools=[look]) as engine:
            conversation = await engine.create(system="Be kind.")
            await conversation.send("Look around")
        async with Engine.open(database, model=model, tools=[look]) as engine:
            conversation = await engine.get(conversation.id)
            assert conversation.system == "Be brief."
            await conversation.send("And again")
            asked = [step.seq for step in await conversation.steps() if step.requests]
            written = [await conversation.model_request(seq) for seq in asked]
            divergence = (await conversation.replay()).divergence

        prompts = [request.messages[0]["content"] for request in model.requests]
        assert prompts == ["Be kind.", "Be brief.", "Be brief."]
        assert [(one.is_exact, one.request) for one in written] == [(True, request) for request in model.requests]
        assert divergence is None

    @pytest.mark.parametrize(
        "given", [{"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be kind."}]
    )
    async def test_messages_have_the_prompt_that_holds(self, given: dict[str, Any], database: Database) -> None:
        """In place of that with which the conversation began; without one they have none."""
        async with Engine.open(database, model=Watching().llm) as engine:
            conversation = await engine.create(messages=[given, {"role": "user", "content": "Hi"}])
            await conversation.set_system("Be brief.")
            changed = await conversation.messages()
            await conversation.set_system("")
            removed = await conversation.messages()

        assert changed == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        assert removed == [{"role": "user", "content": "Hi"}]

    async def test_none_is_no_prompt(self, database: Database) -> None:
        """It would change nothing, and not take the prompt away. The same holds for a title."""
        nothing: Any = None
        async with Engine.open(database, model=Watching().llm) as engine:
            conversation = await engine.create(system="Be kind.")
            for asking in (conversation.set_system(nothing), conversation.set_title(nothing)):
                with pytest.raises(InvalidInput, match="A text is needed"):
                    await asking
            steps = await conversation.steps()

        assert (conversation.system, len(steps)) == ("Be kind.", 1)

    async def test_a_copy_of_an_earlier_step_may_keep_it(self, database: Database) -> None:
        """It has the prompt of that step, or with `keeps_rules` that which the conversation has now."""
        async with Engine.open(database, model=Watching().llm) as engine:
            conversation = await engine.create(system="Be kind.")
            await conversation.set_system("Be brief.")
            copy, keeping = await conversation.fork(at=1), await conversation.fork(at=1, keeps_rules=True)

        assert (copy.system, keeping.system) == ("Be kind.", "Be brief.")


class TestMarks:
    """A host finds by its marks what it has made for itself; nobody else can set or remove one."""

    MARK: ClassVar = {"turnwise.completion": "stateless"}

    async def test_they_stand_in_the_metadata_and_stay(self, database: Database) -> None:
        """New metadata leaves them, whether it repeats them or not, and a list finds them."""
        async with Engine.open(database, model=Watching().llm) as engine:
            marked = await engine.create(marks={"completion": "stateless"}, metadata={"table": 4})
            await engine.create()
            await marked.set_metadata({"table": 5})
            await marked.set_metadata({**marked.metadata, "guests": 2})
            found = await engine.list(metadata=self.MARK)

        assert [summary.metadata for summary in found] == [{**self.MARK, "table": 5, "guests": 2}]

    async def test_nobody_else_sets_them(self, database: Database) -> None:
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

    async def test_such_a_conversation_is_not_copied(self, database: Database) -> None:
        """A copy would be taken for one that the host made, and be removed with those."""
        async with Engine.open(database, model=Watching().llm) as engine:
            marked = await engine.create(marks={"completion": "stateless"})
            with pytest.raises(InvalidInput, match="cannot be forked"):
                await marked.fork()

            assert len(await engine.list()) == 1


# --- Requests with `wait=False`: they return once they are stored, with the turn as it is at that moment.


Asking = Callable[[Conversation], Awaitable[Turn]]

GOES_ON: dict[str, tuple[str, Policy | None, Asking]] = {
    "answer": ("Ask? Wait", None, lambda it: it.answer(ANSWER, request_id="r", wait=False)),
    "decline": ("Ask? Wait", RESUMES, lambda it: it.decline(request_id="r", wait=False)),
    "approve": ("Pay, Wait", None, lambda it: it.approve(call_of(it, "call_1_0"), True, request_id="r", wait=False)),
    "deny": ("Pay, Wait", None, lambda it: it.approve(call_of(it, "call_1_0"), False, request_id="r", wait=False)),
}
"""Requests after which the turn goes on until its model is let through: the message before, the rules, the request."""

goes_on = pytest.mark.parametrize("name", GOES_ON)


async def length(conversation: Conversation) -> int:
    """Return the number of steps in the log."""
    return len(await conversation.events())


class TestTurnsThatGoOn:
    """The turn runs when the request returns."""

    @goes_on
    async def test_the_turn_is_running_and_the_request_is_stored(self, name: str, database: Database) -> None:
        """The caller gets the number of the turn at once; `wait` gives the end of it."""
        text, policy, ask = GOES_ON[name]
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(text)

            turn = await ask(conversation)

            assert turn == RunningTurn(number=1)
            assert [one for one in await conversation.events() if getattr(one.event, "event_id", "") == "r"]
            gate.opened.set()
            assert (await conversation.wait()).status == "completed"

    @goes_on
    async def test_a_repeated_request_returns_the_turn_as_it_is_by_then(self, name: str, database: Database) -> None:
        """Running while it runs, completed afterwards; nothing is done twice."""
        text, policy, ask = GOES_ON[name]
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(text)

            running = [await ask(conversation) for _ in range(3)]
            gate.opened.set()
            ended = await conversation.wait()
            steps = await length(conversation)

            assert running == [RunningTurn(number=1)] * 3
            assert [await ask(conversation), await ask(await engine.get(conversation.id))] == [ended] * 2
            assert await length(conversation) == steps

    async def test_a_call_in_doubt_is_resolved(self, database: Database) -> None:
        """After a crash, the turn goes on when somebody has said what became of the call."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            RUNNING.discard("Book, Wait")  # it ran over another store
            await conversation.send("Book, Wait", wait=False)
            await until(lambda: "Book, Wait" in RUNNING)
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.get(conversation.id)
            await until(lambda: conversation.state.type == "in_doubt")

            turn = await conversation.resolve(call_of(conversation, "call_1_0"), "ran", wait=False)

            assert turn == RunningTurn(number=1)
            gate.opened.set()
            assert (await conversation.wait()).status == "completed"

    async def test_a_retry_returns_the_new_turn(self, database: Database) -> None:
        """The failed turn keeps its number."""
        gate = Gate()

        async def fails_first(_: Any) -> Any:
            if not gate.arrived.is_set():
                gate.arrived.set()
                raise RuntimeError("broken")
            await gate()
            return reply("Done.")

        async with Engine.open(database, model=FunctionLlm(fails_first), policy=Policy()) as engine:
            conversation = await engine.create()
            assert (await conversation.send("Go")).status == "failed"

            turn = await conversation.retry(wait=False)

            assert turn == RunningTurn(number=2)
            gate.opened.set()
            assert (await conversation.wait()).reply == "Done."

    async def test_a_turn_that_goes_on_needs_no_log(self, database_file: Path) -> None:
        """The log cannot be read, but what was stored is known: the request returns, and only who waits fails."""
        gate = Gate()
        async with engine_at(database_file) as engine:
            conversation_id = (await engine.create()).id
            await (await engine.get(conversation_id)).send("Ask? Wait")
        async with engine_at(database_file, gate=gate) as engine:
            conversation = await engine.get(conversation_id)
            await query(engine.store, "UPDATE events SET payload = '{}' WHERE seq = 2")  # type: ignore[arg-type]

            assert await conversation.answer(ANSWER, wait=False) == RunningTurn(number=1)
            with pytest.raises(Damaged):
                await conversation.wait()


class TestTurnsThatStopAtOnce:
    """The request itself ends the turn, or the turn waits for a person again."""

    async def test_a_declined_question_ends_the_turn(self, database: Database) -> None:
        """The turn has ended when the request returns, and when it is sent again."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")

            first = await conversation.decline(request_id="r", wait=False)

            assert isinstance(first, CancelledTurn)
            assert await conversation.decline(request_id="r", wait=False) == first

    async def test_a_repeated_answer_returns_the_next_question(self, database: Database) -> None:
        """The model asks again: a repeated answer to the first question returns the turn with the second one."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Ask?")

            call_id = call_of(conversation, "call_1_0")
            await conversation.answer(ANSWER, request_id="r", wait=False)
            second = await conversation.wait()
            again = await conversation.answer(ANSWER, call_id=call_id, request_id="r", wait=False)

            assert isinstance(second, WaitsForAnswer)
            assert again == second

    async def test_a_late_answer_is_refused(self, database: Database) -> None:
        """Two people answer the first question: the slower one is refused, also if the next question is open by
        then."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Ask?")
            other = await engine.get(conversation.id)

            await conversation.answer(ANSWER, wait=False)
            await conversation.wait()
            with pytest.raises(Refused) as refused:
                await other.answer(ANSWER, wait=False)

            assert refused.value.code == "wrong_state"
            assert conversation.state.type == "awaiting_user_response"


class TestStopping:
    """Cancel, close and compact."""

    async def test_a_cancel_returns_while_the_turn_stops(self, database: Database) -> None:
        """The tool has not stopped yet; whoever waits sees it stop."""
        gate = Gate()
        stopping = asyncio.Event()

        async def slow() -> str:
            """Stop slowly."""
            try:
                await gate()
            except asyncio.CancelledError:
                stopping.set()
                await gate.opened.wait()
            return "late"

        async with Engine.open(database, model=FunctionLlm(lambda _: call("slow")), tools=[slow]) as engine:
            conversation = await engine.create()
            await conversation.send("Go", wait=False)
            await gate.arrived.wait()

            cancelled = await conversation.cancel(request_id="r", wait=False)

            assert not cancelled.no_op
            assert conversation.state.type == "cancelling"
            assert not (await conversation.cancel(request_id="r", wait=False)).no_op
            await stopping.wait()
            gate.opened.set()
            assert (await conversation.wait()).status == "cancelled"

    async def test_a_cancel_of_nothing_says_so(self, database: Database) -> None:
        """At rest there is nothing to stop."""
        async with engine_at(database) as engine:
            conversation = await engine.create()

            assert (await conversation.cancel(wait=False)).no_op

    async def test_a_close_returns_while_the_turn_stops(self, database: Database) -> None:
        """The conversation closes once its turn has stopped."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait", wait=False)
            watcher = Watcher(conversation)
            await gate.arrived.wait()

            await conversation.close(wait=False)
            await watcher.collecting

            assert conversation.state.type == "closed"

    async def test_a_compaction_runs_after_the_request_returned(self, database: Database) -> None:
        """The summary is written meanwhile; sent again, the request changes nothing."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            steps = await length(conversation)

            await conversation.compact(request_id="r", wait=False)
            await conversation.compact(request_id="r", wait=False)
            await conversation.compact(request_id="r")

            assert await length(conversation) == steps + 2
            assert conversation.state.type == "idle"


class TestStorage:
    """Nothing is promised that is not stored."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda it: it.answer(ANSWER, request_id="r", wait=False),
            lambda it: it.decline(request_id="r", wait=False),
            lambda it: it.cancel(request_id="r", wait=False),
            lambda it: it.close(request_id="r", wait=False),
        ],
    )
    async def test_a_full_disk_refuses_the_request(self, ask: Any, database_file: Path) -> None:
        """It is refused as "storage", the question stays open, and the same request is taken later."""
        async with engine_at(database_file) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")
            before = conversation.state

            async with full_disk(engine):
                with pytest.raises(Refused) as refused:
                    await ask(conversation)

            assert refused.value.code == "storage"
            assert conversation.state == before
            await ask(conversation)
            assert conversation.state != before

    async def test_a_caller_that_is_cancelled_does_not_take_its_request_back(self, database: Database) -> None:
        """The client is gone before the answer is stored; the answer counts all the same, once."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")
            asking = asyncio.ensure_future(conversation.answer(ANSWER, request_id="r", wait=False))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])

            turn = await conversation.answer(ANSWER, call_id=call_of(conversation, "call_1_0"), request_id="r")

            assert turn.status == "completed"
            assert sum(getattr(one.event, "event_id", "") == "r" for one in await conversation.events()) == 1


def test_without_an_event_loop(database: Database) -> None:
    """The blocking engine has the same parameter."""

    def answers(request: Any) -> Any:
        asked = any(message["role"] == "tool" for message in request.messages)
        return reply("Booked.") if asked else call("ask_user_question", questions=[QUESTION])

    with Engine.open_blocking(database, model=FunctionLlm(answers), tools=["ask_user_question"]) as engine:
        conversation = engine.create()
        conversation.send("A table")

        turn = conversation.answer(ANSWER, wait=False)

        assert turn.number == 1
        assert conversation.wait().reply == "Booked."


# --- The schedule of a conversation and its hand-over to a profile, as an application asks for them.


NOON = ManualClock().now()
HOUR = timedelta(hours=1)
PROFILES = (Profile(name="booking", prompt="You book."), Profile(name="cooking", prompt="You cook."))

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": 0.5}, "every: Input should be greater than or equal to 1."),
    ({"every": timedelta(milliseconds=1)}, "every: Input should be greater than or equal to 1."),
    ({"every": -1}, "every: Input should be greater than or equal to 1."),
    ({"every": float("nan")}, "every: Input should be a finite number."),
    ({"every": "soon"}, "every: Input should be a valid number, unable to parse string as a number."),
    ({"every": 1e12}, "every: Input should be less than or equal to 315360000."),
    ({"every": 60, "cron": "* * * * *"}, "A schedule has either an interval (`every`) or a cron expression (`cron`)"),
    ({"every": 60, "zone": "Europe/Berlin"}, "A time zone belongs to a cron expression"),
    ({"task": "Look around."}, "A task and a time zone belong to a schedule"),
    ({"zone": "Europe/Berlin"}, "A task and a time zone belong to a schedule"),
    ({"every": 60, "task": " "}, "task: Input should not be empty."),
    ({"every": 60, "task": 5}, "task: Input should be a valid string."),
    ({"cron": ""}, "cron: String should have at least 1 character."),
    ({"cron": 5}, "cron: Input should be a valid string."),
    ({"cron": "* " * 101}, "cron: String should have at most 200 characters."),
    ({"cron": "every day"}, "The cron expression 'every day' is not valid"),
    ({"cron": "0 0 */31 2 MON#5"}, "The cron expression '0 0 */31 2 MON#5' never comes."),
    ({"cron": "* * * * *", "zone": "Mars/Olympus"}, "There is no time zone 'Mars/Olympus' on this machine."),
]


class TestSchedules:
    """`Engine.create(every=…, cron=…)`, `Conversation.set_schedule`, `schedule` and `next_wake`."""

    @pytest.mark.parametrize("every", [3600, 3600.0, HOUR])
    async def test_an_interval_is_given_in_seconds_or_as_a_duration(self, every: Any) -> None:
        """The first moment is an interval away."""
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            conversation = await engine.create(every=every, task="Look around.")

            assert conversation.schedule == Schedule(every=3600, task="Look around.")
            assert conversation.next_wake == NOON + HOUR

    async def test_without_a_task_it_reads_that_of_its_rules(self) -> None:
        """An application words it by its policy."""
        texts = Policy().texts.replace(wake_up="An hour has passed.")
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            plain = await engine.create(every=HOUR)
            worded = await engine.create(policy=Policy(texts=texts))
            await worded.set_schedule(every=HOUR)

            assert plain.schedule is not None and plain.schedule.task == Policy().texts.wake_up
            assert worded.schedule is not None and worded.schedule.task == "An hour has passed."

    async def test_a_conversation_has_none_unless_it_is_given_one(self) -> None:
        """And none after it was taken away, or after the close."""
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            conversation = await engine.create()
            assert (conversation.schedule, conversation.next_wake) == (None, None)

            await conversation.set_schedule(cron="0 9 * * *", task="Read the news.")
            assert conversation.next_wake == NOON + 21 * HOUR
            await conversation.set_schedule(every=HOUR, task="Look around.")
            assert conversation.next_wake == NOON + HOUR
            await conversation.set_schedule()
            assert (conversation.schedule, conversation.next_wake) == (None, None)

            await conversation.set_schedule(every=HOUR)
            await conversation.close()
            assert conversation.next_wake is None
            with pytest.raises(Refused) as refused:
                await conversation.set_schedule(every=HOUR)
            assert refused.value.code == "closed"

    async def test_what_is_no_schedule_is_refused_in_a_sentence(self) -> None:
        """Nothing is created, and nothing is changed."""
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            conversation = await engine.create(every=HOUR, task="Look around.")
            before = await conversation.events()

            for fields, sentence in WRONG:
                for attempt in (engine.create, conversation.set_schedule):
                    with pytest.raises(InvalidInput) as refused:
                        await attempt(**fields)
                    assert refused.value.sentence.startswith(sentence), fields

            assert len(await engine.list()) == 1
            assert await conversation.events() == before

    async def test_a_request_that_is_sent_twice_is_one(self) -> None:
        """Also if time has passed in between; another one under its id is refused."""
        clock = ManualClock()
        async with Engine.open("sqlite://", clock=clock) as engine:
            conversation = await engine.create()
            await conversation.set_schedule(every=HOUR, request_id="r")
            await clock.advance(60)

            await conversation.set_schedule(every=HOUR, request_id="r")
            with pytest.raises(Refused) as refused:
                await conversation.set_schedule(every=2 * HOUR, request_id="r")

            assert conversation.next_wake == NOON + HOUR
            assert refused.value.code == "event_id_reused"

    async def test_it_is_there_after_a_restart(self, database: Database) -> None:
        """However many steps were taken since."""
        model = FunctionLlm(lambda request: "Yes.")
        async with Engine.open(database, model=model, clock=ManualClock()) as engine:
            conversation = await engine.create(every=2 * HOUR)
            await conversation.set_schedule(every=HOUR, task="Look around.")
            for _ in range(5):
                await conversation.send("Hello")
            conversation_id = conversation.id

        async with Engine.open(database, clock=ManualClock()) as engine:
            again = await engine.get(conversation_id)

            assert (again.schedule, again.next_wake) == (Schedule(every=3600, task="Look around."), NOON + HOUR)
            (summary,) = await engine.list()
            assert summary.wakes_at == NOON + HOUR


@tool(exclusive=True, acts=("transfer",))
async def hand_over(profile: str) -> Transfer:
    """Hand over to another profile."""
    return Transfer(profile=profile)


class TestHandingOver:
    """`Conversation.transfer_to`, and a tool that returns a `Transfer`."""

    async def test_by_the_host(self) -> None:
        """The next turn has the profile, and what was said before."""
        model = ScriptedLlm([reply("Sakura has a table."), reply("Soup?")])
        async with Engine.open("sqlite://", model=model, profiles=PROFILES) as engine:
            conversation = await engine.create()
            await conversation.send("A table for two?")

            await conversation.transfer_to("cooking")
            await conversation.send("And what do they cook?")

            system, *messages = model.requests[-1].messages
            assert "You cook." in system["content"] and "You book." not in system["content"]
            assert [message["content"] for message in messages][:2] == ["A table for two?", "Sakura has a table."]
            assert conversation.profile == "cooking"
            assert [turn.profile for turn in await conversation.turns()] == ["booking", "cooking"]

    async def test_by_a_tool(self) -> None:
        """The model that answers after the tool has the other profile; a name that there is not is an error result."""
        model = ScriptedLlm(
            [call("hand_over", profile="dancing"), call("hand_over", profile="cooking"), reply("Soup?"), reply("Yes.")]
        )
        async with Engine.open("sqlite://", model=model, profiles=PROFILES, tools=[hand_over]) as engine:
            conversation = await engine.create()
            await conversation.send("I am hungry.")
            await conversation.send("Is it hot?")

            prompts = [request.messages[0]["content"] for request in model.requests]
            assert ["You cook." in prompt for prompt in prompts] == [False, False, True, True]
            results = [message for message in await conversation.transcript() if message.role == "tool"]
            assert [message.error for message in results] == [True, False]
            assert results[0].text == Policy().texts.unknown_profile
            assert (await conversation.replay()).divergence is None

    async def test_an_unknown_profile_is_refused(self) -> None:
        """The sentence names it, and nothing changes."""
        async with Engine.open("sqlite://", profiles=PROFILES) as engine:
            conversation = await engine.create()

            with pytest.raises(Refused) as refused:
                await conversation.transfer_to("dancing")
            with pytest.raises(InvalidInput):
                await conversation.transfer_to("")

            assert refused.value.code == "unknown_profile"
            assert refused.value.sentence == "The conversation has no profile of this name: dancing"
            assert conversation.state.book.profile == ""

    async def test_an_engine_that_has_the_profile_no_longer_ends_it(self, database: Database) -> None:
        """The conversation follows the profiles of its engine, and goes on under the first of them."""
        model = FunctionLlm(lambda request: "Yes.")
        async with Engine.open(database, model=model, profiles=PROFILES) as engine:
            conversation = await engine.create()
            await conversation.transfer_to("cooking")
            conversation_id = conversation.id

        async with Engine.open(database, model=model, profiles=(PROFILES[0], Profile(name="dancing"))) as engine:
            again = await engine.get(conversation_id)
            await again.send("Hello")

            assert again.profile == "booking"
            assert again.state.book.profile == ""

    async def test_a_tool_that_does_not_run_alone_cannot_be_declared(self) -> None:
        """The order of two hand-overs must not depend on which tool is faster."""
        with pytest.raises(ConfigurationError, match="exclusive=True"):

            @tool(acts=("transfer",))
            async def careless() -> Transfer:
                """Hand over."""
                return Transfer(profile="cooking")


def test_a_schedule_without_an_event_loop() -> None:
    """The blocking engine has the same."""
    model = FunctionLlm(lambda request: "Yes.")
    with Engine.open_blocking("sqlite://", model=model, profiles=PROFILES, clock=ManualClock()) as engine:
        conversation = engine.create(every=HOUR, task="Look around.")
        assert (conversation.schedule, conversation.next_wake) == (
            Schedule(every=3600, task="Look around."),
            NOON + HOUR,
        )

        conversation.set_schedule()
        conversation.transfer_to("cooking")
        conversation.send("Hello")

        assert (conversation.schedule, conversation.next_wake, conversation.profile) == (None, None, "cooking")
