"""Updates are made for those who watch, and made again from the log for those who come later; a step that another loop
has stored is made again, too, and must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from turnwise import Conversation, Engine, Update, tool
from turnwise.engine.projection import ConversationProjection
from turnwise.engine.updates import StepUpdates, repeated_step
from turnwise.persistence.errors import Damaged
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Context, LlmResponse, LogEntry, Opened, State, StoreError, UserMessage, begin, transition
from turnwise.states.transcript import Transcript
from turnwise.testing import FunctionLlm, Trace, call, strategies
from turnwise.testing.doubles import NOON

from ..support.engine_scenarios import Watcher, until
from ..support.planted.stores import WrappedStore
from ..support.walks import Walk


def newest_step(walk: Walk) -> tuple[LogEntry, State, Context]:
    """The newest step of a conversation as its log holds it, and what was before it."""
    (_, before), (event, step) = walk.steps[-2:]
    return LogEntry.of(event, step), before.state, walk.context


@tool(crash="pure")
async def find_table(party: int) -> str:
    """Look for free tables."""
    return "Kikunoi at 6:30 PM."


def answer(request: Any) -> Any:
    """A call of the tool, then a reply."""
    return "There is one." if request.messages[-1]["role"] == "tool" else call("find_table", party=2)


class CountingStore(WrappedStore):
    """A store that counts how often steps are read."""

    reads = 0

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> Any:
        """Count, and read."""
        self.reads += 1
        return await self.store.entries(conversation_id, after, up_to)


async def collected(conversation: Conversation, after: str, turns: int) -> list[Update]:
    """The stored updates after this one, until so many turns have ended."""
    updates: list[Update] = []
    async with aclosing(conversation.updates(after)) as source:
        while [update.type for update in updates].count("turn_ended") < turns:
            updates.append(await anext(source))
    return [update for update in updates if update.id is not None]


async def no_log(after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
    """Fail: nothing is to be read from the store."""
    raise AssertionError("the store was read")


def test_it_is_the_step_that_was_stored() -> None:
    """With the state, the effects and the end of the turn."""
    walk = Walk().say().answer(LlmResponse, content="Sakura has one.")

    assert repeated_step(*newest_step(walk)) == walk.steps[-1][1]


@pytest.mark.parametrize("distance", [-1, 1])
def test_an_entry_that_does_not_follow_is_damage(distance: int) -> None:
    """A step is missing, or stands twice."""
    entry, state, context = newest_step(Walk().say())

    with pytest.raises(Damaged, match=f"Step {entry.seq + distance} does not follow step {entry.seq - 1}"):
        repeated_step(replace(entry, seq=entry.seq + distance), state, context)


def test_a_step_that_the_machine_does_not_make_is_refused() -> None:
    """Another version stored other effects, took an event that is refused now, or one that is ignored now."""
    entry, state, context = newest_step(Walk().say())
    late, _, _ = newest_step(Walk().say().answer(LlmResponse, content="Sakura has one."))
    again, _, _ = newest_step(Walk().say())
    closed = Walk().say().state

    for stored, rests in (
        (replace(entry, effects=()), state),
        (replace(late, seq=entry.seq), state),
        (replace(again, seq=closed.book.seq + 1, effects=()), closed),
    ):
        with pytest.raises(StoreError, match=f"Step {stored.seq} was made by another version"):
            repeated_step(stored, rests, context)


@pytest.mark.slow
@given(trace=strategies.traces(max_size=25))
def test_those_of_steps_that_follow_each_other_are_those_of_each_step(trace: Trace) -> None:
    """The view of the state before a step is not made again, and is the same."""
    updates, transcript, other = StepUpdates(), Transcript(), Transcript()

    for one in trace:
        if one.step is not None and not one.step.ignored:
            entry = LogEntry.of(one.event, one.step)
            expected = StepUpdates().add(entry, one.before, one.after, other, one.context)
            assert updates.add(entry, one.before, one.after, transcript, one.context) == expected


class TestWhileNobodyWatches:
    """No update is made, and none is missing afterwards."""

    def test_a_step_has_no_updates(self) -> None:
        """What was said is known all the same."""
        opened = Opened(event_id="opened", at=NOON)
        message = UserMessage(event_id="m1", at=NOON, text="Hi")
        first, context = begin(opened), Context().after(opened)
        projection = ConversationProjection(first.state, context, no_log, (LogEntry.of(opened, first),))
        step = transition(first.state, message, context)

        assert projection.advance(LogEntry.of(message, step), step.state, is_watched=False) is None
        assert [one.text for one in projection.transcript.messages] == ["Hi"]

    async def test_whoever_comes_later_is_shown_what_a_watcher_saw(self, store: SqliteStore) -> None:
        """Under the same ids, each once: also one that has watched before and comes back."""
        async with Engine.open(store=store, model=FunctionLlm(answer), tools=[find_table]) as engine:
            conversation, other = await engine.create(), await engine.create()
            watchers = [Watcher(conversation), Watcher(other)]
            await until(lambda: all(watcher.updates for watcher in watchers))
            await conversation.send("For two")
            await other.send("For two")
            await watchers[0].until("turn_ended")
            await watchers[0].stop()
            await conversation.send("For two")
            await other.send("For two")
            await watchers[1].until("turn_ended", 2)
            await watchers[1].stop()

            before = [update for update in watchers[0].updates[1:] if update.id is not None]
            missed = await collected(conversation, str(before[-1].id), turns=1)

        watched_all = [(one.id, one.type) for one in watchers[1].updates[1:] if one.id is not None]
        assert [(one.id, one.type) for one in before + missed] == watched_all

    async def test_a_stream_does_not_read_the_log(self, store: SqliteStore) -> None:
        """It watches from before its message is sent, so the updates of every step are kept for it."""
        counting = CountingStore(store)
        async with Engine.open(store=counting, model=FunctionLlm(answer), tools=[find_table]) as engine:
            conversation = await engine.create()
            await conversation.send("For two")
            before = counting.reads
            shown = [update.type async for update in conversation.stream("For two")]

        assert shown[-1] == "turn_ended"
        assert counting.reads == before
