"""The doctor finds an index that does not agree with the logs, and builds it again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from shutil import copy

import pytest

from turnwise.persistence import SqliteStore, StorageFailed, examine, repair
from turnwise.persistence.sqlite.search import NAME
from turnwise.states.values.acts import MemoryQuery, MemoryScope

from ...support.walks import Walk

TEXTS = ["A table for sushi", "我想吃寿司", "Nothing today"]


@asynccontextmanager
async def opened(path: Path, *, read_only: bool = False) -> AsyncIterator[SqliteStore]:
    """Open the database, and close it in the end."""
    store = await SqliteStore.open(path, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


async def found(store: SqliteStore, *keywords: str, owner: str = "anna") -> list[str]:
    """Search all conversations of an owner, and return the messages of people."""
    texts = await store.search(MemoryQuery(MemoryScope("", owner, 0), keywords, None, None, 100))
    return sorted(text.text for text in texts if text.role == "user")


async def indexed(path: Path) -> None:
    """A database with an index: two conversations of one owner and one of another."""
    async with opened(path) as store:
        await Walk("one", owner="anna").turn(TEXTS[0]).turn(TEXTS[1]).into(store)
        await Walk("two", owner="anna").turn(TEXTS[2]).into(store)
        await Walk("three", owner="bert").turn(TEXTS[0]).into(store)
        await found(store, "sushi")
        await found(store, "sushi", owner="bert")


def change(path: Path, *statements: str) -> None:
    """Change what is stored, as no part of turnwise would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for sql in statements:
            other.execute(sql)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose texts were indexed. Each test has a copy of it."""
    path = tmp_path_factory.mktemp("original") / "dinner.db"
    asyncio.run(indexed(path))
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A copy of the database."""
    return Path(copy(original, tmp_path / "dinner.db"))


DAMAGES = {
    "no index": (f"DROP TABLE {NAME}",),
    "no text": ("DELETE FROM texts WHERE seq = 2",),
    "one text too many": (
        "INSERT INTO texts (conversation, seq, part, scope, at, turn, by_user, text, checksum)"
        " SELECT conversation, seq, 7, scope, at, turn, by_user, 'sushi', 7 FROM texts WHERE id = 1",
    ),
    "a text that belongs to nobody": ("UPDATE texts SET conversation = 77 WHERE id = 1",),
    "another moment": ("UPDATE texts SET at = at + 1 WHERE id = 1",),
    "another reference": ("UPDATE texts SET path = '$.nothing' WHERE id = 1",),
    "another owner's number": ("UPDATE texts SET scope = 7 WHERE id = 1",),
    "a position too far on": ("UPDATE text_positions SET seq = 3", "DELETE FROM texts WHERE seq > 4"),
    "a word too many": (f"INSERT INTO {NAME} (rowid, words) VALUES (1, 'more')",),
    "words of no text": (f"INSERT INTO {NAME} (rowid, words) VALUES (77, 'more')",),
    "words forgotten": (f"INSERT INTO {NAME} ({NAME}) VALUES ('delete-all')",),
    "a torn index": (f"UPDATE {NAME}_data SET block = zeroblob(length(block)) WHERE id > 10",),
    "an index without its structure": (f"DELETE FROM {NAME}_data WHERE id = 10",),
    "an index without its words": (f"DELETE FROM {NAME}_data",),
    "an index without its table of words": (f"DROP TABLE {NAME}_data",),
    "an index without its settings": (f"DROP TABLE {NAME}_config",),
}


class TestTheDoctor:
    """`examine` and `repair`."""

    async def test_finds_nothing_wrong(self, path: Path) -> None:
        """Before the first search, behind it, and when the index has fallen behind."""
        async with opened(path) as store:
            assert (await examine(store)).findings == ()
            await Walk("four", owner="anna").turn("more sushi").into(store)
            assert (await examine(store)).findings == ()
            assert await found(store, "sushi") == [TEXTS[0], "more sushi"]
            assert (await examine(store)).findings == ()
        async with opened(path, read_only=True) as store:
            assert (await examine(store)).findings == ()
            assert await found(store, "寿司") == [TEXTS[1]]

    @pytest.mark.slow
    @pytest.mark.parametrize("damage", DAMAGES)
    async def test_finds_a_wrong_index_and_builds_it_again(self, damage: str, path: Path) -> None:
        """Whatever is wrong with it. A second examination finds nothing."""
        change(path, *DAMAGES[damage])
        async with opened(path, read_only=True) as store:
            seen = {finding.sentence for finding in (await examine(store)).findings}

        async with opened(path) as store:
            findings = (await examine(store)).findings
            await repair(store, findings)

            assert {finding.sentence for finding in findings} == seen != set()
            assert all("what was said" in sentence or "of no conversation" in sentence for sentence in seen)
            assert (await examine(store)).findings == ()
            assert await found(store, "sushi") == [TEXTS[0]]
            assert await found(store, "寿司", "nothing") == [TEXTS[2], TEXTS[1]]
            assert await found(store, "寿司", "sushi", owner="bert") == [TEXTS[0]]

    @pytest.mark.parametrize("damage", ["no text", "another reference", "a torn index", "an index without its words"])
    async def test_a_conversation_can_be_deleted_whatever_the_index_is_like(self, damage: str, path: Path) -> None:
        """An index that cannot forget the conversation is dropped, and built again when somebody searches."""
        change(path, *DAMAGES[damage])

        async with opened(path) as store:
            await store.delete("one")
            try:
                rest = await found(store, "sushi", "nothing")
            except StorageFailed:
                await repair(store, (await examine(store)).findings)
                rest = await found(store, "sushi", "nothing")

        assert set(rest) <= {TEXTS[2], "sushi"}

    async def test_an_owner_who_is_mended_has_his_texts(self, path: Path) -> None:
        """The texts of a conversation follow its owner, and the wrong one finds none of them."""
        change(path, "UPDATE conversations SET owner = 'bert' WHERE id = 'one'")
        async with opened(path) as store:
            assert await found(store, "寿司") == []
            await repair(store, (await examine(store)).findings)

            assert await found(store, "寿司") == [TEXTS[1]]
            assert await found(store, "寿司", owner="bert") == []
            assert (await examine(store)).findings == ()
