"""What a handle shows of the machine: the steps of the log, the requests to models, and the outbox. The steps are read
a page at a time, and none twice for somebody who goes forward.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import call_of
from turnwise import (
    Conversation,
    Engine,
    InvalidInput,
    ModelRequest,
    Policy,
    RequestView,
    Retry,
    StoreError,
    presets,
    tool,
)
from turnwise.effects.model.request import CONTEXT_TITLE
from turnwise.engine.inspection import StepReader
from turnwise.persistence.errors import Damaged, StorageFailed
from turnwise.states import Answer, LlmResponse, LogEntry, RequestLlm
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, ScriptedLlm, call, calls, failure, reply

from ..support.engine_scenarios import Gate, until
from ..support.scenarios.repeated_requests import engine_at
from ..support.store_internals import query


@tool
async def find_table(cuisine: str) -> str:
    """Look for a free table."""
    return f"A table at the {cuisine} place."


class Recorder:
    """A model that answers by a script, and keeps the requests that it was sent."""

    name = "recorder"
    window = 100_000

    def __init__(self, *answers: Any) -> None:
        self._script = ScriptedLlm(list(answers))

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests that ask for the next answer, in order."""
        return [request for request in self._script.requests if request.purpose == "converse"]

    async def complete(self, request: ModelRequest, show: Any) -> Any:
        """Answer."""
        return await self._script.complete(request, show)


async def views(conversation: Conversation) -> list[RequestView]:
    """Return the requests of all steps, in order."""
    asking = [step.seq for step in await conversation.steps() if step.requests]
    return [await conversation.model_request(seq) for seq in asking]


