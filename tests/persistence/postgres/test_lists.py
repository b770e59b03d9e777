"""Lists of conversations in PostgreSQL: a page costs what is on it, however many conversations there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from turnwise.persistence.sql.listing import read_summaries
from turnwise.persistence.sql.statements import Statement
from turnwise.persistence.summaries import ConversationFilter
from turnwise.testing.store_contract import Story

from .test_store import opened

COUNT, PAGE, OWNERS = 10_000, 50, 4
MINUTE = 60_000_000


class ExplainedDriver:
    """Has the server explain each statement before it is executed. `read` is how many rows of conversations were
    looked at by those that sort them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.read = 0

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Execute a statement."""
        text: Any = sql.postgresql if isinstance(sql, Statement) else sql
        explained = self._connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + text.encode(), parameters).fetchone()
        assert explained is not None
        ((plan,),) = explained
        self.read += sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in nodes(plan["Plan"])
            if node.get("Relation Name") == "conversations"
        )
        return self._connection.execute(text.encode(), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> psycopg.Cursor[Any]:
        """Nothing that lists does this."""
        raise NotImplementedError


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan, and all plans in it."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


@pytest.fixture
async def url(postgres_url: str) -> str:
    """A database of many conversations, which moved a few seconds after each other."""
    async with opened(postgres_url) as store:
        await Story().say().into(store, "story")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT string_agg(attname, ', ') FROM pg_attribute WHERE attrelid = 'conversations'::regclass "
            "AND attnum > 0 AND attgenerated = '' AND attname NOT IN ('key', 'id', 'owner', 'updated_at')"
        ).fetchone()
        assert found is not None
        connection.execute(
            f"INSERT INTO conversations (id, owner, updated_at, {found[0]}) SELECT 'story ' || number, 'owner ' || "
            f"number %% {OWNERS}, updated_at - number * 7000000::bigint, {found[0]} "
            "FROM conversations, generate_series(1, %s) AS number",
            (COUNT,),
        )
        connection.execute("VACUUM ANALYZE")
    return postgres_url


@contextmanager
def explained(url: str) -> Iterator[ExplainedDriver]:
    """A driver that says what its statements cost."""
    with psycopg.connect(url) as connection:
        yield ExplainedDriver(connection)


def test_a_page_reads_no_other_conversations(url: str) -> None:
    """Whether it is the first one or begins far behind it, and whether it is of one owner or of all."""
    with explained(url) as driver:
        for wanted in ({}, {"owner": "owner 1"}):
            whole = [one.id for one in read_summaries(driver, ConversationFilter(**wanted))]
            driver.read = 0

            first = read_summaries(driver, ConversationFilter(limit=PAGE, **wanted))
            later = read_summaries(driver, ConversationFilter(limit=PAGE, before=whole[999], **wanted))

            assert [one.id for one in first] == whole[:PAGE]
            assert [one.id for one in later] == whole[1000 : 1000 + PAGE]
            assert driver.read < 4 * OWNERS * PAGE


def test_a_step_within_the_same_minute_writes_to_no_index(url: str) -> None:
    """The order of the list costs a step nothing, as long as nothing else is found by what it changes."""
    with psycopg.connect(url) as connection:
        within = f"UPDATE conversations SET updated_at = updated_at / {MINUTE} * {MINUTE} + 1, seq = seq + 1 "
        connection.execute(f"{within} WHERE id = 'story'")

        counted = connection.execute(
            "SELECT pg_stat_get_xact_tuples_updated('conversations'::regclass), "
            "pg_stat_get_xact_tuples_hot_updated('conversations'::regclass)"
        ).fetchone()

        assert counted == (1, 1)
