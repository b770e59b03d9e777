"""What a store must do that several processes share: custody, and what calls for somebody who looks after a
conversation.

A process appends with the fence of the custody that it has, or without any. Only a custody that is over is refused. A
step that begins work calls for a process, unless the one that stores it looks after the conversation anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ...persistence.errors import CustodyLost
from ...persistence.ports import Taken
from ...states.errors import UnknownConversation
from ...states.events import DetailsChanged
from .story import Story, deliveries_of

PATIENCE = 60.0
"""Seconds within which a job is there, also on a slow machine."""

LEASE = 5.0


class SharedContract:
    """All tests of a store that several processes share, besides those of `StoreContract`. A subclass says how a
    process opens its store; pytest runs it if its name begins with `Test`."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that opens the store as one more process has it open, and closes it at the end. All
        that are opened at the same place are one store."""
        raise NotImplementedError


Contract = TypeVar("Contract", bound=SharedContract)


def in_two_processes(test: Callable[[Contract, Any, Any], Awaitable[None]]) -> Callable[[Contract, Path], None]:
    """Turn a test of two processes that share a store into one that pytest runs without a plugin."""

    def run(self: Contract, tmp_path: Path) -> None:
        async def on_two() -> None:
            async with asyncio.timeout(PATIENCE), self.opened(tmp_path) as one, self.opened(tmp_path) as other:
                await test(self, one, other)

        asyncio.run(on_two())

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run


async def take(store: Any, holder: str) -> Taken:
    """Take the conversation of the story, which is stored."""
    taken: Taken | None = await store.take("story", holder)
    assert taken is not None
    return taken


@asynccontextmanager
async def serving(store: Any) -> AsyncIterator[asyncio.Queue[str]]:
    """While this lasts, the store serves its jobs; those that were called for come in the queue, and have nothing to
    do."""
    called: asyncio.Queue[str] = asyncio.Queue()

    async def look_after(conversation_id: str) -> None:
        called.put_nowait(conversation_id)

    task = asyncio.ensure_future(store.jobs.serve(look_after, slots=2, lease=LEASE))
    try:
        yield called
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class CustodyContract(SharedContract):
    """`take`, `confirm`, `let_go`, and what they mean for `append`."""

    @in_two_processes
    async def test_the_first_custody_finds_nothing_left(self, one: Any, other: Any) -> None:
        """It knows the newest step, and that there is nothing to be sent."""
        await Story().say().into(one)

        taken = await take(other, "b")

        assert (taken.conversation_id, taken.holder, taken.seq) == ("story", "b", 2)
        assert (taken.was_left, taken.has_deliveries) == (False, False)
        assert await other.confirm(taken)

    @in_two_processes
    async def test_what_is_to_be_sent_is_seen(self, one: Any, other: Any) -> None:
        """By whoever takes the conversation."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))

        assert (await take(other, "b")).has_deliveries

    @in_two_processes
    async def test_there_is_no_custody_of_what_is_not_stored(self, one: Any, other: Any) -> None:
        """There is none, and no error."""
        assert await one.take("story", "a") is None

    @in_two_processes
    async def test_another_custody_ends_the_first(self, one: Any, other: Any) -> None:
        """Its fence is higher, it finds the conversation left, and the first one is confirmed no longer."""
        await Story().say().into(one)
        first = await take(one, "a")

        second = await take(other, "b")

        assert second.fence > first.fence
        assert second.was_left
        assert not await one.confirm(first)
        assert await other.confirm(second)

    @in_two_processes
    async def test_taking_once_more_is_taking_once(self, one: Any, other: Any) -> None:
        """Under the same name, because the answer to the first attempt was lost."""
        await Story().say().into(one)
        await take(one, "a")

        once, again = await take(other, "b"), await take(other, "b")

        assert (once.fence, once.was_left) == (again.fence, again.was_left) == (again.fence, True)

    @in_two_processes
    async def test_a_step_of_a_custody_that_is_over_is_not_stored(self, one: Any, other: Any) -> None:
        """Nothing is, until it has let go; then it appends like any process."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        first = await take(one, "a")
        second = await take(other, "b")

        with pytest.raises(CustodyLost):
            await log.append(*story.newest)
        assert len(await other.entries("story")) == 2
        await one.let_go(first, at_rest=False)
        await log.append(*story.newest)

        assert len(await other.entries("story")) == 3
        assert await other.confirm(second)

    @in_two_processes
    async def test_whoever_has_no_custody_appends_all_the_same(self, one: Any, other: Any) -> None:
        """The log decides, and the holder can follow."""
        log = await Story().say().into(one)
        await take(other, "b")
        there = (await other.load("story")).log
        story = Story().say().request(DetailsChanged, title="Dinner")

        await log.append(*story.newest)

        assert [entry.event for entry in await there.catch_up()] == [story.newest[0]]

    @in_two_processes
    async def test_what_was_let_go_at_rest_is_not_left(self, one: Any, other: Any) -> None:
        """And what was let go in the middle is."""
        await Story().say().into(one)
        await one.let_go(await take(one, "a"), at_rest=True)

        second = await take(other, "b")
        assert not second.was_left
        await other.let_go(second, at_rest=False)

        assert (await take(one, "c")).was_left

    @in_two_processes
    async def test_a_custody_that_is_over_lets_go_of_nothing(self, one: Any, other: Any) -> None:
        """Neither of the custody of another process, nor of a later one of its own."""
        await Story().say().into(one)
        first = await take(one, "a")
        second = await take(other, "b")
        await one.let_go(first, at_rest=True)
        assert await other.confirm(second)
        third = await take(one, "c")

        await one.let_go(first, at_rest=True)

        assert await one.confirm(third)
        assert third.was_left
        assert (await take(other, "d")).was_left

    @in_two_processes
    async def test_receipts_are_stored_before_it_is_let_go(self, one: Any, other: Any) -> None:
        """Whoever takes the conversation next does not send again what has arrived."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        taken = await take(one, "a")
        said = deliveries_of(story.newest[1], "screen")
        await log.append(*story.newest, said)
        log.acknowledge(*said[0])

        await one.let_go(taken, at_rest=True)

        assert await other.outbox(["story"]) == ()

    @in_two_processes
    async def test_a_process_that_stood_still_notes_no_failed_attempt(self, one: Any, other: Any) -> None:
        """The one that has taken over has noted more. But what the first one has delivered has arrived."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        first = await take(one, "a")
        said = deliveries_of(story.newest[1], "screen", "pager")
        await log.append(*story.newest, said)
        second = await take(other, "b")
        due = datetime.now(UTC) + timedelta(hours=1)
        newer = (await other.load("story")).log
        newer.postpone(*said[0], 5, due)
        newer.postpone(*said[1], 5, due)
        await other.let_go(second, at_rest=True)

        log.postpone(*said[0], 1, due - timedelta(minutes=59))
        log.acknowledge(*said[1])
        with pytest.raises(CustodyLost):
            await log.begin(*said[0], 1)
        await one.let_go(first, at_rest=True)

        for store in (one, other):
            (left,) = await store.outbox(["story"])
            assert (left.target, left.attempts, left.next_attempt, left.begun) == ("screen", 5, due, 0)

    @in_two_processes
    async def test_a_process_that_stood_still_has_not_died(self, one: Any, other: Any) -> None:
        """It says so by noting, late, that the attempt has failed. An attempt that it did not make says nothing."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        first = await take(one, "a")
        said = deliveries_of(story.newest[1], "screen", "paper")
        await log.append(*story.newest, said)
        await log.begin(*said[0], 1)
        due = datetime.now(UTC) + timedelta(hours=1)
        await take(other, "b")
        newer = (await other.load("story")).log
        for each in said:
            await newer.begin(*each, 2)

        log.postpone(*said[0], 1, due)
        with pytest.raises(CustodyLost):
            await log.begin(*said[1], 1)
        log.postpone(*said[1], 1, due)
        await one.let_go(first, at_rest=True)

        left = {row.target: (row.attempts, row.begun) for row in await other.outbox(["story"])}
        assert left == {"screen": (0, 0), "paper": (0, 2)}

    @in_two_processes
    async def test_a_deleted_conversation_is_held_by_nobody(self, one: Any, other: Any) -> None:
        """To let go of it is no error, and there is nothing to take."""
        await Story().say().into(one)
        taken = await take(one, "a")
        await other.delete("story")

        assert not await one.confirm(taken)
        await one.let_go(taken, at_rest=True)

        assert await one.take("story", "b") is None
        with pytest.raises(UnknownConversation):
            await one.load("story")


