"""Databases of older versions get the roles of their conversations when they are opened, and show them when they are
only read."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import HistoryMessage, MemoryScope, Schedule, ScheduleChanged

from ....support.store_internals import take_back
from ....support.walks import NOON, Walk

pytestmark = pytest.mark.slow

AGENTS = {
    "anna's": ("foreground", None, None, "hello"),
    "reader": ("background", None, "anna's", ""),
    "silent": ("background", None, None, ""),
    "child": ("sub_agent", "anna's", None, "Look for a table"),
    "given": ("foreground", None, None, "hi"),
}
"""The conversations that `write` makes: the role, the parent, what each works for, and the title."""

OLDER = ["0001", "0002", "0003", "0004", "0005"]


@asynccontextmanager
async def opened(path: Path, *, read_only: bool = False) -> AsyncIterator[SqliteStore]:
    """Open the database, and close it in the end."""
    store = await SqliteStore.open(path, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


async def write(path: Path, revision: str) -> None:
    """Write a database of an older revision."""
    said = HistoryMessage.model_validate({"role": "assistant", "content": '{"role":"background","parent":"nobody"}'})
    async with opened(path) as store:
        await Walk("anna's").turn("hello").into(store)
        await Walk("reader", role="background", works_for="anna's").into(store)
        await Walk("silent", role="background").into(store)
        await Walk("child", role="sub_agent", parent="anna's").turn("Look for a table").into(store)
        await Walk("given", messages=(said,)).turn("hi").into(store)
    take_back(path, revision)


async def listed(store: SqliteStore) -> dict[str, tuple[str, str | None, str | None, str]]:
    """Return what the list shows of each conversation."""
    return {one.id: (one.role, one.parent, one.works_for, one.title) for one in await store.list()}


def change(path: Path, sql: str) -> None:
    """Change what is stored, as no part of turnwise would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert other.execute(sql).rowcount == 1


@pytest.mark.parametrize("revision", OLDER)
async def test_a_database_that_is_opened_has_the_roles_of_its_conversations(revision: str, tmp_path: Path) -> None:
    """They are found by them, the doctor finds nothing wrong, and a schedule can be added."""
    path = tmp_path / "old.db"
    await write(path, revision)
    reader = Walk("reader", role="background", works_for="anna's")
    reader.request(ScheduleChanged, schedule=Schedule(every=60, task="Look again."), next_wake=NOON)

    async with opened(path) as store:
        assert await listed(store) == AGENTS
        assert [one.id for one in await store.list(ConversationFilter(works_for="anna's"))] == ["reader"]
        assert [one.id for one in await store.list(ConversationFilter(parent="anna's", role="sub_agent"))] == ["child"]
        assert (await examine(store)).findings == ()
        assert await store.scheduled(5) == ()
        await (await store.load("reader")).log.append(*reader.steps[-1])
        assert await store.scheduled(5) == (("reader", NOON),)
        assert (await store.load("reader")).context == reader.context


@pytest.mark.parametrize("revision", OLDER[1:])
async def test_a_database_that_is_only_read_shows_the_roles_of_its_conversations(revision: str, tmp_path: Path) -> None:
    """And is left as it is, to the byte. Nothing in it is scheduled."""
    path = tmp_path / "old.db"
    await write(path, revision)
    before = path.read_bytes()

    async with opened(path, read_only=True) as store:
        assert await listed(store) == AGENTS
        assert {one.id for one in await store.list(ConversationFilter(role="foreground"))} == {"anna's", "given"}
        assert {one.id for one in await store.list(ConversationFilter(role="background", limit=5))} == {
            "reader",
            "silent",
        }
        assert [one.id for one in await store.list(ConversationFilter(parent="anna's"))] == ["child"]
        assert await store.scheduled(5) == ()
        assert (await examine(store)).findings == ()
        assert (await store.load("child")).log.seq == 5
    assert path.read_bytes() == before


@pytest.mark.parametrize("payload", ['\'not "role":"background"\'', '\'["role":"x"]\'', '\'{"role":"nurse"}\''])
async def test_a_first_step_that_cannot_be_read_names_no_role(payload: str, tmp_path: Path) -> None:
    """The database is opened and read all the same, and the doctor says what is wrong."""
    path = tmp_path / "old.db"
    await write(path, "0005")
    change(path, f"UPDATE events SET payload = {payload} WHERE event_id = 'silent-1'")

    async with opened(path, read_only=True) as store:
        read = await listed(store)
    async with opened(path) as store:
        migrated = await listed(store)
        findings = {(one.conversation_id, one.seq) for one in (await examine(store)).findings}

    assert read == migrated == {**AGENTS, "silent": ("foreground", None, None, "")}
    assert findings == {("silent", 1)}


async def test_texts_of_background_agents_are_not_found_any_more(tmp_path: Path) -> None:
    """An older version indexed them. The doctor finds nothing wrong before the next search, nor after it."""
    path = tmp_path / "old.db"
    scope = MemoryScope("elsewhere", "anna", 0)
    async with opened(path) as store:
        await Walk("anna's", owner="anna").turn("sushi").into(store)
        await Walk("reader", owner="anna", role="background").turn("sushi").into(store)
        assert [one.conversation_id for one in await store.recent(scope, NOON) if one.text == "sushi"] == ["anna's"]
    change(
        path,
        "INSERT INTO texts SELECT 99, 2, seq, part, scope, at, turn, by_user, source, path, text, checksum "
        "FROM texts WHERE conversation = 1 AND by_user",
    )
    take_back(path, "0005")

    async with opened(path, read_only=True) as store:
        assert (await examine(store)).findings == ()
    async with opened(path) as store:
        assert (await examine(store)).findings == ()
        assert [one.conversation_id for one in await store.recent(scope, NOON) if one.text == "sushi"] == ["anna's"]
        assert (await examine(store)).findings == ()
