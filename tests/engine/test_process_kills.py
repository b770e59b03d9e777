"""Processes that are killed, for real: at every boundary of a turn, and at any moment of a busy day."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.effect_ids import unmarked
from turnwise import (
    Conversation,
    Engine,
    ModelAnswer,
    ModelRequest,
    Policy,
    Refused,
    Token,
    ToolContext,
    Turn,
    presets,
    tool,
)
from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine import loop
from turnwise.engine.composition import PortWrappers, wrapped_ports
from turnwise.persistence.maintenance import replay
from turnwise.states import ExecuteTool, Resumed
from turnwise.testing import FunctionLlm, RecordingChannel, call, calls, crash_at_every_boundary, reply
from turnwise.testing.crashes import CrashFound, Process, ScenarioFailed, check_after_crashes

from ..support.engine_scenarios import QUESTION, Gate, answers_after, full_disk, talk
from ..support.fault_profile import LONG
from ..support.planted.engines import takes_no_tool_for_harmful
from ..support.planted.stores import StoresLater, WrappedStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(0 if LONG else 240)]

SAID = [
    calls(call("look"), call("note", text="for two"), text="Let me see."),
    calls(call("talk", text="One moment.")),
    calls(call("pay", amount=5), call("book", table=4)),
    calls(call("ask_user_question", questions=[QUESTION])),
    reply("It is booked."),
]
"""What the model says, by the number of answers that it has given before."""


def model() -> FunctionLlm:
    """Return a model whose answer follows from the request, so that it goes on after a crash."""
    return FunctionLlm(lambda request: SAID[sum(message["role"] == "assistant" for message in request.messages)])


@tool(crash="pure")
async def look() -> str:
    """Look for a table."""
    return "Table 4 is free."


@tool(crash="idempotent")
async def note(text: str, context: ToolContext) -> str:
    """Take a note."""
    return f"Noted under {context.key}."


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid."


def booking_in(folder: Path) -> Any:
    """Return a tool that can be asked whether it ran: it looks for the file that it wrote."""

    def place(context: ToolContext) -> Path:
        return folder / context.key.replace("/", "-")

    async def was_booked(table: int, context: ToolContext) -> str:
        return "ran" if place(context).exists() else "did_not_run"

    @tool(crash="reconcile", reconcile=was_booked)
    async def book(table: int, context: ToolContext) -> str:
        """Book a table."""
        place(context).touch()
        return f"Table {table} is booked."

    return book


async def until_it_rests(conversation: Conversation, turn: Turn) -> Turn:
    """Answer whatever waits for a person."""
    while turn.status in ("in_doubt", "awaiting_user", "awaiting_approval"):
        if turn.status == "in_doubt":
            turn = await conversation.resolve(str(turn.call_id), "again")
        elif turn.status == "awaiting_approval":
            turn = await conversation.approve(str(turn.call_id), allowed=True)
        else:
            turn = await conversation.answer({question.question: "8:15 PM" for question in turn.questions})
    return turn


async def until_all_has_arrived(engine: Engine) -> None:
    """Wait for the last receipts."""
    while await engine.store.outbox(await engine.store.ids()):
        await asyncio.sleep(0.005)


async def dinner(database: Path) -> None:
    """A turn with tools of every contract, side by side and alone, something said on the way, and a question (P19)."""
    tools = [look, note, talk, pay, booking_in(database.parent), "ask_user_question"]
    async with Engine.open(database, model=model(), tools=tools, channels=[RecordingChannel()]) as engine:
        known = await engine.list()
        policy = presets.talk().model_copy(update={"parallel": 2})
        conversation = await engine.get(known[0].id) if known else await engine.create(policy=policy)
        turn = await conversation.send("A table for two.", message_id="m1")
        turn = await until_it_rests(conversation, turn)
        assert turn.status == "completed", turn
        await until_all_has_arrived(engine)


async def queue(database: Path) -> None:
    """Messages that wait, an approval, and the end of the conversation (P31)."""

    @tool(approval=True)
    async def send_mail() -> str:
        """Send a mail."""
        return "Sent."

    def say(request: Any) -> Any:
        newest = next(message for message in reversed(request.messages) if message["role"] == "user")
        answered = request.messages[-1]["role"] == "tool"
        return reply("Done.") if answered or "mail" not in str(newest) else call("send_mail")

    channels = [RecordingChannel(name="first"), RecordingChannel(name="second")]
    async with Engine.open(database, model=FunctionLlm(say), tools=[send_mail], channels=channels) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create(policy=Policy(when_busy="queue"))
        if conversation.state.type != "closed":
            first = asyncio.ensure_future(conversation.send("Send a mail.", message_id="m1"))
            second = asyncio.ensure_future(conversation.send("And then?", message_id="m2"))
            await until_it_rests(conversation, await first)
            await until_it_rests(conversation, await second)
            await conversation.close()
        await until_all_has_arrived(engine)


async def second_thoughts(database: Path) -> None:
    """A message that is edited while a tool runs, an answer that is made again, and a branch that returns."""

    @tool(crash="idempotent")
    async def ponder() -> str:
        """Think about it until somebody changes their mind."""
        await asyncio.sleep(3600)
        return "Hm."

    def say(request: Any) -> Any:
        newest = next(message for message in reversed(request.messages) if message["role"] == "user")
        return call("ponder") if "Ponder" in str(newest) else reply(f"To {newest['content']}")

    async with Engine.open(database, model=FunctionLlm(say), tools=[ponder], channels=[RecordingChannel()]) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create()
        await conversation.send("Ponder.", message_id="m1", wait=False)
        while await conversation.step_of("m2") is None and conversation.state.type != "tool_executing":
            await asyncio.sleep(0.001)
        edited = await conversation.edit("m1", "Never mind.", request_id="m2")
        again = await conversation.regenerate(request_id="again")
        await conversation.switch(edited.number, request_id="back")
        assert (edited.reply, again.reply) == ("To Never mind.", "To Never mind."), (edited, again)
        assert [turn.number for turn in await conversation.turns()] == [edited.number]
        assert [branch.number for branch in await conversation.branches()] == [1, again.number]
        await until_all_has_arrived(engine)


class Table(BaseModel):
    """A table that was booked."""

    number: int
    guests: list[str]


async def typed(database: Path) -> None:
    """Answers that are objects: one that goes back before it is valid, one beside a call, and one that waits for a
    person. The process that takes over does not know the type before the message comes again."""

    def say(request: Any) -> Any:
        tools = [message["content"] for message in request.messages if message["role"] == "tool"]
        if "Field required" not in str(tools):
            return call("final_result", number=4)
        if "is free" not in str(tools):
            return calls(call("look"), call("final_result", number=4, guests=[]))
        return call("final_result", number=5, guests=["Ada"])

    channel = RecordingChannel()
    async with Engine.open(database, model=FunctionLlm(say), tools=[look], channels=[channel]) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create(output=Table)
        first = await conversation.send("A table.", message_id="m1", output=Table)
        second = await conversation.send("Another one.", message_id="m2")
        third = await conversation.send("The same again.", message_id="m3", output=Table)
        assert first.output == Table(number=4, guests=[]), first
        assert second.output == third.output == Table(number=5, guests=["Ada"]), third
        assert (await conversation.replay()).divergence is None
        await until_all_has_arrived(engine)


async def stopped(database: Path) -> None:
    """An answer that is stopped while the model writes it: what it was to say by tool is kept, unless the process dies
    before that is stored."""
    has_shown = False

    class Endless:
        name = "endless"

        async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
            """Speak without an end, until the user says something else."""
            nonlocal has_shown
            if "And now?" in str(request.messages[-1]):
                return reply("Now it snows.")
            show(Token("It ra", "speech"))
            has_shown = True
            await asyncio.Event().wait()
            raise AssertionError

    async with Engine.open(database, model=Endless(), tools=["talk"], channels=[RecordingChannel()]) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create()
        await conversation.send("What is the weather like?", message_id="m1", wait=False)
        while conversation.state.type == "llm_requesting" and not has_shown and conversation.state.book.turn == 1:
            await asyncio.sleep(0.001)
        await conversation.cancel(turn=1, request_id="stop")
        second = await conversation.send("And now?", message_id="m2")
        first = (await conversation.turns())[0]
        said = [one.text for one in await conversation.transcript() if one.stopped]
        assert (first.status, second.reply) == ("cancelled", "Now it snows."), (first, second)
        assert first.final_content == (said[0] if said else None), first
        assert said in ([], ["It ra"]), said
        died = any(isinstance(entry.event, Resumed) for entry in await engine.store.entries(conversation.id))
        assert said or died
        await until_all_has_arrived(engine)


async def deletion(database: Path) -> None:
    """Calls that ask their user in the middle and go on: one may run twice, one may not."""

    @tool(crash="idempotent", exclusive=True)
    async def tidy(context: ToolContext) -> str:
        """Tidy up."""
        first = await context.ask([{"question": "Tidy up?"}])
        second = await context.ask([{"question": "Really?"}])
        return f"{first.action} and {second.action} under {context.key}"

    @tool(exclusive=True)
    async def delete(context: ToolContext) -> str:
        """Delete everything."""
        return (await context.ask([{"question": "Delete it?"}])).action

    said = [calls(call("tidy"), call("delete")), reply("Done.")]
    answers = FunctionLlm(lambda request: said[sum(message["role"] == "assistant" for message in request.messages)])
    async with Engine.open(database, model=answers, tools=[tidy, delete]) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create()
        turn = await until_it_rests(conversation, await conversation.send("Clean up.", message_id="m1"))
        results = [message.text for message in await conversation.transcript() if message.role == "tool"]
        assert turn.status == "completed", turn
        said, _, key = results[0].rpartition(" ")
        assert (said, unmarked(key)) == ("answered and answered under", f"{conversation.id}/2"), results
        assert results[1:] == ["answered"], results


@pytest.mark.slow
class TestEveryBoundary:
    """P19, P27, P31: before and after each commit, each call to the world, each answer and each delivery."""

    @pytest.mark.parametrize("scenario", [dinner, queue, second_thoughts, typed])
    def test_one_kill_loses_nothing(self, scenario: Any) -> None:
        """A killed process loses nothing that was acknowledged, and runs nothing twice that must not; the next
        process finishes everything."""
        report = crash_at_every_boundary(scenario, every=1 if LONG else 2)

        assert report.kills >= (30 if LONG else 15)

    def test_a_kill_around_the_end_of_a_stopped_answer_is_among_them(self) -> None:
        """P8: between the cancel and what the model had written, and behind that."""
        report = crash_at_every_boundary(stopped)

        wanted = {
            f"{place} {what} is stored" for place in ("before", "after") for what in ("user_cancel", "llm_stopped")
        }
        assert wanted | {"after request_llm is done"} <= report.boundaries.keys()

    def test_a_call_that_waits_for_a_person_is_left_to_its_contract(self) -> None:
        """A process that dies while a call waits, or just before or after, leaves a call that runs again under its key,
        or one that a person decides about."""
        report = crash_at_every_boundary(deletion, every=1 if LONG else 5)

        assert report.kills >= (30 if LONG else 6)

    @pytest.mark.parametrize("scenario", [dinner, queue, second_thoughts, typed, stopped])
    def test_two_kills_in_a_row_lose_nothing(self, scenario: Any) -> None:
        """The process that takes over is killed, too."""
        for seed in range(5 if LONG else 1):
            report = crash_at_every_boundary(scenario, every=1 if LONG else 6, deaths=2, seed=seed)

            assert report.kills >= 6

    @pytest.mark.deep
    def test_a_tool_that_runs_again_although_it_must_not_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The checks can fail: a machine that runs every tool again is found."""
        for module in (loop, replay):
            monkeypatch.setattr(module, "transition", takes_no_tool_for_harmful)

        with pytest.raises(CrashFound, match="runs again, and must not run twice"):
            crash_at_every_boundary(dinner)

    def test_a_tool_that_is_begun_twice_for_one_step_is_found(self) -> None:
        """Also where the log is in order, and only the outside world saw it."""
        with (
            wrapped_ports(PortWrappers(dispatcher=RunsToolsTwice)),
            pytest.raises(CrashFound, match="pay must run at"),
        ):
            crash_at_every_boundary(dinner)

    def test_a_request_that_is_acknowledged_before_it_is_stored_is_found(self) -> None:
        """A store that says that a message was taken, and stores it later."""
        with wrapped_ports(PortWrappers(store=stores_later)), pytest.raises((CrashFound, ScenarioFailed)):
            crash_at_every_boundary(dinner)