class CallContract(SharedContract):
    """When somebody is called for, who looks after a conversation."""

    @in_two_processes
    async def test_a_step_that_begins_work_calls(self, one: Any, other: Any) -> None:
        """Once, for whichever process serves."""
        await Story().say().into(one)

        async with serving(other) as called:
            assert await called.get() == "story"
            assert called.empty()

    @in_two_processes
    async def test_the_holder_calls_for_nobody(self, one: Any, other: Any) -> None:
        """It sees to its steps itself; what it lets go of in the middle is called for."""
        await Story().into(one)
        await Story().into(one, "other")
        taken = await take(one, "a")
        await (await one.load("story")).log.append(*Story().say().newest)

        async with serving(other) as called:
            await one.jobs.call("other")
            assert await called.get() == "other"
            await one.let_go(taken, at_rest=False)
            assert await called.get() == "story"

    @in_two_processes
    async def test_a_delivery_that_is_left_is_called_for_when_it_is_due(self, one: Any, other: Any) -> None:
        """Not long before."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        taken = await take(one, "a")
        said = deliveries_of(story.newest[1], "screen")
        await log.append(*story.newest, said)
        async with serving(other) as called:
            assert await called.get() == "story"  # for the message, which was stored before the custody
            due = datetime.now(UTC) + timedelta(seconds=6)
            log.postpone(*said[0], 1, due)
            await one.let_go(taken, at_rest=True)

            assert await called.get() == "story"
            assert datetime.now(UTC) > due - timedelta(seconds=4)

    @in_two_processes
    async def test_a_delivery_that_cannot_be_sent_is_not_called_for(self, one: Any, other: Any) -> None:
        """Its moment was past when it was let go at rest: the channel is not there. To call at once would have no
        end."""
        story = Story().say().answer()
        await Story().into(one, "other")
        log = await Story().say().into(one)
        taken = await take(one, "a")
        said = deliveries_of(story.newest[1], "screen")
        await log.append(*story.newest, said)
        async with serving(other) as called:
            assert await called.get() == "story"
            log.postpone(*said[0], 1, datetime.now(UTC) - timedelta(seconds=30))
            await one.let_go(taken, at_rest=True)
            await one.jobs.call("other")

            assert await called.get() == "other"

    @in_two_processes
    async def test_what_is_about_to_be_sent_is_known(self, one: Any, other: Any) -> None:
        """To every process: from the step on, until it was tried once, or nobody looks after its conversation."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        assert await other.untried() == set()
        taken = await take(one, "a")
        (said,) = deliveries_of(story.newest[1], "screen")
        await log.append(*story.newest, (said, (said[0], "pager")))
        untried = {("story", said[0], target) for target in ("screen", "pager")}
        assert await other.untried() == await one.untried() == untried

        log.acknowledge(*said)
        assert await one.untried() == await other.untried() == {("story", said[0], "pager")}
        await one.let_go(taken, at_rest=True)
        async with serving(other) as called:
            assert await called.get() == "story"  # for the message, which was stored before the custody
            while await other.untried():
                await asyncio.sleep(0.01)

        await one.jobs.call("story")
        assert await one.untried() == {("story", said[0], "pager")}

    @in_two_processes
    async def test_what_waits_behind_a_failed_attempt_was_tried(self, one: Any, other: Any) -> None:
        """Nobody knows when its turn comes."""
        story = Story().say().answer()
        log = await Story().say().into(one)
        await take(one, "a")
        (said,) = deliveries_of(story.newest[1], "screen")
        await log.append(*story.newest, (said, (said[0] + 1, "screen"), (said[0] + 1, "pager")))

        log.postpone(*said, 1, datetime.now(UTC) + timedelta(seconds=60))

        assert await one.untried() == {("story", said[0] + 1, "pager")}

    @in_two_processes
    async def test_nothing_is_claimed(self, one: Any, other: Any) -> None:
        """Jobs say what waits."""
        await Story().say().into(one)

        assert await one.claim(10) == ()

    @in_two_processes
    async def test_what_has_moved_is_found(self, one: Any, other: Any) -> None:
        """Also what is gone."""
        await Story().say().into(one)
        await Story().into(one, "still")

        moved = await other.find_moved({"story": 1, "still": 1, "gone": 3})

        assert moved == {"story": 2, "gone": 0}


class SharedStoreContract(CustodyContract, CallContract):
    """All of them."""
