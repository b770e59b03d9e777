"""Appending steps: each of them once, in order, also when many conversations go on at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ...persistence.errors import StoreConflict
from ...states.events import UserMessage
from ...states.step import Step
from .opening import OpenedStore, on_a_store
from .story import SOON, Story, log_of

if TYPE_CHECKING:
    from ...persistence.ports import Store


class AppendingContract(OpenedStore):
    """`append` within one log, and many logs beside each other."""

    @on_a_store
    async def test_an_id_names_one_conversation(self, store: Store) -> None:
        """A second one is refused, and the first is as before."""
        story = Story().turn()
        await story.into(store)

        with pytest.raises(StoreConflict):
            await Story("another").into(store)

        assert await log_of(store) == story.log

    @on_a_store
    async def test_a_step_follows_the_newest(self, store: Store) -> None:
        """No step is stored twice, and none is left out."""
        story = Story().turn()
        log = await Story().into(store)
        await log.append(*story.steps[1])

        for wrong in (0, 1, 3):
            with pytest.raises(StoreConflict):
                await log.append(*story.steps[wrong])

        assert log.seq == 2
        assert await log_of(store) == story.log[:2]

    @on_a_store
    async def test_a_log_knows_the_link_of_its_newest_step(self, store: Store) -> None:
        """As the entry has it, whoever has stored the step; keys of effects are made from it. Where one log differs
        from another, so does every link from there on."""
        story, other = Story().turn(), Story().turn()
        log = await Story().into(store)
        await Story().into(store, "other")
        beside = (await store.load("story")).log
        for event, step in story.steps[1:]:
            await log.append(event, step)
            assert log.chain == (await store.entries("story"))[-1].chain
        log_of_other = (await store.load("other")).log
        event, step = other.steps[1]
        await log_of_other.append(event.replace(at=SOON), step)
        await beside.catch_up()

        entries = await store.entries("story")
        assert log.chain == beside.chain == (await store.load("story")).log.chain == entries[-1].chain
        assert len({entry.chain for entry in entries}) == len(entries)
        assert log_of_other.chain not in {entry.chain for entry in entries}

    @on_a_store
    async def test_a_request_is_taken_once(self, store: Store) -> None:
        """A second one under the same id is a conflict, and the log is as before."""
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
        """A second answer to the same effect is a conflict, and the log is as before."""
        story = Story().say().answer().say("And tomorrow?")
        log = await story.into(store)
        event, step = story.steps[2]
        book = step.state.book.replace(seq=len(story.steps) + 1)

        with pytest.raises(StoreConflict):
            await log.append(event, Step(step.state.replace(book=book), step.effects, step.ended))

        assert await log_of(store) == story.log
        await log.append(*story.answer("Once more.").newest)

    @on_a_store
    async def test_a_step_is_stored_although_its_caller_is_cancelled(self, store: Store) -> None:
        """The caller stops waiting; the step is stored, and the log knows it."""
        story = Story().turn()
        log = await Story().into(store)
        appending = asyncio.ensure_future(log.append(*story.steps[1]))
        await asyncio.sleep(0)
        appending.cancel()
        with suppress(asyncio.CancelledError):
            await appending

        await log.append(*story.steps[2])

        assert log.seq == 3
        assert await log_of(store) == story.log[:3]

    @on_a_store
    async def test_conversations_go_on_side_by_side(self, store: Store) -> None:
        """Each log is complete. The ids of requests and effects are unique within a conversation only."""
        stories = {f"story {number}": Story(f"Table {number}.") for number in range(30)}
        for number, story in enumerate(stories.values()):
            for turn in range(1 + number % 3):
                story.turn(f"{number}, {turn}")

        await asyncio.gather(*(story.into(store, name) for name, story in stories.items()))

        for name, story in stories.items():
            assert await log_of(store, name) == story.log
            assert (await store.load(name)).state == story.state
