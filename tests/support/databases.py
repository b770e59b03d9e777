"""Where a test opens its engine: a file, or a PostgreSQL database.

    pytestmark = BOTH_STORES

    async def test_it_holds(database: Database) -> None:
        async with Engine.open(database) as engine: ...

The tests of a module that is marked like this, and that take a `database`, run twice: over a file, and, as slow tests,
over PostgreSQL; so do those that take a `store`. A test that takes a `database_file` looks into the file itself, or
is about what one process does with all that is left when it opens or closes, and runs over a file only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import psycopg
import pytest

from turnwise import Engine
from turnwise.engine.composition import implements
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import SharedStore

from .engine_scenarios import full_disk

Database: TypeAlias = str | Path
"""What `Engine.open` takes: the path of a file, or the URL of a PostgreSQL database."""

BOTH_STORES = pytest.mark.both_stores

STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
"""The values of the fixture `database` in such a module."""


@asynccontextmanager
async def stores(database: Database, count: int) -> AsyncIterator[list[Any]]:
    """The stores of so many engines over one database: the same one over a file, one for each over PostgreSQL."""
    is_file = isinstance(database, Path)
    opened = [await open_store(database) for _ in range(1 if is_file else count)]
    try:
        yield opened * count if is_file else opened
    finally:
        for store in opened:
            await store.close()


async def call_for(engine: Engine, conversation_id: str) -> None:
    """Have the engine go on with what a process has left of this conversation, and nobody was told of: what it has lost
    on the way to its target. Over a file an engine does so when it opens; over PostgreSQL, when a worker looks for what
    is left over, after two leases."""
    if implements(engine.store, SharedStore):
        await cast("SharedStore", engine.store).jobs.call(conversation_id)


@asynccontextmanager
async def out_of_order(engine: Engine, database: Database) -> AsyncIterator[None]:
    """While this lasts, the database takes no writes, for a real reason: the disk is full, or the server is away."""
    if isinstance(database, Path):
        async with full_disk(engine):
            yield
        return
    name = urlsplit(database).path[1:]
    with psycopg.connect(urlsplit(database)._replace(path="/postgres").geturl(), autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        try:
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            yield
        finally:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


def everything_in(database: Database) -> str:
    """Return all that is stored: the bytes of the files, or the rows of all tables."""
    if isinstance(database, Path):
        return b"".join(path.read_bytes() for path in database.parent.iterdir()).decode(errors="replace")
    with psycopg.connect(database) as server:
        tables = server.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname LIKE 'turnwise%'"
            " OR schemaname = 'public'"
        ).fetchall()
        rows = [server.execute(f"SELECT row::text FROM {name} AS row".encode()).fetchall() for (name,) in tables]
    return str(rows)


def rows_of(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows that a query finds."""
    if isinstance(database, Path):
        with closing(sqlite3.connect(database)) as file:
            return file.execute(sql).fetchall()
    with psycopg.connect(database) as server:
        return server.execute(sql.encode()).fetchall()


def change(database: Database, sql: str, *values: int | str | bytes, rows: int = 1) -> None:
    """Change one row of what is stored, or so many, as no part of turnwise would. A question mark stands for a value.
    Skips the test where PostgreSQL cannot store such a thing."""
    if isinstance(database, Path):
        with closing(sqlite3.connect(database, isolation_level=None)) as file:
            assert file.execute(sql, values).rowcount == rows
        return
    with psycopg.connect(database, autocommit=True) as server:
        server.execute("SET session_replication_role = replica")  # nothing looks at foreign keys
        try:
            changed = server.execute(sql.replace("?", "%s") if values else sql, values or None)  # type: ignore[call-overload]
        except psycopg.DataError as refused:
            pytest.skip(f"PostgreSQL refuses it: {refused}")
        assert changed.rowcount == rows
