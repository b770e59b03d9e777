"""Databases of older versions get titles when they are opened, and show them when they are only read."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from turnwise.persistence.errors import Damaged
from turnwise.persistence.maintenance.doctor import examine, repair
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import Image, PolicyChanged, UserMessage

from ....support.store_internals import take_back
from ....support.walks import Walk

pytestmark = pytest.mark.slow

TITLES = {
    "short": "A table for two",
    "later": "hello",
    "long": "x" * 59 + "…",
    "image": "1 image",
    "silent": "",
}
"""The titles of the conversations that `write` makes."""


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
    image = Image(url="https://example.com/table.png")
    async with opened(path) as store:
        await Walk("short").turn("A table\n for two").turn("And tomorrow?").into(store)
        later = Walk("later")
        await later.request(PolicyChanged, policy=later.context.policy).turn("hello").into(store)
        await Walk("long").say("x" * 100_000).into(store)
        await Walk("image").request(UserMessage, text="", images=(image,)).into(store)
        await Walk("silent").into(store)
    take_back(path, revision)


def change(path: Path, sql: str) -> None:
    """Change what is stored, as no part of turnwise would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert other.execute(sql).rowcount == 1


def rows_of(path: Path, table: str) -> list[object]:
    """All rows of a table."""
    with closing(sqlite3.connect(path)) as other:
        return other.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
class TestADatabaseThatIsOpened:
    """It is migrated."""

    async def test_has_the_titles_of_first_messages(self, revision: str, tmp_path: Path) -> None:
        """No step is written again, the doctor finds nothing, and every conversation replays."""
        path = tmp_path / "old.db"
        await write(path, revision)
        steps = rows_of(path, "events")

        async with opened(path) as store:
            assert {one.id: one.title for one in await store.list()} == TITLES
            assert (await examine(store)).findings == ()
            assert [(await replay_conversation(store, name)).divergence for name in TITLES] == [None] * len(TITLES)
        assert rows_of(path, "events") == steps

    async def test_goes_on_as_a_new_one_does(self, revision: str, tmp_path: Path) -> None:
        """A conversation without a title gets that of its first message, the others keep theirs."""
        path = tmp_path / "old.db"
        await write(path, revision)
        walks = {"silent": Walk("silent").say("Good evening"), "later": Walk("later")}
        later = walks["later"].request(PolicyChanged, policy=walks["later"].context.policy).turn("hello").say("again")

        async with opened(path) as store:
            await (await store.load("silent")).log.append(*walks["silent"].steps[-1])
            await (await store.load("later")).log.append(*later.steps[-1])

            titles = {one.id: one.title for one in await store.list()}
            assert titles == {**TITLES, "silent": "Good evening"}


@pytest.mark.parametrize("revision", ["0002", "0003"])
class TestADatabaseThatIsOnlyRead:
    """It is left as it is, to the byte."""

    async def test_shows_the_titles_of_first_messages(self, revision: str, tmp_path: Path) -> None:
        """In pages, too; no conversation has metadata."""
        path = tmp_path / "old.db"
        await write(path, revision)
        before = path.read_bytes()

        async with opened(path, read_only=True) as store:
            listed = await store.list()
            page = await store.list(ConversationFilter(limit=2, before=listed[1].id, metadata={}))

            assert {one.id: one.title for one in listed} == TITLES
            assert page == listed[2:4]
            assert (
                await store.list(ConversationFilter(metadata={"tenant": None}))
                == await store.list(ConversationFilter(owner="anna"))
                == ()
            )
            assert (await examine(store)).findings == ()
            assert (await store.load("later")).log.seq == 6
        assert path.read_bytes() == before


class TestADamagedDatabase:
    """It is opened all the same."""

    @pytest.mark.parametrize(
        "payload", ["'not JSON'", "'[]'", "'{}'", "x'ff00'", "'{\"text\":7}'", "CAST(x'7b22ff227d' AS TEXT)"]
    )
    async def test_a_message_that_cannot_be_read_gives_no_title(self, payload: str, tmp_path: Path) -> None:
        """To be migrated, and to be read only; the doctor says what is wrong."""
        path = tmp_path / "old.db"
        await write(path, "0003")
        change(path, f"UPDATE events SET payload = {payload} WHERE event_id = 'short-2'")

        async with opened(path, read_only=True) as store:
            read = {one.id: one.title for one in await store.list()}
        async with opened(path) as store:
            migrated = {one.id: one.title for one in await store.list()}
            (finding,) = (await examine(store)).findings

        assert read == migrated == {**TITLES, "short": ""}
        assert (finding.conversation_id, finding.seq, finding.repair) == ("short", 2, None)

    async def test_metadata_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        """The list says that the file is damaged, and the doctor repairs it."""
        path = tmp_path / "new.db"
        async with opened(path) as store:
            await Walk(metadata={"tenant": "a"}).into(store)
        change(path, "UPDATE details SET metadata = '[1]'")

        async with opened(path) as store:
            with pytest.raises(Damaged, match="The list of the conversations cannot be read"):
                await store.list()
            await repair(store, (await examine(store)).findings)
            assert [dict(one.metadata) for one in await store.list()] == [{"tenant": "a"}]
