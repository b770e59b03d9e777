"""A list is found by indexes, and reads no logs."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Connection

from turnwise.persistence.sqlite.file import driver_of
from turnwise.persistence.sqlite.schema import CONTEXT_CHANGES
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import (
    DetailsChanged,
    Opened,
    PolicyChanged,
    Schedule,
    ScheduleChanged,
    ToolsChanged,
)
from turnwise.states.context import CHANGES_CONTEXT

from ...support.walks import Walk


@pytest.fixture
async def memory() -> AsyncIterator[SqliteStore]:
    """A store in memory, in which one connection reads and writes."""
    store = await SqliteStore.open(":memory:")
    await Walk().turn("tonight").into(store)
    yield store
    await store.close()


async def plans_of(store: SqliteStore, read: Any) -> list[str]:
    """Return how SQLite carries out the queries that `read` makes: the lines of EXPLAIN QUERY PLAN."""
    statements: list[str] = []

    def trace(connection: Connection, callback: Any) -> None:
        driver_of(connection).set_trace_callback(callback)

    def explain(connection: Connection) -> list[str]:
        return [line for statement in statements for line in _plan(driver_of(connection), statement)]

    await store.database.writing.run(lambda connection: trace(connection, statements.append))
    await read()
    await store.database.writing.run(lambda connection: trace(connection, None))
    return list(await store.database.writing.run(explain))


def _plan(driver: sqlite3.Connection, statement: str) -> list[str]:
    if not statement.startswith("SELECT"):
        return []
    return [str(row[-1]) for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}")]


class TestAList:
    """However many conversations there are."""

    async def test_of_an_owner_uses_the_index_of_owners(self, memory: SqliteStore) -> None:
        """Nothing is scanned."""
        plans = await plans_of(
            memory, lambda: memory.list(ConversationFilter(owner="anna", state="idle", limit=50, before="walk"))
        )

        assert any("conversations USING INDEX conversations_owner" in plan for plan in plans), plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]

    @pytest.mark.parametrize("metadata", [{"tenant": "a"}, {"tenant": "a", "seats": 2, "open": True}])
    @pytest.mark.parametrize("owner", [None, "anna"])
    async def test_by_metadata_uses_the_key_of_its_entries(
        self, metadata: dict[str, Any], owner: str | None, memory: SqliteStore
    ) -> None:
        """Nothing is scanned, with and without an owner."""
        plans = await plans_of(
            memory, lambda: memory.list(ConversationFilter(metadata=metadata, owner=owner, limit=50))
        )

        assert any("metadata_entries USING PRIMARY KEY (entry=?)" in plan for plan in plans), plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]

    @pytest.mark.parametrize("column", ["parent", "works_for", "role"])
    async def test_of_agents_uses_the_index_of_whom_they_belong_to(self, column: str, memory: SqliteStore) -> None:
        """Nothing is scanned."""
        plans = await plans_of(memory, lambda: memory.list(ConversationFilter(**{column: "background"}, limit=50)))

        assert any(f"USING COVERING INDEX details_{column}" in plan for plan in plans), plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]

    async def test_of_scheduled_wake_ups_is_read_from_their_index(self, memory: SqliteStore) -> None:
        """In their order, so that no other conversation is looked at, and nothing is sorted."""
        plans = await plans_of(memory, lambda: memory.scheduled(5))

        assert plans == ["SEARCH conversations USING INDEX conversations_wakes_at (wakes_at>?)"]

    async def test_reads_no_logs(self, memory: SqliteStore) -> None:
        """Neither with a selection nor without one, in which case only `conversations` is scanned."""
        for selection in (
            {},
            {"limit": 5},
            {"owner": "anna"},
            {"metadata": {"a": 1}},
            {"state": "idle", "before": "walk"},
            {"role": "foreground"},
            {"role": "background", "works_for": "walk"},
        ):
            plans = await plans_of(memory, lambda selection=selection: memory.list(ConversationFilter(**selection)))

            assert plans
            assert not [plan for plan in plans if "events" in plan]
            assert {plan for plan in plans if plan.startswith("SCAN")} <= {"SCAN conversations"}

    async def test_of_ids_by_their_beginning_uses_the_index_of_ids(self, memory: SqliteStore) -> None:
        """Nothing is scanned."""
        plans = await plans_of(memory, lambda: memory.ids("wal"))

        assert "SEARCH conversations USING COVERING INDEX sqlite_autoindex_conversations_1 (id>? AND id<?)" in plans


class TestALoadedConversation:
    """What its context follows from is found without reading its log."""

    def test_knows_every_event_that_changes_a_context(self) -> None:
        """The first event of a log is always read."""
        changes = {kind.model_fields["type"].default for kind in CHANGES_CONTEXT if kind is not Opened}

        assert changes == set(CONTEXT_CHANGES)

    async def test_finds_the_changes_of_its_context_by_an_index(self, memory: SqliteStore) -> None:
        """Those of the policy, the schedule, the tools and the details."""
        plans = await plans_of(memory, lambda: memory.load("walk"))

        found = [plan for plan in plans if "events_context_changed" in plan]
        assert len(found) == 5
        assert not [plan for plan in plans if plan.startswith("SCAN")]
        assert all("(conversation=? AND type=?)" in plan for plan in found)

    async def test_reads_few_steps_however_often_they_were_changed(self, memory: SqliteStore) -> None:
        """The newest policy, schedule, title and metadata, and two changes of the tools."""
        walk = Walk("changed").turn("tonight").request(DetailsChanged, metadata={"tenant": "a"})
        walk.request(ToolsChanged, tools=("a",), from_turn=2).turn("tomorrow")
        for number in range(30):
            walk.request(DetailsChanged, title=f"Dinner {number}")
            walk.request(ToolsChanged, tools=(f"tool {number}",), from_turn=3)
            walk.request(PolicyChanged, policy=walk.context.policy)
            walk.request(ScheduleChanged, schedule=Schedule(every=60.0 + number, task="Look."))
        await walk.into(memory)
        read: list[str] = []
        await memory.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(read.append))

        loaded = await memory.load("changed")

        assert loaded.context == walk.context
        assert len([statement for statement in read if "events.payload" in statement.partition("FROM")[0]]) == 8
