"""The crash kit observes stores of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.states import Event, Step
from turnwise.testing import ScriptedLlm, reply
from turnwise.testing.crashes import Journal, Seen, observed

from ..support.planted.stores import WrappedLog, WrappedStore


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """An open store in memory."""
    store = await open_store("sqlite://")
    yield store
    await store.close()


class TimedLog(WrappedLog):
    """A log whose appends have a timeout, which needs a task."""

    async def append(self, event: Event, step: Step, targets: Any = ()) -> None:
        """Store a step, within a minute."""
        async with asyncio.timeout(60):
            await super().append(event, step, targets)


async def seen_of(store: Any, path: Path) -> Seen:
    """What is seen of a turn over this store."""
    journal = Journal(path)
    with observed(journal):
        async with Engine.open(store=store, model=ScriptedLlm([reply("Hello.")])) as engine:
            assert (await (await engine.create()).send("Hi")).reply == "Hello."
    journal.close()
    return Seen.read(path)


async def test_a_log_that_uses_timeouts_works_under_observation(store: Store, tmp_path: Path) -> None:
    """Its wrapper runs in the task of the log."""
    seen = await seen_of(WrappedStore(store, TimedLog), tmp_path / "journal")

    assert "after llm_response is stored" in seen.boundaries
