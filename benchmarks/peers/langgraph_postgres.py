"""LangGraph, with its `AsyncPostgresSaver` over a pool of connections, as its documentation has it.

    python -m peers.langgraph_postgres URL '{"conversations": 40, "turns": 5}'

Prints what the turns took as a line of JSON. The processor time is that of this process alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from .langgraph import LangGraph
from .measures import say
from .standard import MESSAGES

CONNECTIONS = 8


class LangGraphPostgres(LangGraph):
    """LangGraph over PostgreSQL."""

    packages = ("langgraph", "langgraph-checkpoint-postgres", "langchain-core", "psycopg")

    async def saver(self, file: str) -> BaseCheckpointSaver[Any]:
        """Return the saver over the database at this URL, ready."""
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool = AsyncConnectionPool(file, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=options, open=False)
        saver = AsyncPostgresSaver(await self.resources.enter_async_context(pool))  # type: ignore[arg-type]
        await saver.setup()
        return saver


async def many(url: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Hold the turns of many conversations at once, after some that warm everything up."""
    system = LangGraphPostgres()
    await system.open(url)  # type: ignore[arg-type]
    await say(system, await system.create(-1), 3)
    print("ready", flush=True)
    sys.stdin.readline()
    conversations = [await system.create(number) for number in range(sizes["conversations"])]
    clock, busy = perf_counter(), process_time()
    await asyncio.gather(*(say(system, conversation, sizes["turns"]) for conversation in conversations))
    wall, processor = perf_counter() - clock, process_time() - busy
    for conversation in conversations:
        assert await system.count(conversation) == sizes["turns"] * MESSAGES
    await system.close()
    return {"wall": wall, "processor": processor, "versions": {each: version(each) for each in system.packages}}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(many(sys.argv[1], json.loads(sys.argv[2])))))
