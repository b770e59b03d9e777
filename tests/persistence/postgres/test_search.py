"""What is found again in PostgreSQL: what it costs, how it ranks, and that no step waits for the index.

What must be found at all is in `turnwise.testing.store_contract`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import psycopg
import pytest

from turnwise.persistence.postgres import search
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.connection import PostgresDriver
from turnwise.persistence.postgres.database import PostgresDatabase
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.persistence.sql.texts import number_of
from turnwise.states.values.acts import MemoryQuery, MemoryScope
from turnwise.testing.store_contract.story import ANNA, NOON, Story, dialogue, found, texts_of


@asynccontextmanager
async def opened(url: str, *, read_only: bool = False) -> AsyncIterator[PostgresStore]:
    """Open a store over the database at this URL."""
    store = await PostgresStore.open(PostgresAddress.of(url), connections=4, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A new database."""
    async with opened(postgres_url) as store:
        yield store


async def rows_read(store: PostgresStore, *keywords: str) -> int:
    """Search once, and return how many rows of the table of texts that has read."""

    def counted(driver: PostgresDriver) -> int:
        def total() -> int:
            row = driver.execute(
                "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
                "WHERE relname = 'texts'"
            ).fetchone()
            return 0 if row is None else int(row[0])

        before = total()
        search.search(driver, MemoryQuery(ANNA, keywords, None, None, 10))
        return total() - before

    return await store.database.read(counted)


ADD_TEXTS = """
INSERT INTO texts (conversation, seq, part, scope, at, turn, by_user, length, said, words)
SELECT (SELECT min(key) FROM conversations), 1, number, %s, number, 1, 1, 2, 'x', array_to_tsvector(%s::text[])
FROM generate_series(1, %s) AS number
"""


def add_texts(driver: PostgresDriver, owner: str, words: tuple[str, ...], count: int) -> None:
    """Add many texts of an owner with these words to the index, without a log."""
    scope = number_of(owner, 0)
    driver.execute(ADD_TEXTS, (scope, [f"{scope:x}z{word}" for word in words], count))


