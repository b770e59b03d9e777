"""What every store keeps to, as tests for anybody's own: whole steps, in order, once, and nothing lost.

Subclass `StoreContract`, say how your store is opened, and let pytest run it; no plugin is needed.

    from contextlib import asynccontextmanager
    from turnwise.testing.store_contract import StoreContract

    class TestMyStore(StoreContract):
        @asynccontextmanager
        async def opened(self, place):
            store = await MyStore.open(place / "conversations")
            try:
                yield store
            finally:
                await store.close()

What cannot be seen from outside is not tested here: that a step outlives a power cut, and that damage is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest

from ..states.context import Context
from ..states.effects import DeliverToUser
from ..states.errors import StoreError, UnknownConversation
from ..states.events import Answer, Event, LlmResponse, Opened, Request, ToolComplete, UserMessage
from ..states.log import LogEntry
from ..states.machine import begin, transition
from ..states.policy.policy import Policy
from ..states.states import State, pending
from ..states.step import Step
from ..states.values.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from ..persistence.ports import Log, Store
    from ..persistence.records.outbox import Outgoing, Undelivered

C = TypeVar("C", bound="StoreContract")

NOON = datetime(2025, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC)
SOON = NOON + timedelta(seconds=30, microseconds=7)


class Story:
    """A conversation on its way through the machine, a second between two events. `steps` is what a store is given."""

    def __init__(self, system: str = "You book tables.", at: datetime = NOON) -> None:
        opened = Opened(event_id="opened", at=at, system=system, policy=Policy())
        self.opening = opened, begin(opened)
        self.steps: list[tuple[Event, Step]] = [self.opening]
        self._at = at
        self._context = Context().after(opened)

    @property
    def state(self) -> State:
        """Where the conversation rests."""
        return self.steps[-1][1].state

    @property
    def newest(self) -> tuple[Event, Step]:
        """The last step, as a store is given it."""
        return self.steps[-1]

    @property
    def log(self) -> list[LogEntry]:
        """The log that a store should give back."""
        return [LogEntry.of(event, step) for event, step in self.steps]

    def say(self, text: str = "A table for two?") -> Story:
        """A person says something, and the model is asked."""
        return self._request(UserMessage, text=text)

    def answer(self, text: str = "Sakura has one.") -> Story:
        """The model answers, which ends the turn."""
        return self._answer(LlmResponse, content=text)

    def turn(self, text: str = "A table for two?") -> Story:
        """A whole turn: a message, a tool, an answer."""
        call = ToolCall(call_id=f"call-{len(self.steps)}", name="find_table", arguments='{"party": 2}')
        self.say(text)._answer(LlmResponse, tool_calls=(call,), finish_reason="tool_calls")
        self._answer(ToolComplete, result=ToolResult(text=f"Found for {text}"))
        return self.answer(f"About {text}: Sakura has one.")

    def _request(self, kind: type[Request], **fields: Any) -> Story:
        return self.take(kind(event_id=f"request-{len(self.steps)}", at=self._now(), **fields))

    def _answer(self, kind: type[Answer], **fields: Any) -> Story:
        return self.take(kind(effect_id=min(pending(self.state)), at=self._now(), **fields))

    def take(self, event: Event) -> Story:
        """Let this happen; it must neither be refused nor ignored."""
        step = transition(self.state, event, self._context)
        assert not step.ignored
        self.steps.append((event, step))
        return self

    def _now(self) -> datetime:
        return self._at + timedelta(seconds=len(self.steps))

    async def into(self, store: Store, conversation_id: str = "story") -> Log:
        """Store all of it."""
        log = await store.create(conversation_id, *self.opening)
        for event, step in self.steps[1:]:
            await log.append(event, step)
        return log


def delivered_by(step: Step, *targets: str) -> tuple[Outgoing, ...]:
    """What a step says to its user, once for each target."""
    from ..persistence.records.outbox import Outgoing

    said = [effect.effect_id for effect in step.effects if isinstance(effect, DeliverToUser)]
    return tuple(Outgoing(effect_id, target) for effect_id in said for target in targets)


def on_a_store(test: Callable[[C, Store], Awaitable[None]]) -> Callable[[C, Path], None]:
    """A test of an open store, as one that needs no plugin."""

    def run(self: C, tmp_path: Path) -> None:
        async def on_one() -> None:
            async with self.opened(tmp_path) as store:
                await test(self, store)

        asyncio.run(on_one())

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run


async def log_of(store: Store, conversation_id: str = "story") -> list[LogEntry]:
    """The log as others read it, without what a store adds to its entries."""
    return plain(await store.entries(conversation_id))


def plain(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """The entries without what a store adds to them."""
    return [LogEntry(one.seq, one.event, one.effects, one.ended, one.turn) for one in entries]


async def left_in(store: Store) -> list[tuple[str, str, int]]:
    """What is still to be delivered: conversation, target and effect."""
    return [(one.conversation_id, one.target, one.effect_id) for one in await store.outbox(await store.ids())]


class StoreContract:
    """The tests. A subclass says how its store is opened; pytest runs it if its name begins with `Test`."""

    lasting: ClassVar[bool] = True
    """Whether a store that is opened again at the same place finds what was there. Set it to False for memory."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """An open store that keeps its data below the folder `place`; closed at the end.

        Opened a second time at the same place, it is the same store again.
        """
        raise NotImplementedError

    def in_trouble(self, store: Store, place: Path) -> AbstractAsyncContextManager[None]:
        """While this lasts the disk takes nothing: every step must fail with `StorageFailed`. Optional."""
        pytest.skip("it is not said how to get this store into trouble")

    # --- what is stored comes back

    @on_a_store
    async def test_a_conversation_comes_back_as_it_was_left(self, store: Store) -> None:
        """State and log are equal to what was stored, to the microsecond and to the last sign."""
        story = Story("Be brief.\n\u2028 寿司").turn('say "hi"\nand {leave} \u0000 🍣').say("And tomorrow?")
        await story.into(store)

        loaded = await store.load("story")

        assert loaded.state == story.state
        assert plain(await store.entries("story")) == story.log
        assert await log_of(store) == story.log
        assert loaded.log.seq == len(story.steps)

    @on_a_store
    async def test_a_conversation_goes_on_where_it_was_left(self, store: Store) -> None:
        """The log of a loaded conversation takes the next step."""
        story = Story().turn()
        await story.into(store)
        loaded = await store.load("story")

        await loaded.log.append(*story.say("And tomorrow?").newest)

        assert loaded.log.seq == len(story.steps)
        assert (await store.load("story")).state == story.state

    @on_a_store
    async def test_the_steps_stand_in_order_without_a_gap(self, store: Store) -> None:
        """Numbered from 1; who has seen some of them gets those behind."""
        story = Story()
        for number in range(10):
            story.turn(f"the {number}th evening")
        await story.into(store)

        everything = await store.entries("story")
        later = await store.entries("story", after=7)

        assert [entry.seq for entry in everything] == list(range(1, len(story.steps) + 1))
        assert plain(later) == story.log[7:]
        assert list(await store.entries("story", after=len(story.steps))) == []

    def test_what_was_stored_is_there_when_it_is_opened_again(self, tmp_path: Path) -> None:
        """Every conversation, and what is still to be delivered."""
        if not self.lasting:
            pytest.skip("this store does not outlive its closing")
        story = Story().say().answer()
        said = delivered_by(story.newest[1], "screen", "paper", "radio")

        async def write() -> None:
            async with self.opened(tmp_path) as store:
                log = await Story().say().into(store)
                await log.append(*story.newest, said)
                await Story().into(store, "other")
                log.acknowledge(said[0].effect_id, "screen")
                log.postpone(said[0].effect_id, "paper", 2, SOON)

        async def read() -> tuple[State, set[str], Sequence[Undelivered]]:
            async with self.opened(tmp_path) as store:
                listed = {summary.id for summary in await store.list()}
                return (await store.load("story")).state, listed, await store.outbox(await store.ids())

        asyncio.run(write())
        state, listed, outbox = asyncio.run(read())

        assert (state, listed) == (story.state, {"story", "other"})
        assert [(one.target, one.attempts, one.next_attempt) for one in outbox] == [
            ("paper", 2, SOON),
            ("radio", 0, None),
        ]

    # --- what is not there

    @on_a_store
    async def test_a_conversation_that_does_not_exist_is_unknown(self, store: Store) -> None:
        """However it is asked for."""
        asking: tuple[Callable[[str], Awaitable[object]], ...] = (store.load, store.entries, store.delete)
        for ask in asking:
            with pytest.raises(UnknownConversation):
                await ask("nobody")

    @on_a_store
    async def test_a_store_that_is_closed_says_so(self, store: Store) -> None:
        """To close it twice is harmless; to go on is an error."""
        log = await Story().into(store)
        await store.close()
        await store.close()

        with pytest.raises(StoreError):
            await store.list()
        with pytest.raises(StoreError):
            await log.append(*Story().say().newest)

    # --- nothing twice

    @on_a_store
    async def test_an_id_names_one_conversation(self, store: Store) -> None:
        """A second one is refused, and the first is as before."""
        from ..persistence.errors import StoreConflict

        story = Story().turn()
        await story.into(store)

        with pytest.raises(StoreConflict):
            await Story("another").into(store)

        assert await log_of(store) == story.log

    @on_a_store
    async def test_a_step_follows_the_newest(self, store: Store) -> None:
        """None is stored twice, and none left out."""
        from ..persistence.errors import StoreConflict

        story = Story().turn()
        log = await Story().into(store)
        await log.append(*story.steps[1])

        for wrong in (0, 1, 3):
            with pytest.raises(StoreConflict):
                await log.append(*story.steps[wrong])

        assert log.seq == 2
        assert await log_of(store) == story.log[:2]

    @on_a_store
    async def test_of_two_writers_one_wins(self, store: Store) -> None:
        """Both loaded the conversation; the loser stores nothing, loads it again, and goes on."""
        from ..persistence.errors import StoreConflict

        await Story().into(store)
        logs = [(await store.load("story")).log for _ in range(2)]
        stories = [Story().say(text) for text in ("one", "two")]

        outcomes = await asyncio.gather(
            *(log.append(*story.newest) for log, story in zip(logs, stories, strict=True)), return_exceptions=True
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict]
        assert sorted(log.seq for log in logs) == [1, 2]
        winner = stories[outcomes.index(None)]
        again = await store.load("story")
        await again.log.append(*winner.answer().newest)
        assert await log_of(store) == winner.log

    @on_a_store
    async def test_an_equal_step_of_another_writer_is_a_conflict(self, store: Store) -> None:
        """Of two writers with the same step only one may act on it; the other catches up, and goes on."""
        from ..persistence.errors import StoreConflict

        story = Story().say()
        first = await Story().into(store)
        second = (await store.load("story")).log
        await first.append(*story.newest)

        with pytest.raises(StoreConflict):
            await second.append(*story.newest)
        assert plain(await second.catch_up()) == story.log[1:]
        await second.append(*story.answer().newest)

        assert await log_of(store) == story.log

    @on_a_store
    async def test_a_request_is_taken_once(self, store: Store) -> None:
        """Its id stands in a log once, and the log is as before."""
        from ..persistence.errors import StoreConflict

        story = Story().turn()
        log = await story.into(store)
        before = await log_of(store)
        story.take(UserMessage(event_id="request-1", at=SOON, text="again"))

        with pytest.raises(StoreConflict):
            await log.append(*story.newest)

        assert await log_of(store) == before
        assert (await store.load("story")).state == story.steps[-2][1].state

    @on_a_store
    async def test_an_effect_is_answered_once(self, store: Store) -> None:
        """The id of an answered effect stands in a log once, and the log is as before."""
        from ..persistence.errors import StoreConflict

        story = Story().say().answer().say("And tomorrow?")
        log = await story.into(store)
        event, step = story.steps[2]
        book = step.state.book.replace(seq=len(story.steps) + 1)

        with pytest.raises(StoreConflict):
            await log.append(event, Step(step.state.replace(book=book), step.effects, step.ended))

        assert await log_of(store) == story.log
        await log.append(*story.answer("Once more.").newest)

    # --- many at once

    @on_a_store
    async def test_conversations_go_on_side_by_side(self, store: Store) -> None:
        """Ids of requests and effects are a conversation's own, and each log is whole."""
        stories = {f"story {number}": Story(f"Table {number}.") for number in range(30)}
        for number, story in enumerate(stories.values()):
            for turn in range(1 + number % 3):
                story.turn(f"{number}, {turn}")

        await asyncio.gather(*(story.into(store, name) for name, story in stories.items()))

        for name, story in stories.items():
            assert await log_of(store, name) == story.log
            assert (await store.load(name)).state == story.state

    @on_a_store
    async def test_only_the_loser_of_many_loses(self, store: Store) -> None:
        """Steps that come at the same moment are stored, though one of them is refused, and another comes twice."""
        from ..persistence.errors import StoreConflict

        names = [f"story {number}" for number in range(20)]
        logs = {name: await Story().say().into(store, name) for name in names}
        late = logs["late"] = await Story().say().into(store, "late")
        await (await store.load("late")).log.append(*Story().say().answer("first").newest)
        twice = (await store.load("story 0")).log

        outcomes = await asyncio.gather(
            *(log.append(*Story().say().answer(name).newest) for name, log in logs.items()),
            twice.append(*Story().say().answer("story 0").newest),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict] * 2
        assert (late.seq, {logs["story 0"].seq, twice.seq}) == (2, {2, 3})
        for name in names:
            assert await log_of(store, name) == Story().say().answer(name).log
        assert await log_of(store, "late") == Story().say().answer("first").log

    @on_a_store
    async def test_a_caller_that_is_cancelled_has_handed_its_step_in(self, store: Store) -> None:
        """It no longer waits; the step is stored, and the log knows it."""
        story = Story().turn()
        log = await Story().into(store)
        appending = asyncio.ensure_future(log.append(*story.steps[1]))
        await asyncio.sleep(0)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending

        await log.append(*story.steps[2])

        assert log.seq == 3
        assert await log_of(store) == story.log[:3]

    # --- looking

    @on_a_store
    async def test_the_list_has_the_newest_first(self, store: Store) -> None:
        """With the literal of the state, whether it waits for work, and when it moved last."""
        assert list(await store.list()) == []
        await Story().turn().into(store, "middle")
        await Story().turn().say().into(store, "newest")
        await Story().into(store, "oldest")

        listed = await store.list()

        assert [(one.id, one.state, one.busy) for one in listed] == [
            ("newest", "llm_requesting", True),
            ("middle", "idle", False),
            ("oldest", "idle", False),
        ]
        assert [one.updated_at - NOON for one in listed] == [timedelta(seconds=seconds) for seconds in (5, 4, 0)]

    @on_a_store
    async def test_what_has_something_to_do_is_found(self, store: Store) -> None:
        """A conversation that waits for the model, and one that has something to deliver; no other."""
        story = Story().say().answer()
        await Story().turn().into(store, "idle")
        await Story().say().into(store, "busy")
        said = delivered_by(story.newest[1], "screen")
        await (await Story().say().into(store, "talkative")).append(*story.newest, said)
        log = await Story().say().into(store, "delivered")
        await log.append(*story.newest, said)
        log.acknowledge(*said[0])
        await store.outbox(await store.ids())

        assert set(await store.claim(10)) == {"busy", "talkative"}
        assert await store.claim(10) == ()

    # --- the outbox

    @on_a_store
    async def test_the_outbox_is_in_order_for_each_target(self, store: Store) -> None:
        """One row for each delivery and target, with the step that holds it."""
        story = Story()
        log = await story.into(store)
        expected = []
        for number in range(12):
            await log.append(*story.say(f"{number}?").newest)
            event, step = story.answer(f"{number}.").newest
            said = delivered_by(step, "screen", "paper")
            await log.append(event, step, said)
            expected.append((said[0].effect_id, step.state.book.seq))

        outbox = await store.outbox(await store.ids())

        for target in ("screen", "paper"):
            rows = [one for one in outbox if one.target == target]
            assert [(one.effect_id, one.seq) for one in rows] == expected
            assert {(one.conversation_id, one.attempts, one.next_attempt) for one in rows} == {("story", 0, None)}

    @on_a_store
    async def test_what_was_acknowledged_is_no_longer_in_the_outbox(self, store: Store) -> None:
        """That one, for that target, in that conversation; one that is not there is not missed."""
        story = Story().say().answer()
        said = delivered_by(story.newest[1], "screen", "paper")
        (effect_id,) = {one.effect_id for one in said}
        logs = [await Story().say().into(store, name) for name in ("a", "b")]
        for log in logs:
            await log.append(*story.newest, said)

        logs[0].acknowledge(effect_id, "paper")
        logs[0].acknowledge(effect_id, "paper")
        logs[0].acknowledge(effect_id + 1, "screen")
        logs[0].acknowledge(effect_id, "radio")

        assert sorted(await left_in(store)) == [
            ("a", "screen", effect_id),
            ("b", "paper", effect_id),
            ("b", "screen", effect_id),
        ]

    @on_a_store
    async def test_a_failed_attempt_is_noted(self, store: Store) -> None:
        """The newest one counts; behind an acknowledgement none does."""
        story = Story().say().answer()
        said = delivered_by(story.newest[1], "screen", "paper")
        (effect_id,) = {one.effect_id for one in said}
        log = await Story().say().into(store)
        await log.append(*story.newest, said)

        log.postpone(effect_id, "screen", 1, NOON)
        log.postpone(effect_id, "screen", 2, SOON)
        log.acknowledge(effect_id, "paper")
        log.postpone(effect_id, "paper", 1, SOON)
        (left,) = await store.outbox(await store.ids())

        assert (left.target, left.attempts, left.next_attempt) == ("screen", 2, SOON)

    @on_a_store
    async def test_receipts_go_along_with_steps(self, store: Store) -> None:
        """Among steps of many conversations none is lost."""
        stories = {f"story {number}": Story() for number in range(10)}

        async def talk(name: str, story: Story) -> None:
            log = await story.into(store, name)
            for number in range(5):
                await log.append(*story.say(f"{number}?").newest)
                event, step = story.answer(f"{number}.").newest
                said = delivered_by(step, "screen", "paper")
                await log.append(event, step, said)
                log.acknowledge(said[0].effect_id, "screen")
                if number % 2:
                    log.acknowledge(said[0].effect_id, "paper")

        await asyncio.gather(*(talk(name, story) for name, story in stories.items()))

        left = await left_in(store)
        assert {target for _, target, _ in left} == {"paper"}
        assert {name: [one[0] for one in left].count(name) for name in stories} == dict.fromkeys(stories, 3)

    # --- deletion

    @on_a_store
    async def test_deletion_leaves_nothing(self, store: Store) -> None:
        """Neither the conversation nor what it had to deliver; the others are as before."""
        story = Story().say().answer()
        said = delivered_by(story.newest[1], "screen")
        for name in ("goes", "stays"):
            log = await Story().say().into(store, name)
            await log.append(*story.newest, said)

        await store.delete("goes")

        with pytest.raises(UnknownConversation):
            await store.load("goes")
        assert [summary.id for summary in await store.list()] == ["stays"]
        assert list(await store.claim(10)) == ["stays"]
        assert await left_in(store) == [("stays", "screen", said[0].effect_id)]
        assert await log_of(store, "stays") == story.log

    @on_a_store
    async def test_a_deleted_conversation_is_not_taken_for_the_one_in_its_place(self, store: Store) -> None:
        """Its log takes no step, and what becomes of its deliveries is no matter of the new one."""
        from ..persistence.errors import StoreConflict

        old, new = Story().say().answer(), Story("another").say().answer()
        said = delivered_by(old.newest[1], "screen")
        log = await Story().say().into(store)
        await store.delete("story")
        successor = await Story("another").say().into(store)
        await successor.append(*new.newest, said)

        log.acknowledge(said[0].effect_id, "screen")
        log.postpone(said[0].effect_id, "screen", 1, SOON)
        with pytest.raises(StoreConflict):
            await log.append(*old.newest)

        assert [(one.conversation_id, one.attempts) for one in await store.outbox(await store.ids())] == [("story", 0)]
        assert await log_of(store) == new.log

    # --- a disk in trouble

    def test_a_step_that_fails_leaves_everything_as_before(self, tmp_path: Path) -> None:
        """Case P28: a typed error, nothing changed, and the same step is stored when the trouble is over."""

        async def fail() -> None:
            async with self.opened(tmp_path) as store:
                await self._fail(store, tmp_path)

        asyncio.run(fail())

    async def _fail(self, store: Store, place: Path) -> None:
        from ..persistence.errors import StorageFailed

        names = [f"story {number}" for number in range(5)]
        logs = [await Story().say().into(store, name) for name in names]
        story = Story().say().answer("x" * 100_000)
        said = delivered_by(story.newest[1], "screen")

        async with self.in_trouble(store, place):
            outcomes = await asyncio.gather(*(log.append(*story.newest, said) for log in logs), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 5
        assert [log.seq for log in logs] == [2] * 5
        assert await left_in(store) == []
        for name in names:
            assert await log_of(store, name) == Story().say().log
        await asyncio.gather(*(log.append(*story.newest, said) for log in logs))
        for name in names:
            assert (await store.load(name)).state == story.state
        assert sorted(await left_in(store)) == [(name, "screen", said[0].effect_id) for name in names]