class Log:
    """Entries as a store reads them, and the number of those that were read so far."""

    def __init__(self, entries: Sequence[LogEntry]) -> None:
        self.entries = entries
        self.read = 0
        self.error: StoreError | None = None

    async def __call__(self, after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
        """Read entries."""
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        found = [entry for entry in self.entries if after < entry.seq <= (up_to or len(self.entries))]
        self.read += len(found)
        return found


async def log_of(turns: int) -> Log:
    """Return the log of a conversation that had so many turns, of two steps each."""
    async with Engine.open("sqlite://", model=FunctionLlm(lambda _: reply("Hello."))) as engine:
        conversation = await engine.create(system="Be brief.")
        for turn in range(turns):
            await conversation.send(f"Message {turn}")
        return Log(await conversation.events())


class TestSteps:
    """The steps as people look at them."""

    async def test_each_step_has_its_event_its_effects_and_the_state_after_it(self, database: Path) -> None:
        """They are those of the log, and the last state is the one in which the conversation rests."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Pay")
            await conversation.approve(call_of(conversation, "call_1_0"), True)
            await conversation.send("Ask?")

            steps = await conversation.steps()
            log = await conversation.events()

            assert [step.seq for step in steps] == list(range(1, len(log) + 1))
            assert [step.event["type"] for step in steps] == [one.event.type for one in log]
            assert [step.at for step in steps] == [one.event.at for one in log]
            assert [[one["type"] for one in step.effects] for step in steps] == [
                [effect.type for effect in one.effects] for one in log
            ]
            assert steps[-1].state == await conversation.view()
            assert steps[-1].state.questions

    async def test_a_step_names_the_junctions_that_it_went_through(self, database: Path) -> None:
        """In the order in which it went through them; a row that leads straight to a state has none."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")
            await conversation.decline()

            passed = {step.event["type"]: step.passed for step in await conversation.steps()}

            assert passed == {
                "opened": (),
                "user_message": ("BEGIN_TURN", "AFTER_PROFILE", "FIT_WINDOW"),
                "llm_response": ("NEXT_IN_ROUND",),
                "ask_user_question_pending": (),
                "user_cancel": ("STOP", "REST"),
            }

    async def test_pages_are_parts_of_the_whole(self, database: Path) -> None:
        """Whatever the size of a page, the pages together are all steps, and a page behind the end is empty."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Pay")
            await conversation.approve(call_of(conversation, "call_1_0"), False)
            steps = await conversation.steps()

            for size in (1, 2, 3, len(steps), 1000):
                pages = [await conversation.steps(after, size) for after in range(0, len(steps), size)]
                assert tuple(step for page in pages for step in page) == steps
            assert await conversation.steps(len(steps)) == ()
            assert await conversation.steps(10**30, 10**30) == ()
            assert await conversation.steps(0, 10**30) == steps
            assert await conversation.steps(0, 0) == ()

    @pytest.mark.parametrize("arguments", [(-1,), ("1",), (True,), (0, -1), (0, 1.5)])
    async def test_what_is_no_number_of_steps_is_refused(self, arguments: Any, database: Path) -> None:
        """With a sentence that names the argument."""
        async with engine_at(database) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput, match=r"^(after|limit) is a whole number"):
                await conversation.steps(*arguments)

    async def test_they_are_json(self, database: Path) -> None:
        """Whatever stands in the texts."""
        text = '</script>\u2028 "\\" \x00 😀'
        async with engine_at(database) as engine:
            conversation = await engine.create(system=text, metadata={"note": [text, None, 1.5]})
            await conversation.send(text)

            data = [step.data for step in await conversation.steps()]

            assert json.loads(json.dumps(data, allow_nan=False)) == data
            assert data[1]["event"]["text"] == text

    async def test_damage_before_the_page_is_reported(self, database: Path) -> None:
        """A state that follows from a changed event would not be the one that was stored."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await query(engine.store, 'UPDATE events SET payload = \'{"text": "Bye"}\' WHERE seq = 2')  # type: ignore[arg-type]

            with pytest.raises(Damaged) as damaged:
                await conversation.steps(2)

            assert damaged.value.seq == 2
            assert [step.seq for step in await conversation.steps(0, 1)] == [1]

    async def test_reading_does_not_hold_up_others(self, database: Path) -> None:
        """The steps are computed beside the event loop."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            turns = 0
            reading = asyncio.ensure_future(conversation.steps())
            while not reading.done():
                turns += 1
                await asyncio.sleep(0)

            assert turns > 2
            assert len(reading.result()) == 3


class TestTheStepOfARequest:
    """`step_of` finds a request without reading the log."""

    async def test_it_is_found_by_its_id(self, database: Path) -> None:
        """That of a message or of another request, also by an engine that has not seen it; nobody's is None."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Pay", message_id="m")
            await conversation.approve(call_of(conversation, "call_1_0"), True, request_id="a")
            await conversation.cancel(request_id="without effect")
            taken = {getattr(one.event, "event_id", None): one.seq for one in await conversation.events()}

        async with engine_at(database) as engine:
            again = await engine.get(conversation.id)
            found = [await again.step_of(one) for one in ("m", "a", "without effect", "nobody's")]

        assert found == [taken["m"], taken["a"], None, None]