class RunsToolsTwice:
    """A dispatcher that runs each tool a second time, and keeps what comes of that to itself."""

    def __init__(self, dispatcher: InProcessDispatcher) -> None:
        self.dispatcher = dispatcher
        self.tasks: list[asyncio.Task[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dispatcher, name)

    def dispatch(self, effects: Any, context: EffectContext) -> None:
        """Start the effects, and run the tools among them once more."""
        self.dispatcher.dispatch(effects, context)
        again = [effect for effect in effects if isinstance(effect, ExecuteTool)]
        self.tasks += [asyncio.ensure_future(self.dispatcher.perform(effect, context)) for effect in again]


def stores_later(store: Any) -> Any:
    """The store, with logs that report a step as stored and store it afterwards."""
    return WrappedStore(store, StoresLater)


async def busy_day(database: Path) -> None:
    """Many conversations at once, for as long as the process lives."""
    tools = [look, note, talk, pay, booking_in(database.parent), "ask_user_question"]
    async with Engine.open(database, model=model(), tools=tools, channels=[RecordingChannel()]) as engine:
        taken_up = [await engine.get(summary.id) for summary in await engine.list() if summary.state != "idle"]
        await asyncio.gather(*map(go_on, taken_up))
        while True:
            policy = presets.talk().model_copy(update={"parallel": 2})
            conversations = [await engine.create(policy=policy) for _ in range(5)]
            await asyncio.gather(*map(go_on, conversations))


async def evening(database: Path) -> None:
    """Finish everything that the killed processes left."""
    tools = [look, note, talk, pay, booking_in(database.parent), "ask_user_question"]
    async with Engine.open(database, model=model(), tools=tools, channels=[RecordingChannel()]) as engine:
        await asyncio.gather(*[go_on(await engine.get(summary.id)) for summary in await engine.list()])
        await until_all_has_arrived(engine)


async def go_on(conversation: Conversation) -> None:
    """Run the one turn of a conversation, or the rest of it; a turn that was interrupted too often is retried."""
    turn = await until_it_rests(conversation, await conversation.send("A table for two.", message_id="m1"))
    while turn.status == "failed":
        turn = await until_it_rests(conversation, await conversation.retry())


async def meets_a_full_disk(database: Path) -> None:
    """Store a message; then the disk is full for the next message and for the answer to the first."""
    gate = Gate()
    async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("First.", message_id="m1"))
        await gate.arrived.wait()
        async with full_disk(engine):
            with pytest.raises(Refused):
                await conversation.send("Second.", message_id="m2", when_busy="queue")
            gate.opened.set()
            await asyncio.sleep(0.1)
            assert not turn.done()
            os.kill(os.getpid(), signal.SIGKILL)


