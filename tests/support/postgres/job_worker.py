"""A process that serves jobs: `python -m tests.support.postgres.job_worker URL NAME LEASE`.

It looks after a conversation by noting that it begins, waiting until the table `gates` lets the conversation go, and
noting that it ends. What it notes stands in the table `ledger`.
"""

from __future__ import annotations

import asyncio
import sys

from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.store import PostgresStore

LEDGER = """
CREATE TABLE ledger (number bigserial PRIMARY KEY, worker text, conversation text, what text);
CREATE TABLE gates (conversation text PRIMARY KEY)"""


async def serve(url: str, name: str, lease: float) -> None:
    """Serve jobs until the process ends."""
    store = await PostgresStore.open(PostgresAddress.of(url), connections=2)

    async def note(conversation_id: str, what: str) -> None:
        row = (name, conversation_id, what)
        await store.database.write(
            lambda driver: driver.execute("INSERT INTO ledger (worker, conversation, what) VALUES (%s, %s, %s)", row)
        )

    async def is_closed(conversation_id: str) -> bool:
        def look(driver: object) -> bool:
            statement = "SELECT 1 FROM gates WHERE conversation = %s"
            return driver.execute(statement, (conversation_id,)).fetchone() is not None  # type: ignore[attr-defined]

        return await store.database.read(look)

    async def look_after(conversation_id: str) -> None:
        await note(conversation_id, "begins")
        while await is_closed(conversation_id):
            await asyncio.sleep(0.05)
        await note(conversation_id, "ends")

    print("ready", flush=True)
    await store.jobs.serve(look_after, slots=20, lease=lease)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], float(sys.argv[3])))