class TestRequests:
    """The request of a step is the one that the model was sent."""

    async def test_every_request_of_a_varied_conversation(self, database: Path) -> None:
        """Tools, thoughts, a failed attempt, a steered message, other tools and other rules, and a summary in place of
        the history: each request is written as it was sent, and its digest proves it."""
        gate = Gate()

        @tool
        async def wait_for_steering() -> str:
            """Wait."""
            await gate()
            return "Steered."

        model = Recorder(
            calls(call("find_table", cuisine="Thai"), call("find_table", cuisine="Greek")),
            reply("Two tables.", thinking="Hm."),
            failure("rate_limit", "Too many."),
            call("wait_for_steering"),
            reply("Fine."),
            reply("A summary."),
            reply("After the summary."),
            reply("With other tools."),
        )
        policy = Policy(retry=Retry(attempts=2, base=0.0), when_busy="steer")
        async with Engine.open(database, model=model, tools=[find_table, wait_for_steering], policy=policy) as engine:
            conversation = await engine.create(system="You book tables.", tools=["find_table", "wait_for_steering"])
            await conversation.send("A table")
            await conversation.send("Go", wait=False)
            await gate.arrived.wait()
            await conversation.send("Quickly!", wait=False)
            gate.opened.set()
            await conversation.wait()
            await conversation.compact()
            await conversation.send("And now?")
            await conversation.set_tools(["find_table"])
            await conversation.send("And then?")

            found = await views(conversation)

            assert [view.request for view in found] == model.requests
            # The request that failed has no answer, so no digest tells what was sent.
            assert [view.is_exact for view in found] == [True, True, None, True, True, True, True]

    @pytest.mark.parametrize("preset", [presets.reply_flow(), presets.talk(), presets.explicit_response()])
    async def test_under_the_rules_of_a_preset(self, preset: Policy, database: Path) -> None:
        """Also where a profile is chosen, the last minutes are sent, or the request states the time: that note is not
        part of the log, so it is left out and said to be missing."""
        script = {"route": reply("general"), "enrich": reply("{}"), "reword": reply("Hello.")}

        sent: list[ModelRequest] = []

        def answer(request: ModelRequest) -> Any:
            if request.purpose == "converse":
                sent.append(request)
            return script.get(request.purpose, reply("Hello."))

        tools = [find_table, "respond_to_user", "talk", "mark_work_complete"]
        async with Engine.open(database, model=FunctionLlm(answer), tools=tools) as engine:
            conversation = await engine.create(policy=preset)
            await conversation.send("Hi")
            await conversation.send("And again")

            found = await views(conversation)

            assert len(found) == len(sent) >= 2
            for view, request in zip(found, sent, strict=True):
                notes = str(request.messages).count(CONTEXT_TITLE)
                assert view.is_exact
                assert view.has_fresh_context == bool(notes) == preset.fresh_context
                assert CONTEXT_TITLE not in str(view.request.messages)
                if not notes:
                    assert view.request == request

    async def test_a_request_under_way_is_shown_before_there_is_an_answer(self, database: Path) -> None:
        """Nobody knows yet whether the digest is the same."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait", wait=False)
            await gate.arrived.wait()

            (view,) = await views(conversation)

            assert view.is_exact is None
            assert view.request.messages[-1]["content"] == "Wait"
            gate.opened.set()
            await conversation.wait()
            assert (await views(conversation))[0].is_exact

    async def test_looking_at_it_does_not_change_later_requests(self, database: Path) -> None:
        """The kept beginning of the conversation's requests stays as it was, also if older requests are looked at
        between two of them."""
        model = Recorder(*(reply(f"Answer {number}") for number in range(6)))
        async with Engine.open(database, model=model) as engine:
            conversation = await engine.create(system="Be brief.")
            for number in range(6):
                await conversation.send(f"Message {number}")
                await views(conversation)

            assert [view.is_exact for view in await views(conversation)] == [True] * 6
            assert [view.request for view in await views(conversation)] == model.requests

    async def test_an_engine_with_other_tools_says_that_it_is_not_exact(self, database: Path) -> None:
        """The messages follow from the log, but the definitions of tools are those of now."""
        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Hi.")), tools=[find_table]) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            conversation_id = conversation.id
        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Hi."))) as engine:
            conversation = await engine.get(conversation_id)

            (view,) = await views(conversation)

            assert view.is_exact is False
            assert view.request.tools == ()

    async def test_an_answer_of_an_own_performer_has_no_digest(self, database: Path) -> None:
        """What it has sent is not known here."""

        async def perform(effect: RequestLlm, context: Any) -> Answer:
            return LlmResponse(effect_id=effect.effect_id, at=effect.at, content="Hi.", finish_reason="stop")

        async with Engine.open(database, performers={RequestLlm: perform}) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")

            assert [view.is_exact for view in await views(conversation)] == [None]

    async def test_a_copy_shows_the_requests_of_the_original(self, database: Path) -> None:
        """With the same digests."""
        async with engine_at(database) as engine:
            original = await engine.create(system="Be brief.")
            await original.send("Pay")
            await original.approve(call_of(original, "call_1_0"), True)

            copy = await original.fork()

            assert [view.data | {"seq": 0} for view in await views(copy)] == [
                view.data | {"seq": 0} for view in await views(original)
            ]
            assert {view.is_exact for view in await views(copy)} == {True}

    @pytest.mark.parametrize("seq", [0, 1, 3, 4, 10**9])
    async def test_a_step_without_a_request_is_refused(self, seq: int, database: Path) -> None:
        """So is a step that there is not."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")

            with pytest.raises(InvalidInput, match=f"step {seq}"):
                await conversation.model_request(seq)

    async def test_it_is_json(self, database: Path) -> None:
        """With everything that a page shows of it."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")

            data = (await conversation.model_request(2)).data

            assert json.loads(json.dumps(data)) == data
            assert {"model", "messages", "tools", "tool_choice", "settings", "is_exact"} <= data.keys()


class TestOutbox:
    """What is said and not acknowledged."""

    async def test_a_delivery_waits_in_it_until_it_is_taken(self, database: Path) -> None:
        """With its channel, its step, and how often it was tried in vain."""
        clock = ManualClock()
        refusals = [OSError("The pager is off.")]

        def refuse_once(_: Any) -> None:
            if refusals:
                raise refusals.pop()

        channel = RecordingChannel(refuse_once, name="pager")
        async with Engine.open(
            database, model=FunctionLlm(lambda _: reply("Hi.")), channels=[channel], clock=clock
        ) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await engine.delivered()

            (waiting,) = await conversation.outbox()

            assert (waiting.target, waiting.seq, waiting.attempts) == ("pager", 3, 1)
            assert json.loads(json.dumps(waiting.data)) == waiting.data
            assert waiting.data["next_attempt"] is not None
            await clock.advance(3600)
            await until(lambda: bool(channel.deliveries))
            await engine.delivered()
            assert await conversation.outbox() == ()


async def test_each_new_step_costs_itself() -> None:
    """Whoever follows a conversation reads the newest step after each commit."""
    log = await log_of(20)
    whole = await StepReader(log).page(0, None)
    reader, entries = StepReader(log), log.entries

    log.read = 0
    for seq in range(1, len(entries) + 1):
        log.entries = entries[:seq]
        assert await reader.page(seq - 1, None) == whole[seq - 1 : seq]

    assert log.read == len(entries)


async def test_pages_are_read_beside_somebody_who_follows() -> None:
    """Each of the two goes on from where it was."""
    log = await log_of(20)
    reader = StepReader(log)
    whole = await reader.page(0, None)
    log.read = 0

    for after in range(0, 40, 10):
        assert await reader.page(after, 10) == whole[after : after + 10]
        assert await reader.page(41, None) == ()

    assert log.read == 40


async def test_who_goes_back_begins_again() -> None:
    """States are not stored, so there is no other way to an earlier step."""
    log = await log_of(5)
    reader = StepReader(log)
    whole = await reader.page(0, None)

    assert await reader.page(3, 2) == whole[3:5]
    assert await reader.page(1, 1) == whole[1:2]
    assert await reader.page(0, None) == whole


async def test_readers_at_the_same_time() -> None:
    """They do not disturb each other, whoever is cancelled meanwhile."""
    log = await log_of(10)
    reader = StepReader(log)
    whole = await reader.page(0, 5)
    asking = [asyncio.ensure_future(reader.page(5, 3)) for _ in range(6)]
    await asyncio.sleep(0)
    asking[0].cancel()

    pages = await asyncio.gather(*asking[1:])

    assert len(set(map(str, pages))) == 1
    assert [step.seq for step in whole + pages[0]] == list(range(1, 9))


async def test_a_store_that_fails_for_a_moment() -> None:
    """The next attempt goes on from the place that was kept."""
    log = await log_of(10)
    reader = StepReader(log)
    await reader.page(0, 10)
    log.error = StorageFailed("The disk is away.")
    with pytest.raises(StorageFailed):
        await reader.page(10, 5)
    log.error, log.read = None, 0

    assert [step.seq for step in await reader.page(10, 5)] == [11, 12, 13, 14, 15]
    assert log.read == 5


async def test_a_step_that_comes_out_differently() -> None:
    """It is reported at each attempt, by its number; the steps before it can be read."""
    log = await log_of(3)
    entries = list(log.entries)
    entries[4] = LogEntry(5, entries[4].event, entries[4].effects[:-1], entries[4].ended, entries[4].turn)
    log.entries = entries
    reader = StepReader(log)

    for _ in range(2):
        with pytest.raises(Damaged) as damaged:
            await reader.page(2, None)
        assert damaged.value.seq == 5
    assert [step.seq for step in await reader.page(2, 2)] == [3, 4]