class TestCost:
    """A search reads the owner's texts that hold a keyword, and no others."""

    @pytest.mark.parametrize("has_statistics", [False, True])
    async def test_what_others_said_is_not_read(self, store: PostgresStore, has_statistics: bool) -> None:
        """Nor what the owner said without the keyword; also before the server has looked at the tables."""
        await dialogue(store, "a", "A sushi bar", "A ramen bar", "Sushi again")
        assert len(await found(store, "sushi")) == 2

        def add(driver: PostgresDriver) -> None:
            for other in range(20):
                add_texts(driver, f"other {other}", ("sushi", "bar"), 500)
            add_texts(driver, "anna", ("soup",), 5000)
            if has_statistics:
                driver.execute("ANALYZE texts")

        await store.database.write(add)

        assert await rows_read(store, "sushi") <= 10
        assert await rows_read(store, "sushi", "pizza", "ramen") <= 20
        assert await rows_read(store, "pizza") == 0

    async def test_the_last_minutes_are_read_from_their_end(self, store: PostgresStore) -> None:
        """However much the owner has said."""
        await dialogue(store, "a", "sushi")
        await store.recent(ANNA, NOON)

        def add(driver: PostgresDriver) -> None:
            add_texts(driver, "anna", ("soup",), 20_000)
            driver.execute("ANALYZE texts")

        def plan(driver: PostgresDriver) -> str:
            scope = number_of("anna", 0)
            rows = driver.execute(
                "EXPLAIN SELECT id FROM texts WHERE scope = %s AND at >= 0 ORDER BY at DESC, id DESC LIMIT 200",
                (scope,),
            )
            return " ".join(row[0] for row in rows)

        await store.database.write(add)

        assert "Scan Backward using texts_scope" in await store.database.read(plan)

    async def test_a_search_that_finds_everything_indexed_is_one_transaction(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The index is looked at in the transaction that searches."""
        await dialogue(store, "a", "sushi")
        await found(store, "sushi")
        read, transactions = store.database.read, count()
        monkeypatch.setattr(store.database, "read", lambda work: (next(transactions), read(work))[1])
        monkeypatch.delattr(PostgresDatabase, "write")

        assert await found(store, "sushi") == ["sushi"]

        assert next(transactions) == 1
        monkeypatch.undo()


class TestRanking:
    """What a user means comes first."""

    async def test_a_rare_keyword_counts_more(self, store: PostgresStore) -> None:
        """One that almost every text holds says little."""
        await dialogue(store, "a", "Sakura is closed", *["A table"] * 20)

        assert (await found(store, "table", "sakura"))[0] == "Sakura is closed"

    async def test_a_nearer_ending_counts_more(self, store: PostgresStore) -> None:
        """Of words that share their first two thirds with the keyword."""
        await dialogue(store, "a", "ravintolassa", "ravintolan", "ravintolasta")

        assert (await found(store, "ravintolasta"))[0] == "ravintolasta"

    async def test_a_short_text_counts_more(self, store: PostgresStore) -> None:
        """Of two that hold the keyword."""
        await dialogue(store, "a", "sushi", "a long text in which sushi is one word of very many others")

        assert (await found(store, "sushi"))[0] == "sushi"

    async def test_words_of_a_phrase_follow_each_other(self, store: PostgresStore) -> None:
        """In the order in which the keyword has them."""
        await dialogue(store, "a", "fi wi", "wi or fi", "the wi-fi here", "寿司", "司寿", "wi fi")

        assert sorted(await found(store, "wi-fi")) == ["the wi-fi here", "wi fi"]
        assert await found(store, "寿司") == ["寿司"]
        assert sorted(await found(store, "wi-fi", "or")) == ["the wi-fi here", "wi fi", "wi or fi"]


class TestTexts:
    """Whatever people write."""

    async def test_every_character_is_kept(self, store: PostgresStore) -> None:
        """Also those that PostgreSQL has no place for in a text."""
        texts = ["sushi \0 and nul", "sushi '; DROP TABLE texts; --", "sushi \\ %s \x01", "sushi 👩‍👧"]
        await dialogue(store, "a", *texts)

        assert sorted(await found(store, "sushi")) == sorted(texts)
        assert [text for text in texts_of(await store.recent(ANNA, NOON)) if "sushi" in text] == texts
        assert {text for _, text in await store.without_vectors(ANNA, "space", 99)} > set(texts)

    async def test_very_long_texts(self, store: PostgresStore) -> None:
        """Of very many different words the first are found, and the text is whole."""
        text = "first " + " ".join(f"w{number}" for number in range(120_000)) + " last"
        await dialogue(store, "a", text, "x" * 300_000)

        assert await found(store, "first") == [text]
        assert await found(store, "last") == []
        assert await found(store, "xxxxx") == ["x" * 300_000]


class TestTheIndex:
    """It follows the logs, and nothing waits for it."""

    async def test_two_processes_index_the_same_conversations(self, postgres_url: str, store: PostgresStore) -> None:
        """Each text once."""
        for number in range(4):
            await dialogue(store, f"{number}", *(f"sushi {each}" for each in range(120)))

        async with opened(postgres_url) as other:
            several = await asyncio.gather(*(found(each, "sushi", limit=999) for each in (store, other) * 3))

        assert all(len(texts) == 120 for texts in several)  # equal texts of one moment count once
        assert await store.database.read(texts_stored) == 4 * 240

    async def test_a_step_does_not_wait_for_it(self, store: PostgresStore, postgres_url: str) -> None:
        """Although a conversation is being indexed."""
        story = Story(owner="anna")
        log = await story.into(store)
        key = await store.database.read(only_key)
        with psycopg.connect(postgres_url) as other:
            search.index(PostgresDriver(other), key)

            await log.append(*story.say("sushi").newest)
            await log.append(*story.answer("Yes.").newest)

            other.commit()
        assert await found(store, "sushi") == ["sushi"]

    async def test_a_conversation_that_is_deleted_meanwhile(self, store: PostgresStore) -> None:
        """Its texts are gone, and the others are found."""
        for number in range(6):
            await dialogue(store, f"{number}", *(f"sushi {number} {each}" for each in range(60)))

        searching = asyncio.ensure_future(found(store, "sushi", limit=999))
        for number in range(0, 6, 2):
            await store.delete(f"{number}")
        await searching

        texts = await found(store, "sushi", limit=999)
        assert {text.split()[1] for text in texts} == {"1", "3", "5"}
        assert await store.database.read(texts_stored) == 3 * 120

    async def test_one_that_is_failed_is_finished_by_the_next(self, store: PostgresStore, postgres_url: str) -> None:
        """A process that dies while it indexes leaves nothing half done."""
        await dialogue(store, "a", *(f"sushi {number}" for number in range(300)))
        key = await store.database.read(only_key)
        with psycopg.connect(postgres_url) as other:
            driver = PostgresDriver(other)
            assert not search.index(driver, key)
            other.commit()
            search.index(driver, key)
            other.rollback()

        assert len(await found(store, "sushi", limit=999)) == 300

    async def test_whoever_only_reads_finds_what_is_indexed(self, store: PostgresStore, postgres_url: str) -> None:
        """And indexes nothing."""
        await dialogue(store, "a", "sushi one")
        await found(store, "sushi")
        await dialogue(store, "b", "sushi two")

        async with opened(postgres_url, read_only=True) as reader:
            assert await found(reader, "sushi") == ["sushi one"]

        assert sorted(await found(store, "sushi")) == ["sushi one", "sushi two"]

    async def test_owners_whose_numbers_are_equal(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """They do not see each other's texts: the owner is compared, too."""
        monkeypatch.setattr(search, "number_of", lambda owner, key: 7)
        monkeypatch.setattr("turnwise.persistence.sql.texts.number_of", lambda owner, key: 7)
        await dialogue(store, "a", "sushi one")
        await dialogue(store, "b", "sushi two", owner="bert")
        await found(store, "sushi", scope=MemoryScope("", "bert", 0))

        assert await found(store, "sushi") == ["sushi one"]
        assert [text for text in texts_of(await store.recent(ANNA, NOON)) if "sushi" in text] == ["sushi one"]


def texts_stored(driver: PostgresDriver) -> int:
    """Return how many texts the index has."""
    row = driver.execute("SELECT count(*) FROM texts").fetchone()
    return 0 if row is None else int(row[0])


def only_key(driver: PostgresDriver) -> int:
    """Return the key of the only conversation."""
    ((key,),) = driver.execute("SELECT key FROM conversations").fetchall()
    return int(key)
