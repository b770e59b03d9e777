"""The connection of a worker to the tables of its jobs.

It is the worker's own, so that its heart beats although all connections of the store are in use, and its settings are
those that small tables want whose rows live for moments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import psycopg
from procrastinate import BaseConnector
from procrastinate.exceptions import NoResult
from psycopg.rows import dict_row

from ..errors import StorageFailed
from .connection import WRITES, adapt, failure, is_pooled, no_connection
from .job_tables import JobTables

if TYPE_CHECKING:
    from .address import PostgresAddress

logger: logging.Logger = logging.getLogger("turnwise.postgres")

PATIENCE = 10.0
"""Seconds for which an answer of the server is waited for. Another connection may be better."""


class JobSession(BaseConnector):
    """A connection that executes one statement after the other, each in a transaction of its own, and is made anew when
    it broke. Through it procrastinate reaches the server.

    Raises `StorageFailed` where the server fails or does not answer, and `StoreError` for what will not pass. What
    violates a constraint, and what procrastinate's functions raise, is raised as it is.
    """

    def __init__(self, address: PostgresAddress, tables: JobTables) -> None:
        self._name = address.name
        self._conninfo = address.direct_conninfo
        self._tables = tables
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._is_pooled = False
        self._is_well = True
        self.connections: int = 0
        """How many connections were made so far."""
        self._turn = asyncio.Lock()

    async def rows(self, query: str, arguments: Mapping[str, Any], *, is_planned: bool = False) -> list[dict[str, Any]]:
        """Execute a statement, and return what it finds. `is_planned` has the server plan it now, for the tables as
        they are."""
        async with self._turn:
            try:
                async with asyncio.timeout(PATIENCE):
                    found = await self._execute(await self._connected(), query, arguments, is_planned)
                self._is_well = True
                return found
            except (psycopg.IntegrityError, psycopg.errors.RaiseException):
                raise
            except (psycopg.Error, OSError, StorageFailed) as error:
                await self._drop()
                failed = error if isinstance(error, StorageFailed) else failure(self._name, error)
                if self._is_well and isinstance(failed, StorageFailed):
                    logger.warning("No conversations can be taken for now: %s", failed)
                self._is_well = False
                raise failed from error
            except BaseException:
                await self._drop()
                raise

    async def pages(self, query: str, arguments: Mapping[str, Any], length: int) -> AsyncIterator[str]:
        """Yield the ids that a statement finds, page by page: it finds so many behind the key `after` at most."""
        after = 0
        while found := await self.rows(query, {**arguments, "after": after}, is_planned=True):
            for row in found:
                yield row["id"]
            if len(found) < length:
                return
            after = found[-1]["key"]

    async def end(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._drop()

    async def _execute(
        self,
        connection: psycopg.AsyncConnection[dict[str, Any]],
        query: str,
        arguments: Mapping[str, Any],
        is_planned: bool,
    ) -> list[dict[str, Any]]:
        async with connection.transaction() if self._is_pooled else nullcontext():
            if self._is_pooled:
                await connection.execute(self._settings("LOCAL").encode())
            cursor = await connection.execute(query.encode(), arguments, prepare=False if is_planned else None)
            return await cursor.fetchall() if cursor.description else []

    async def _connected(self) -> psycopg.AsyncConnection[dict[str, Any]]:
        if self._connection is not None:
            return self._connection
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, row_factory=dict_row, prepare_threshold=2
            )
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise no_connection(self._name, error) from error
        self._connection = connection
        self.connections += 1
        adapt(connection)
        self._is_pooled = await is_pooled(connection)
        if self._is_pooled:
            connection.prepare_threshold = None
            await connection.set_read_only(False)
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        else:
            await connection.execute(f"{WRITES}; {self._settings('SESSION')}".encode())
        return connection

    def _settings(self, scope: str) -> str:
        return _SETTINGS.format(scope=scope, jobs=self._tables.schema, conversations=self._tables.conversations)

    async def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    # --- for procrastinate

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        """Execute a statement."""
        await self.rows(query, arguments)

    async def execute_query_one_async(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Execute a statement, and return the first row that it finds. Raises `NoResult`."""
        found = await self.rows(query, arguments)
        if not found:
            raise NoResult
        return found[0]

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        """Execute a statement, and return what it finds."""
        return await self.rows(query, arguments)


_SETTINGS = """
SET {scope} search_path = "{jobs}", "{conversations}"; SET {scope} enable_sort = off; SET {scope} enable_seqscan = off;
SET {scope} enable_bitmapscan = off; SET {scope} enable_hashjoin = off; SET {scope} enable_mergejoin = off;
SET {scope} enable_material = off; SET {scope} max_parallel_workers_per_gather = 0; SET {scope} jit = off"""
"""The server keeps no useful statistics of a table whose rows live for moments. Left to itself it may sort all jobs
that wait in order to find the first one. The indexes have the order already. What is off counts as infinitely dear, so
the server would also translate each statement into machine code, which takes a second, where it then takes 0.2 ms."""
