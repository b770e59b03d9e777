"""A manual clock for tests that run over both stores.

Over a file, an engine has timers, which sleep by its clock. Over PostgreSQL, the server calls for whoever looks after
what is due, by a clock of its own, which no test can move. A `ServerClock` does that in its place when it is moved.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import psycopg

from turnwise.persistence.codec import to_microseconds
from turnwise.testing import ManualClock
from turnwise.testing.strategies import NOON

from .databases import Database
from .engine_scenarios import until

_CALL = """
SELECT turnwise_jobs.turnwise_call(id) FROM conversations WHERE next_timer <= %(now)s OR wakes_at <= %(now)s
    OR EXISTS (SELECT FROM outbox WHERE conversation = key AND next_attempt <= %(now)s)
"""


class ServerClock(ManualClock):
    """A manual clock by which a PostgreSQL server calls for what is due."""

    def __init__(self, url: str, start: datetime) -> None:
        super().__init__(start)
        self._url = url

    async def advance_to(self, moment: datetime) -> None:
        """Move the clock to this moment, and have what is due by it called for."""
        await super().advance_to(moment)
        await self.call_for_due()

    async def call_for_due(self) -> None:
        """Call for whoever looks after the conversations that have something to do by now."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as server:
            await server.execute(_CALL, {"now": to_microseconds(self.now())})


def clock_of(database: Database, start: datetime = NOON) -> ManualClock:
    """Return a manual clock for engines over this database."""
    return ManualClock(start) if isinstance(database, Path) else ServerClock(database, start)


async def asleep(clock: ManualClock, at: datetime) -> None:
    """Return when something sleeps until this moment, or an earlier one: then the clock may be moved. What a server
    calls for is stored before anybody hears of it."""
    if not isinstance(clock, ServerClock):
        await until(lambda: bool(clock.sleepers) and clock.sleepers[0] <= at)
