"""A conversation that rests costs little memory, and neither a task nor a timer."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from asyncio import SelectorEventLoop, TimerHandle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from turnwise import Conversation, Engine, MessageUpdate, ModelAnswer, presets
from turnwise.engine.registry import KEPT, SharedContexts
from turnwise.engine.watching import KeptUpdates
from turnwise.states import Context, Policy

AGENTS = 30


class Model:
    """Answers at once, and keeps nothing."""

    name = "instant"

    async def complete(self, request: Any, show: Any) -> ModelAnswer:
        """Answer."""
        return ModelAnswer(content="Noted.")


class CountingLoop(SelectorEventLoop):
    """An event loop that knows its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.started: WeakSet[TimerHandle] = WeakSet()

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> TimerHandle:
        """Start a timer, and remember it."""
        timer = super().call_at(when, callback, *arguments, **options)
        self.started.add(timer)
        return timer

    def timers(self) -> int:
        """How many timers run."""
        return sum(not timer.cancelled() and timer.when() > self.time() for timer in self.started)


async def agents(engine: Engine, count: int, turns: int) -> list[Conversation]:
    """Create background agents that have had some turns, and let everything come to rest."""
    made = [await engine.create(role="background", system="You look for tables.") for _ in range(count)]
    for conversation in made:
        for _ in range(turns):
            await conversation.send("Look.")
    for _ in range(20):
        await asyncio.sleep(0)
    return made


def test_a_resting_conversation_has_neither_a_task_nor_a_timer(tmp_path: Path) -> None:
    """However many there are, and whatever they did before: turns, watchers, waits for a turn."""
    loop = CountingLoop()

    async def count() -> tuple[tuple[int, int], tuple[int, int]]:
        async with Engine.open(tmp_path / "agents.db", model=Model()) as engine:
            kept = await agents(engine, 1, 1)
            before = len(asyncio.all_tasks()), loop.timers()
            kept += await agents(engine, AGENTS, 1)
            for conversation in kept:
                updates = conversation.updates()
                await anext(updates)
                await updates.aclose()
                await conversation.wait()
            kept += [await engine.get(one.id) for one in kept]
            await asyncio.sleep(0)
            return before, (len(asyncio.all_tasks()), loop.timers())

    try:
        before, after = loop.run_until_complete(count())
    finally:
        loop.close()

    assert after == before


@pytest.mark.slow
def test_a_resting_conversation_takes_less_than_four_kilobytes(tmp_path: Path) -> None:
    """One that has just begun, and one that was read from its log, with the handle on it."""

    async def measure() -> tuple[float, float]:
        path = tmp_path / "agents.db"
        async with Engine.open(path, model=Model()) as engine:
            kept = await agents(engine, 5, 0)
            begun, made = await growth(lambda: agents(engine, AGENTS, 0))
            ids = [one.id for one in made]
        async with Engine.open(path, model=Model()) as engine:
            kept += [await engine.get(ids.pop()) for _ in range(5)]

            async def read() -> list[Conversation]:
                return [await engine.get(each) for each in ids]

            return begun, (await growth(read))[0]

    tracemalloc.start()
    try:
        begun, loaded = asyncio.run(measure())
    finally:
        tracemalloc.stop()

    transcript = 1300  # what an empty one takes
    assert begun < 4096 + transcript
    assert loaded < 4096


async def growth(make: Any) -> tuple[float, list[Any]]:
    """Return how many bytes each of the things takes that are made."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    made = await make()
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) / len(made), made


async def test_a_watcher_that_begins_after_a_rest_misses_nothing(tmp_path: Path) -> None:
    """What the loop has let go of is read from the log."""
    async with Engine.open(tmp_path / "agents.db", model=Model()) as engine:
        (conversation,) = await agents(engine, 1, 0)
        updates = conversation.updates(after="1.1")
        for text in ("one", "two"):
            await conversation.send(text)
        texts: list[str] = []
        while len(texts) < 2:
            update = await anext(updates)
            texts += [update.text] if isinstance(update, MessageUpdate) else []
        await updates.aclose()

    assert texts == ["one", "two"]


async def test_a_request_that_is_repeated_long_after_is_known(tmp_path: Path) -> None:
    """By the log, when the loop remembers it no more."""
    async with Engine.open(tmp_path / "agents.db", model=Model()) as engine:
        (conversation,) = await agents(engine, 1, 0)
        first = await conversation.send("first", message_id="first")
        for number in range(6):
            await conversation.send(f"later {number}")
        again = await conversation.send("first", message_id="first")
        turns = await conversation.turns()

    assert (again, len(turns)) == (first, 7)


class TestSharedContexts:
    """Equal rules are one object."""

    def test_equal_contexts_are_shared(self) -> None:
        """However they were made: from a log, or for a new conversation."""
        contexts = SharedContexts()
        first = contexts.shared(Context(policy=presets.talk(), system="Be brief.", owner="anna"))
        read = Context.model_validate_json(first.model_dump_json())

        assert contexts.shared(Context(policy=presets.talk(), system="Be brief.", owner="anna")) is first
        other = contexts.shared(read.replace(owner="bert"))
        assert (other.owner, other.system) == ("bert", "Be brief.")
        assert other.system is first.system

    @pytest.mark.parametrize("policy", [presets.talk(), Policy(parallel=5), Policy(parallel=4)])
    def test_a_context_is_equal_to_the_one_that_was_given(self, policy: Policy) -> None:
        """Also in which fields of its policy were given, on which a later change of the rules depends."""
        contexts = SharedContexts()
        contexts.shared(Context(policy=Policy()))
        given = Context(policy=policy, title="Dinner", metadata={"a": [1]})

        shared = contexts.shared(given)

        assert shared == given and shared.to_json() == given.to_json()
        assert shared.policy.model_fields_set == policy.model_fields_set

    def test_few_are_kept(self) -> None:
        """The newest."""
        contexts = SharedContexts()
        first = contexts.shared(Context(owner="0"))
        for number in range(1, KEPT + 1):
            last = contexts.shared(Context(owner=str(number)))

        assert contexts.shared(Context(owner=str(KEPT))) is last
        assert contexts.shared(Context(owner="0")) is not first


class TestKeptUpdates:
    """What is published is kept for readers only as long as it may be read."""

    def test_the_newest_are_kept(self) -> None:
        """A reader that fell behind learns so."""
        kept = KeptUpdates[int](3)
        kept.keep(range(5))

        assert (kept.since(2), kept.since(5), kept.since(1), kept.end) == ((2, 3, 4), (), None, 5)

    def test_nothing_is_kept_once_the_last_reader_has_left(self) -> None:
        """It reads from the log if it comes back."""
        kept = KeptUpdates[int](3)
        with kept.reading():
            with kept.reading():
                kept.keep((1,))
            assert (kept.is_watched, kept.since(0)) == (True, (1,))

        assert (kept.is_watched, kept.since(0), kept.since(1)) == (False, None, ())

    async def test_the_end_wakes_those_who_wait(self) -> None:
        """So does an item that nobody knows."""
        kept = KeptUpdates[int](3)
        waiting = asyncio.ensure_future(kept.beyond(0))
        await asyncio.sleep(0)
        kept.skip()
        await waiting
        assert kept.since(0) is None

        waiting = asyncio.ensure_future(kept.beyond(1))
        await asyncio.sleep(0)
        kept.close()
        await waiting

        assert kept.has_ended_at(1) and not kept.has_ended_at(0)
