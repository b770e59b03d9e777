"""A process that serves jobs: `python -m tests.support.postgres.job_worker URL NAME LEASE`.

It looks after a conversation by noting that it begins, waiting while the table `gates` names the conversation, or
itself and the conversation, and noting that it ends. What it notes stands in the table `ledger`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.persistence.sql.statements import Driver

T = TypeVar("T")

LEDGER = """
CREATE TABLE ledger (number bigserial PRIMARY KEY, worker text, conversation text, what text);
CREATE TABLE gates (gate text PRIMARY KEY)"""


async def until_stored(act: Callable[[], Awaitable[T]]) -> T:
    """Return what this returns, tried again for as long as the server ends what a process did that stood still."""
    while True:
        with suppress(StorageFailed):
            return await act()
        await asyncio.sleep(0.05)


async def serve(url: str, name: str, lease: float) -> None:
    """Serve jobs until the process ends."""
    store = await PostgresStore.open(PostgresAddress.of(url), connections=2)

    async def note(conversation_id: str, what: str) -> None:
        row = (name, conversation_id, what)
        await store.database.write(
            lambda driver: driver.execute("INSERT INTO ledger (worker, conversation, what) VALUES (%s, %s, %s)", row)
        )

    async def is_closed(conversation_id: str) -> bool:
        def look(driver: Driver) -> bool:
            gates = [conversation_id, f"{name}/{conversation_id}"]
            return driver.execute("SELECT 1 FROM gates WHERE gate = ANY(%s)", (gates,)).fetchone() is not None

        return await store.database.read(look)

    async def look_after(conversation_id: str) -> None:
        await until_stored(lambda: note(conversation_id, "begins"))
        while await until_stored(lambda: is_closed(conversation_id)):
            await asyncio.sleep(0.05)
        await until_stored(lambda: note(conversation_id, "ends"))

    print("ready", flush=True)
    await store.jobs.serve(look_after, slots=20, lease=lease)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], float(sys.argv[3])))
