"""What a simulation stores: a conversation may be deleted, and another one created under its id."""

from __future__ import annotations

import pytest

from turnwise.persistence.errors import StoreConflict
from turnwise.states import Opened, UnknownConversation, UserMessage, begin, transition
from turnwise.states.context import Context
from turnwise.testing.doubles import NOON

from .simulation.disk import Disk
from .simulation.environment import EventTrace, RandomSource, VirtualLoop
from .simulation.faulty_store import FaultyStorage

OPENED = Opened(event_id="opened", at=NOON)
MESSAGE = UserMessage(event_id="task", at=NOON, text="Hi")


def test_a_conversation_with_the_id_of_a_deleted_one_is_another_one() -> None:
    """It may take the same requests, has a key of its own, and the log of the deleted one neither stores nor finds
    anything in it."""
    chance = RandomSource("disk")
    loop = VirtualLoop(chance, disorder=0.0)
    disk = Disk(chance, EventTrace(loop))
    opened = begin(OPENED)
    step = transition(opened.state, MESSAGE, Context().after(OPENED))

    async def live() -> None:
        store = (await FaultyStorage(disk).open("A1")).store
        first = await store.create("id", OPENED, opened)
        assert disk.key_of("id") == ("id", 0)

        await store.delete("id")
        assert disk.key_of("id") == ("id", 0)
        second = await store.create("id", OPENED, opened)
        with pytest.raises(StoreConflict):
            await first.append(MESSAGE, step)
        with pytest.raises(UnknownConversation):
            await first.catch_up()
        await second.append(MESSAGE, step)
        with pytest.raises(UnknownConversation):
            await first.request("task")

    loop.run(live(), bound=1_000.0)

    assert disk.key_of("id") == ("id", 1)
    assert [len(rows) for rows in disk.logs_of("id")] == [1, 2]
    assert disk.trace.faults == []
