"""A conversation with a schedule whose process is killed wakes up exactly once."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.states import Idle
from turnwise.testing import FunctionLlm, ManualClock, crash_at_every_boundary
from turnwise.testing.doubles import NOON

from ...support.fault_profile import LONG

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(0 if LONG else 240)]


def newest_moment(database: Path) -> datetime:
    """When the newest step was stored: a process that comes later begins no earlier."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (at,) = connection.execute("SELECT max(at) FROM events").fetchone()
    except sqlite3.OperationalError:  # there is no database yet
        at = None
    return NOON if at is None else datetime.fromtimestamp(at / 1_000_000, UTC)


async def one_hour(database: Path) -> None:
    """An hour passes, and the hourly task is done."""
    clock = ManualClock(newest_moment(database))
    due = NOON + timedelta(hours=1)
    async with Engine.open(database, model=FunctionLlm(lambda request: "I have looked."), clock=clock) as engine:
        known = await engine.list()
        scout = await engine.get(known[0].id) if known else await engine.create(every=3600, task="Look around.")
        await clock.until_asleep()
        await clock.advance_to(due + timedelta(minutes=1))
        while scout.state.book.turn < 1 or not isinstance(scout.state, Idle):
            await asyncio.sleep(0.002)

        tasks = [message.text for message in await scout.transcript() if message.origin == "schedule"]
        assert tasks == ["Look around."], tasks
        assert [turn.status for turn in await scout.turns()] == ["completed"]
        assert scout.next_wake == due + timedelta(hours=1)


@pytest.mark.skipif(not LONG, reason="a part of `make faults`")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kill_at_any_boundary_loses_no_wake_up_and_doubles_none(deaths: int) -> None:
    """Before and after the commit of the wake-up, and anywhere in its turn; also when the next process is killed."""
    report = crash_at_every_boundary(one_hour, deaths=deaths)

    assert report.kills >= 6
