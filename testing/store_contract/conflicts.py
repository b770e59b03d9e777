"""Several logs of one conversation: of two writers one succeeds, and the other can catch up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ...persistence.errors import StoreConflict
from ...states.errors import UnknownConversation
from .opening import OpenedStore, on_a_store
from .story import SOON, Story, deliveries_of, found_request, log_of, plain

if TYPE_CHECKING:
    from ...persistence.ports import Store


class ConflictContract(OpenedStore):
    """`StoreConflict` and `catch_up`."""

    @on_a_store
    async def test_of_two_writers_one_succeeds(self, store: Store) -> None:
        """Both have loaded the conversation. The other stores nothing, catches up, and goes on."""
        await Story().into(store)
        logs = [(await store.load("story")).log for _ in range(2)]
        stories = [Story().say(text) for text in ("one", "two")]

        outcomes = await asyncio.gather(
            *(log.append(*story.newest) for log, story in zip(logs, stories, strict=True)), return_exceptions=True
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict]
        assert sorted(log.seq for log in logs) == [1, 2]
        first = stories[outcomes.index(None)]
        (other,) = (log for log in logs if log.seq == 1)
        assert plain(await other.catch_up()) == first.log[1:]
        await other.append(*first.answer().newest)
        assert await log_of(store) == first.log

    @on_a_store
    async def test_an_equal_step_of_another_writer_is_a_conflict(self, store: Store) -> None:
        """Of two writers with the same step only one may act on it."""
        story = Story().say()
        first = await Story().into(store)
        second = (await store.load("story")).log
        await first.append(*story.newest)

        with pytest.raises(StoreConflict):
            await second.append(*story.newest)

        assert second.seq == 1
        assert await log_of(store) == story.log

    @on_a_store
    async def test_a_log_catches_up_with_all_that_it_missed(self, store: Store) -> None:
        """In order, and once; with nothing missed it stays where it is."""
        story = Story().turn()
        log = await Story().into(store)
        other = (await store.load("story")).log
        for event, step in story.steps[1:]:
            await other.append(event, step)

        assert plain(await log.catch_up()) == story.log[1:]
        assert log.seq == len(story.steps)
        assert await log.catch_up() == ()
        await log.append(*story.say("And tomorrow?").newest)
        assert plain(await other.catch_up()) == story.log[-1:]

    @on_a_store
    async def test_a_request_that_another_writer_took_is_found(self, store: Store) -> None:
        """Before and after catching up: that is how a request which was sent twice is recognised."""
        story = Story().say("hello")
        log = await Story().into(store)
        await (await store.load("story")).log.append(*story.newest)

        assert await found_request(log, "request-1") == story.log[1]
        await log.catch_up()
        assert await found_request(log, "request-1") == story.log[1]

    @on_a_store
    async def test_among_many_steps_only_the_conflicting_ones_fail(self, store: Store) -> None:
        """They come at the same moment; one conversation has moved on, and in another two writers race."""
        names = [f"story {number}" for number in range(20)]
        logs = {name: await Story().say().into(store, name) for name in names}
        late = logs["late"] = await Story().say().into(store, "late")
        await (await store.load("late")).log.append(*Story().say().answer("first").newest)
        rival = (await store.load("story 0")).log

        outcomes = await asyncio.gather(
            *(log.append(*Story().say().answer(name).newest) for name, log in logs.items()),
            rival.append(*Story().say().answer("story 0").newest),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict] * 2
        assert (late.seq, {logs["story 0"].seq, rival.seq}) == (2, {2, 3})
        for name in names:
            assert await log_of(store, name) == Story().say().answer(name).log
        assert await log_of(store, "late") == Story().say().answer("first").log

    @on_a_store
    async def test_the_log_of_a_deleted_conversation_knows_that_it_is_gone(self, store: Store) -> None:
        """It does not say whether a request was taken, neither of one that was nor of one that was not."""
        log = await Story().say().into(store)
        await store.delete("story")

        for event_id in ("request-1", "request-2"):
            with pytest.raises(UnknownConversation):
                await log.request(event_id)

    @on_a_store
    async def test_the_log_of_a_deleted_conversation_takes_nothing(self, store: Store) -> None:
        """Neither a step nor a receipt, also if another conversation has its id now."""
        old, new = Story().say().answer(), Story("another").say().answer()
        said = deliveries_of(old.newest[1], "screen")
        log = await Story().say().into(store)
        await store.delete("story")
        with pytest.raises(StoreConflict):
            await log.append(*old.newest)
        successor = await Story("another").say().into(store)
        await successor.append(*new.newest, said)

        log.acknowledge(said[0][0], "screen")
        log.postpone(said[0][0], "screen", 1, SOON)
        with pytest.raises(StoreConflict):
            await log.append(*old.newest)
        with pytest.raises(UnknownConversation):
            await log.catch_up()
        with pytest.raises(UnknownConversation):
            await log.request("request-1")

        assert [(one.conversation_id, one.attempts) for one in await store.outbox(["story"])] == [("story", 0)]
        assert await log_of(store) == new.log
