"""A copy of a conversation goes on from a rest of the original in another way, and the original is not touched."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from turnwise import CannotForkThere, Engine, InvalidInput, Refused, UnknownConversation
from turnwise.persistence.codec import GENESIS, encode
from turnwise.persistence.errors import Damaged, StoreConflict
from turnwise.persistence.maintenance import fork as forking
from turnwise.persistence.maintenance.fork import Cut, ForkPoint, fork
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.ports import Store
from turnwise.persistence.records import EventRow, Origin
from turnwise.states import (
    Closed,
    CloseRequested,
    Failed,
    Idle,
    LlmFailed,
    LlmStopped,
    Schedule,
    StoreError,
    transcript,
)
from turnwise.testing import Trace, traces
from turnwise.testing.doubles import FunctionLlm, RecordingChannel, ScriptedLlm, call, failure, reply

from ...support.databases import BOTH_STORES, Database, change
from ...support.engine_scenarios import QUESTION, Gate, answers_after, until
from ...support.walks import NOON, Walk

pytestmark = BOTH_STORES

LATER = NOON + timedelta(days=1)


async def stored(store: Store, conversation_id: str) -> Any:
    """A conversation as it stands in the tables, but for its key."""
    rows = await store.read_record(conversation_id)
    return rows.head, rows.steps


class TestWhereItLands:
    """On a rest, a state in which nothing is under way, or between two turns."""

    @pytest.mark.parametrize(("at", "seq"), [(1, 1), (5, 5), (9, 9), (None, 9)])
    async def test_a_rest(self, at: int | None, seq: int, store: Store) -> None:
        """Two turns are over, and a third one, which stays with the original, is under way."""
        await Walk().turn("tonight").turn("tomorrow").say("And on Sunday?").call("find_table").into(store)

        landing = await fork(store, "walk", "copy", at, LATER)

        assert landing.seq == seq
        assert isinstance(landing.state, Idle)
        assert (await store.load("copy")).state == landing.state

    @pytest.mark.parametrize(("at", "steps"), [(2, (1, 5)), (4, (1, 5)), (6, (5, 9)), (8, (5, 9)), (11, (9,))])
    async def test_within_a_turn_it_is_refused(self, at: int, steps: tuple[int, ...], store: Store) -> None:
        """The copy would lose the message of the turn; the nearest steps that are possible are named, and nothing is
        stored."""
        await Walk().turn("tonight").turn("tomorrow").say("And on Sunday?").call("find_table").into(store)

        with pytest.raises(CannotForkThere) as refused:
            await fork(store, "walk", "copy", at, LATER)

        assert refused.value.steps == steps
        assert all(f"step {step}" in refused.value.sentence for step in (at, *steps))
        assert [summary.id for summary in await store.list()] == ["walk"]

    async def test_between_two_turns(self, store: Store) -> None:
        """A message waited, and its turn began in the step that ended the one before. The copy has that turn, to the
        step, and not the message; both replay as they were stored."""
        walk = Walk().say("tonight").say("tomorrow", "queue").say("sunday", "queue")
        walk.reply("At eight.")
        between = walk.state.book.seq
        await walk.reply("At nine.").into(store)

        landing = await fork(store, "walk", "copy", between, LATER)

        original, copy = await store.load("walk"), await store.load("copy")
        record = await store.read_record("copy")
        assert (landing.seq, len(landing.withdrawn), landing.state) == (between, 2, copy.state)
        assert isinstance(copy.state, Idle)
        assert [message.text for message in transcript(await store.entries("copy"))] == ["tonight", "At eight."]
        assert record.steps[: between - 1] == (await store.read_record("walk")).steps[: between - 1]
        assert (record.origin, record.outbox) == (Origin("walk", between - 1), ())
        assert original.state == walk.state
        for name in ("walk", "copy"):
            assert (await replay_conversation(store, name)).divergence is None

    async def test_no_turn_that_has_ended_is_lost_while_the_next_one_is_under_way(self, store: Store) -> None:
        """Without a step the copy ends with the newest turn that has ended, though there was no rest behind it."""
        walk = Walk().say("tonight").say("tomorrow", "queue").reply("At eight.")
        await walk.into(store)

        landing = await fork(store, "walk", "copy", None, LATER)

        assert (landing.seq, landing.state.book.turn) == (walk.state.book.seq, 1)
        with pytest.raises(CannotForkThere):
            await fork(store, "walk", "before", 3, LATER)

    async def test_a_close_that_ended_a_turn_leaves_only_what_was_before(self, store: Store) -> None:
        """The turn that it cancelled cannot be copied, so whoever asks for it is told."""
        walk = Walk().turn("tonight").say("tomorrow").request(CloseRequested).answer(LlmStopped, content="On Sun")
        await walk.into(store)
        assert isinstance(walk.state, Closed)

        with pytest.raises(CannotForkThere) as refused:
            await fork(store, "walk", "copy", None, LATER)

        assert refused.value.steps == (5,)
        assert (await fork(store, "walk", "copy", 5, LATER)).seq == 5

    async def test_a_turn_that_is_being_stopped_stays_with_the_original(self, store: Store) -> None:
        """As every turn under way does, also where the conversation ends with it."""
        await Walk().turn("tonight").say("tomorrow").request(CloseRequested).into(store)

        assert (await fork(store, "walk", "copy", None, LATER)).seq == 5

    async def test_a_wait_for_a_person_is_no_rest(self, store: Store) -> None:
        """P19: the question belongs to the original, and so does its answer."""
        await Walk().turn("tonight").question().into(store)

        assert (await fork(store, "walk", "copy", None, LATER)).seq == 5

    async def test_a_closed_conversation_is_copied_as_it_was_before(self, store: Store) -> None:
        """So that there is something to go on with."""
        walk = Walk().turn("tonight").request(CloseRequested)
        await walk.into(store)
        assert isinstance(walk.state, Closed)

        landing = await fork(store, "walk", "copy", 6, LATER)

        assert (landing.seq, type(landing.state)) == (5, Idle)

    async def test_a_failed_turn_is_a_rest(self, store: Store) -> None:
        """P11: it can be tried again, by both."""
        walk = Walk().say("hello").answer(LlmFailed, kind="authentication", sentence="The key was refused.")
        await walk.into(store)

        landing = await fork(store, "walk", "copy", None, LATER)

        assert landing == ForkPoint(3, walk.state)
        assert isinstance(landing.state, Failed)

    @pytest.mark.parametrize("at", [0, -1, True, 2.0, "2", 2**70])
    async def test_a_step_that_there_is_not_is_refused(self, at: Any, store: Store) -> None:
        """P33: in one sentence, and nothing is stored."""
        await Walk().turn("tonight").into(store)

        with pytest.raises(InvalidInput) as refused:
            await fork(store, "walk", "copy", at, LATER)

        assert refused.value.sentence.count(".") == 1
        assert [summary.id for summary in await store.list()] == ["walk"]

    async def test_a_step_beyond_the_newest_is_named(self, store: Store) -> None:
        """And so is the newest."""
        await Walk().turn("tonight").into(store)

        with pytest.raises(InvalidInput, match=r"^The conversation cannot be forked at step 6: its newest is 5\.$"):
            await fork(store, "walk", "copy", 6, LATER)


class TestTheCopy:
    """What stands in the tables."""

    async def test_has_the_steps_of_the_original_to_the_byte(self, store: Store) -> None:
        """A replay of the copy gives what a replay of the original gave, and it rests in the state of its last step."""
        await Walk().turn("tonight").turn("tomorrow").into(store)

        await fork(store, "walk", "copy", 5, LATER)

        original, copy = await store.read_record("walk"), await store.read_record("copy")
        report = await replay_conversation(store, "copy")
        assert copy.steps == original.steps[:5]
        assert (report.events, report.divergence) == (5, None)

    async def test_waits_for_nothing(self, store: Store) -> None:
        """It is at rest, so no restart has anything to do about it."""
        await Walk().turn("tonight").say("And tomorrow?").into(store)

        await fork(store, "walk", "copy", None, LATER)

        rest = (await store.read_record("copy")).head
        assert (rest.waits, rest.next_timer, rest.state_type) == (False, None, "idle")
        assert set(await store.claim(10)) <= {"walk"}

    async def test_leaves_the_original_as_it_was(self, store: Store) -> None:
        """Not a byte of it changes."""
        await Walk().turn("tonight").say("And tomorrow?").into(store)
        before = await stored(store, "walk")

        await fork(store, "walk", "copy", None, LATER)

        assert await stored(store, "walk") == before

    async def test_remembers_where_it_came_from(self, store: Store) -> None:
        """A copy of a copy names the copy; the original names nobody."""
        await Walk().turn("tonight").turn("tomorrow").into(store)
        await fork(store, "walk", "copy", 5, LATER)
        await fork(store, "copy", "copy of the copy", 1, LATER)

        origins = {summary.id: summary.origin for summary in await store.list()}

        assert origins == {"walk": None, "copy": Origin("walk", 5), "copy of the copy": Origin("copy", 1)}

    async def test_takes_no_delivery_along(self, store: Store, database: Database) -> None:
        """What is still to be said to the user is said once, by the original."""
        await Walk().turn("tonight").into(store)
        change(database, "INSERT INTO outbox VALUES (1, 'voice', 3, 5, 0, NULL, 0)")

        await fork(store, "walk", "copy", None, LATER)

        assert [left.conversation_id for left in await store.outbox(await store.ids())] == ["walk"]

    async def test_outlives_the_original(self, store: Store) -> None:
        """And the other way round."""
        await Walk().turn("tonight").into(store)
        await fork(store, "walk", "copy", None, LATER)
        await fork(store, "walk", "second copy", None, LATER)

        await store.delete("walk")
        await store.delete("second copy")

        assert [(summary.id, summary.origin) for summary in await store.list()] == [("copy", Origin("walk", 5))]
        assert (await replay_conversation(store, "copy")).divergence is None

    async def test_has_no_schedule(self, store: Store) -> None:
        """Otherwise both would wake up and do the same; one step more takes it away, and the original keeps it."""
        wake, schedule = NOON + timedelta(hours=1), Schedule(every=3600, task="Look around.")
        walk = Walk(role="background", schedule=schedule, next_wake=wake).turn("tonight")
        await walk.into(store)

        landing = await fork(store, "walk", "copy", None, LATER)

        original, copy = await store.load("walk"), await store.load("copy")
        assert (original.state.book.wake, original.context.schedule) == (wake, schedule)
        assert (copy.state.book.wake, copy.context.schedule) == (None, None)
        assert copy.state.book.seq == landing.seq + 1
        assert await store.scheduled(10) == (("walk", wake),)
        assert (await replay_conversation(store, "copy")).divergence is None

    async def test_goes_on(self, store: Store) -> None:
        """Its log takes the next step."""
        walk = Walk().turn("tonight")
        await walk.into(store)
        await fork(store, "walk", "copy", None, LATER)
        loaded = await store.load("copy")

        walk.say("And tomorrow?")
        await loaded.log.append(*walk.steps[-1])

        assert (await replay_conversation(store, "copy")).events == 6


class TestWhatCannotBeCopied:
    """Nothing is stored then."""

    async def test_is_nobody(self, store: Store) -> None:
        """There must be a conversation."""
        with pytest.raises(UnknownConversation):
            await fork(store, "nobody", "copy", None, LATER)

    async def test_is_a_log_that_is_damaged(self, store: Store, database: Database) -> None:
        """Up to the damage it can be copied."""
        await Walk().turn("tonight").turn("tomorrow").into(store)
        change(database, """UPDATE events SET payload = '{"text":"never said"}' WHERE seq = 6""")

        with pytest.raises(StoreError, match="Step 6 is not what was stored"):
            await fork(store, "walk", "copy", None, LATER)
        assert (await fork(store, "walk", "sound copy", 5, LATER)).seq == 5
        assert {summary.id for summary in await store.list()} == {"walk", "sound copy"}

    async def test_is_a_log_that_cannot_be_read(self, store: Store, database: Database) -> None:
        """The error is about the damage."""
        await Walk().turn("tonight").into(store)
        change(database, "UPDATE events SET payload = 'not JSON' WHERE seq = 3")

        with pytest.raises(Damaged, match="Step 3 cannot be read"):
            await fork(store, "walk", "copy", None, LATER)

    async def test_is_a_log_without_steps(self, store: Store, database: Database) -> None:
        """There is no rest to land on."""
        await Walk().into(store)
        change(database, "DELETE FROM events")

        with pytest.raises(StoreError, match="it has no step"):
            await fork(store, "walk", "copy", None, LATER)

    async def test_is_what_has_the_id_already(self, store: Store) -> None:
        """Nobody is overwritten."""
        await Walk().turn("tonight").into(store)
        before = await stored(store, "walk")

        with pytest.raises(StoreConflict):
            await fork(store, "walk", "walk", 1, LATER)

        assert await stored(store, "walk") == before

    async def test_is_what_was_deleted_meanwhile(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """What somebody deleted while it was being read does not come back as a copy."""
        await Walk().turn("tonight").into(store)
        find_cut, loop = forking.find_cut, asyncio.get_running_loop()

        def delete_first(steps: Any, at: int | None) -> Cut:
            asyncio.run_coroutine_threadsafe(store.delete("walk"), loop).result()
            return find_cut(steps, at)

        monkeypatch.setattr(forking, "find_cut", delete_first)

        with pytest.raises(UnknownConversation):
            await fork(store, "walk", "copy", None, LATER)
        assert await store.list() == ()


class TestInAnEngine:
    """`Conversation.fork`."""

    async def test_both_go_on_by_themselves(self, database: Database) -> None:
        """The copy knows what was said up to the step, and what is said to one of them the other does not hear."""
        heard: list[list[str]] = []

        def answer(request: Any) -> str:
            heard.append([message["content"] for message in request.messages])
            return f"Answer {len(heard)}."

        async with Engine.open(database, model=FunctionLlm(answer)) as engine:
            original = await engine.create()
            await original.send("One")
            await original.send("Two")
            copy = await original.fork(at=3)
            await copy.send("Another two")
            await original.send("Three")
            said = [message.text for message in await copy.transcript()]
            reports = [await one.replay() for one in (original, copy)]

        assert said == ["One", "Answer 1.", "Another two", "Answer 3."]
        assert heard[-1] == ["One", "Answer 1.", "Two", "Answer 2.", "Three"]
        assert [report.divergence for report in reports] == [None, None]

    async def test_it_stands_where_it_landed(self, database: Database) -> None:
        """So the caller sees which step it was."""
        async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            original = await engine.create(system="You book tables.")
            await original.send("One")

            copy = await original.fork(at=1)

        assert copy.id != original.id
        assert copy.state.book.seq == 1

    async def test_before_a_message_that_waited(self, database: Database) -> None:
        """The copy has the turn before it whole, delivers nothing a second time, and takes another message instead."""
        gate, channel = Gate(), RecordingChannel()
        answers: list[Any] = [answers_after(gate, "First."), *[lambda _: "Second."] * 2]
        llm = FunctionLlm(lambda request: answers.pop(0)(request))
        async with Engine.open(database, model=llm, channels=[channel]) as engine:
            original = await engine.create()
            sending = asyncio.ensure_future(original.send("One"))
            await gate.arrived.wait()
            waiting = asyncio.ensure_future(original.send("Two", when_busy="queue"))
            await until(lambda: bool(original.state.inbox))
            gate.opened.set()
            turns = await asyncio.gather(sending, waiting)
            ends = [entry.seq for entry in await original.events() if entry.ended is not None]
            with pytest.raises(CannotForkThere) as refused:
                await original.fork(at=ends[0] - 1)
            copy = await original.fork(at=ends[0])
            await copy.send("Another two")
            said = [message.text for message in await copy.transcript()]
            reports = [await one.replay() for one in (original, copy)]

        assert [turn.number for turn in turns] == [1, 2]
        assert refused.value.steps == (1, ends[0])
        assert said == ["One", "First.", "Another two", "Second."]
        assert channel.texts == ["First.", "Second.", "Second."]
        assert [report.divergence for report in reports] == [None, None]

    async def test_the_original_may_be_busy(self, database: Database) -> None:
        """Its turn goes on and ends as if nothing had happened; the copy has the turns before."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "At last."))) as engine:
            original = await engine.create()
            sending = asyncio.ensure_future(original.send("Hello"))
            await gate.arrived.wait()
            copy = await original.fork()
            gate.opened.set()
            turn = await sending

        assert turn.reply == "At last."
        assert (copy.state.book.seq, copy.state.type) == (1, "idle")

    async def test_a_question_stays_with_the_original(self, database: Database) -> None:
        """P19: the copy is asked nothing, and the original takes the answer."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])
        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            original = await engine.create()
            await original.send("A table")
            copy = await original.fork()
            with pytest.raises(Refused):
                await copy.answer({"When?": "6:30 PM"})
            turn = await original.answer({"When?": "6:30 PM"})

        assert turn.reply == "Booked."

    async def test_a_failed_turn_is_tried_again_by_the_copy(self, database: Database) -> None:
        """P11: with another engine's model, say."""
        async with Engine.open(database, model=ScriptedLlm([failure("authentication"), reply("Hello.")])) as engine:
            original = await engine.create()
            await original.send("Hi")
            turn = await (await original.fork()).retry()

        assert turn.reply == "Hello."
        assert original.state.type == "failed"

    async def test_it_is_there_after_a_restart(self, database: Database) -> None:
        """P31: with its transcript, and with where it came from."""
        async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            original = await engine.create()
            await original.send("One")
            copy = await original.fork()
        async with Engine.open(database, model=FunctionLlm(lambda _: "No.")) as engine:
            again = await engine.get(copy.id)
            turn = await again.send("Two")
            origins = {summary.id: summary.origin for summary in await engine.list()}

        assert turn.reply == "No."
        assert origins[copy.id] == Origin(original.id, 3)

    async def test_the_same_request_is_known_to_both(self, database: Database) -> None:
        """P34: a message that was sent before the fork is not said twice to the copy either."""
        async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            original = await engine.create()
            first = await original.send("One", message_id="m1")
            again = await (await original.fork()).send("One", message_id="m1")

        assert again.number == first.number

    def test_programs_without_a_loop_fork_too(self, database: Database) -> None:
        """The blocking conversation hands out a blocking one."""
        with Engine.open_blocking(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            original = engine.create()
            original.send("One")

            copy = original.fork()

            assert copy.send("Two").reply == "Yes."

    async def test_of_a_closed_conversation(self, database: Database) -> None:
        """What can no longer be talked to can be copied."""
        async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            original = await engine.create()
            await original.send("One")
            await original.close()
            turn = await (await original.fork()).send("Two")

        assert turn.number == 2


def test_the_message_of_a_walk_is_what_it_seems() -> None:
    """The steps that the tests above count: opened, message, call, result, answer."""


class TestUnderAnId:
    """`Conversation.fork(request_id=…)`: a fork that is asked for again."""

    async def test_requests_at_once_make_one_copy(self, database: Database) -> None:
        """Clients that repeat a request before its answer came all get the same copy."""
        async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            original = await engine.create()
            await original.send("One")
            copies = await asyncio.gather(*(original.fork(request_id="r") for _ in range(5)))
            of_copy = await copies[0].fork(request_id="r")
            origin = await of_copy.origin()
            listed = await engine.list()

        assert len({copy.id for copy in copies}) == 1
        assert len(listed) == 3
        assert origin is not None
        assert origin.conversation_id == copies[0].id

    async def test_a_new_conversation_of_the_same_id_has_copies_of_its_own(self, database: Database) -> None:
        """The copies of one that was deleted are not those of the one that has its id now."""
        async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
            copies = []
            for title in ("Old", "New"):
                original = await engine.create(conversation_id="main", title=title)
                copies.append(await original.fork(request_id="r"))
                await engine.delete("main")
            titles = [copy.title for copy in copies]

        assert titles == ["Old", "New"]

    @pytest.mark.parametrize("request_id", ["", "x" * 201, "\ud800", 7])
    async def test_what_is_no_id_is_refused(self, database: Database, request_id: Any) -> None:
        """With a sentence that names it."""
        async with Engine.open(database) as engine:
            with pytest.raises(InvalidInput, match="request_id"):
                await (await engine.create()).fork(request_id=request_id)


@pytest.mark.slow
@given(trace=traces())
def test_no_turn_that_has_ended_by_the_step_is_lost(trace: Trace) -> None:
    """Wherever a conversation is copied: with a message that waits, with turns that follow each other without a rest,
    and in whatever branch it is. A copy that would lose one is refused, and names a step before and behind."""
    steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
    rows: list[EventRow] = []
    for event, step in steps:
        rows.append(encode(event, step, rows[-1].chain if rows else GENESIS)[0])
    ended: list[int] = []
    for at, (_, step) in enumerate(steps, start=1):
        ended += [] if step.ended is None else [step.ended.turn]
        try:
            cut = forking.find_cut(tuple(rows), at)
        except CannotForkThere as refused:
            assert refused.steps[0] < at < (refused.steps[1:] or (at + 1,))[0]
            continue
        assert isinstance(cut.state, forking.RESTS)
        assert ended == [] or isinstance(step.state, Closed) or cut.state.book.turn >= ended[-1]