async def has_room_again(database: Path) -> None:
    """Go on with a disk that works."""
    async with Engine.open(database, model=FunctionLlm(lambda _: "Done.")) as engine:
        conversation = await engine.get((await engine.list())[0].id)
        assert (await conversation.send("First.", message_id="m1")).reply == "Done."
        assert (await conversation.send("Second.", message_id="m2")).reply == "Done."
        said = [message.text for message in await conversation.transcript()]
        assert said == ["First.", "Done.", "Second.", "Done."]


@pytest.mark.slow
def test_a_process_that_is_killed_while_its_disk_is_full(database: Path, tmp_path: Path) -> None:
    """P28: a refused message is not stored, a lost answer is asked for again, and the conversation goes on."""
    journal = tmp_path / "journal.jsonl"

    assert not Process(meets_a_full_disk, database, journal).wait()
    assert check_after_crashes(database, journal, at_rest=False) == []
    assert Process(has_room_again, database, journal).wait()

    assert check_after_crashes(database, journal) == []


def lines_in(journal: Path) -> int:
    """Return how much a journal tells, 0 as long as there is none."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.mark.slow
def test_a_busy_process_that_is_killed_again_and_again(database: Path, tmp_path: Path) -> None:
    """P27: after SIGKILL at any moment, many times over one database, every invariant holds, and in the end everything
    is at rest."""
    chance, journal = Random(0), tmp_path / "journal.jsonl"
    kills = 25 if LONG else 6

    for kill in range(kills):
        process, end = Process(busy_day, database, journal), lines_in(journal) + chance.randint(10, 300)
        while lines_in(journal) < end:
            time.sleep(0.001)
        process.kill()
        assert not process.wait()
        assert check_after_crashes(database, journal, at_rest=False) == [], f"after kill {kill}"
    assert Process(evening, database, journal).wait()

    assert check_after_crashes(database, journal) == []


async def is_killed_in_a_turn(database: Path) -> None:
    """Ask the model, and die before it has answered."""
    gate = Gate()
    async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Never."))) as engine:
        conversation = await engine.create()
        await conversation.send("First.", message_id="m1", wait=False)
        await gate.arrived.wait()
        os.kill(os.getpid(), signal.SIGKILL)


async def waits_for_the_turn(database: Path) -> None:
    """Wait for a turn that another process began, as a server does after a restart."""
    async with Engine.open(database, model=FunctionLlm(lambda _: "Done.")) as engine:
        conversation = await engine.get((await engine.list())[0].id)
        turn = await conversation.wait()
        assert (turn.number, turn.status, turn.reply) == (1, "completed", "Done.")
        assert await conversation.send("First.", message_id="m1") == turn


def test_a_turn_whose_process_was_killed_is_waited_for(database: Path, tmp_path: Path) -> None:
    """`wait` in the next process returns the turn that the killed one began."""
    journal = tmp_path / "journal.jsonl"

    assert not Process(is_killed_in_a_turn, database, journal).wait()
    assert Process(waits_for_the_turn, database, journal).wait()

    assert check_after_crashes(database, journal) == []


async def asks_and_is_killed(database: Path) -> None:
    """Take an answer under an id, and die while the model writes what follows from it."""
    gate = Gate()

    async def ask_first(request: Any) -> Any:
        if request.messages[-1]["role"] == "user":
            return call("ask_user_question", questions=[QUESTION])
        await gate()

    async with Engine.open(database, model=FunctionLlm(ask_first), tools=["ask_user_question"]) as engine:
        conversation = await engine.create()
        turn = await conversation.send("A table.")
        answering = conversation.answer({"When?": "8:15 PM"}, call_id=turn.call_id, request_id="r1")
        await asyncio.wait([asyncio.ensure_future(answering), asyncio.ensure_future(gate.arrived.wait())], timeout=0)
        await gate.arrived.wait()
        os.kill(os.getpid(), signal.SIGKILL)


async def answers_again(database: Path) -> None:
    """Send the answer once more under its id, because nobody acknowledged it."""
    llm = FunctionLlm(lambda _: "Booked.")
    async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
        conversation = await engine.get((await engine.list())[0].id)
        ((asked,),) = [message.tool_calls for message in await conversation.transcript() if message.tool_calls]
        for _ in range(5):
            turn = await conversation.answer({"When?": "8:15 PM"}, call_id=asked.call_id, request_id="r1")
            assert (turn.status, turn.reply) == ("completed", "Booked.")
        taken = [entry for entry in await conversation.events() if getattr(entry.event, "event_id", "") == "r1"]
        assert len(taken) == 1


@pytest.mark.slow
def test_an_answer_whose_process_was_killed_is_sent_again(database: Path, tmp_path: Path) -> None:
    """It counts once, and its caller gets the turn that it led to."""
    journal = tmp_path / "journal.jsonl"

    assert not Process(asks_and_is_killed, database, journal).wait()
    assert Process(answers_again, database, journal).wait()

    assert check_after_crashes(database, journal) == []
