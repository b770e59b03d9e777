"""The store in PostgreSQL: all that a store must do, and what several processes that share it may rely on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from turnwise.persistence.errors import StoreConflict, StoreError
from turnwise.persistence.maintenance.doctor import examine, repair
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.persistence.records import ReplaceHead
from turnwise.persistence.summaries import ConversationFilter
from turnwise.testing.store_contract import StoreContract, Story, deliveries_of, plain

from ...support.postgres.fixtures import OLDEST_AND_NEWEST, Databases, with_option

CONNECTIONS = 4


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """Open a store over the database at `url`, as one process does."""
    store = await PostgresStore.open(PostgresAddress.of(url), connections=CONNECTIONS)
    try:
        yield store
    finally:
        await store.close()


@OLDEST_AND_NEWEST
class TestPostgres(StoreContract):
    """A database that each test has for itself. Its folder stands for the database, and folders in it for schemas."""

    @pytest.fixture(autouse=True)
    def _given(self, postgres_databases: Databases, postgres_url: str, tmp_path: Path) -> None:
        self.databases, self.url, self.place = postgres_databases, postgres_url, tmp_path

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """Every store has connections of its own."""
        return opened(self.url if place == self.place else with_option(self.url, f"schema={place.name}"))

    @asynccontextmanager
    async def in_trouble(self, store: Store, place: Path) -> AsyncIterator[None]:
        """The server takes no sessions."""
        with self.databases.out_of_order(self.url):
            yield


class TestNames:
    """Texts that PostgreSQL does not take as they are, and those that are longer than its indexes."""

    HOSTILE = ("\0", "a\0b", "\1", "\1\2", "\1\3", "\0\1\2\3", "'; DROP TABLE events; --", "%s", "寿司🍣", " ", "é")

    async def test_a_name_is_read_as_it_was_given(self, postgres_url: str) -> None:
        """As an id, an owner, a title, a target, and in metadata; no two of them are taken for each other."""
        async with opened(postgres_url) as store:
            for name in self.HOSTILE:
                story = Story(owner=name, title=name, metadata={name: name}).say().answer()
                log = await store.create(name, *story.opening)
                await log.append(*story.steps[1])
                await log.append(*story.steps[2], deliveries_of(story.steps[2][1], name))

            for name in self.HOSTILE:
                (summary,) = await store.list(ConversationFilter(owner=name))
                title = " ".join(name.split()) or "A table for two?"
                assert (summary.id, summary.title, summary.metadata) == (name, title, {name: name})
                assert [one.id for one in await store.list(ConversationFilter(metadata={name: name}))] == [name]
                assert [one.target for one in await store.outbox([name])] == [name]
                assert (await store.load(name)).context.owner == name
                assert (await store.read_record(name)).id == name
            assert set(await store.ids()) == set(self.HOSTILE)
            assert set(await store.ids("\1")) == {name for name in self.HOSTILE if name.startswith("\1")}

    async def test_ids_are_compared_by_their_characters(self, postgres_url: str) -> None:
        """Whatever language the server speaks: a prefix selects what begins with it, and nothing else."""
        names = ("a", "A", "ab", "a-b", "a b", "b", "ä", "aä", "a\U0010fffd")
        async with opened(postgres_url) as store:
            for name in names:
                await Story().into(store, name)

            for prefix in ("a", "A", "a-", "ä", "a\U0010fffd", "c"):
                assert await store.ids(prefix) == tuple(name for name in names if name.startswith(prefix))

    async def test_a_long_target_is_a_target(self, postgres_url: str) -> None:
        """It may be any text."""
        long = "".join(chr(0x4E00 + number * 37 % 20000) for number in range(5_000))
        story = Story().say().answer()
        async with opened(postgres_url) as store:
            log = await Story().say().into(store)
            await log.append(*story.newest, deliveries_of(story.newest[1], long, long + "!"))

            log.acknowledge(deliveries_of(story.newest[1], long)[0][0], long)

            assert [one.target for one in await store.outbox(["story"])] == [long + "!"]


class TestReading:
    """A store that was opened for reading only."""

    async def test_it_changes_nothing(self, postgres_url: str) -> None:
        """Everything can be read beside a process that writes, and nothing can be written."""
        story = Story().say().answer()
        async with opened(postgres_url) as writing:
            log = await Story().say().into(writing)
            reading = await open_store(postgres_url, read_only=True)
            loaded = await reading.load("story")
            await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))

            assert plain(await loaded.log.catch_up()) == story.log[2:]
            assert [summary.id for summary in await reading.list()] == ["story"]
            assert len(await reading.outbox(["story"])) == 1
            assert await reading.ids() == ("story",)
            record = await reading.read_record("story")
            for refused in (
                loaded.log.append(*story.say("More?").newest),
                reading.create("other", *story.opening),
                reading.delete("story"),
                reading.write_records([record._replace(id="other")]),
            ):
                with pytest.raises(StoreError, match="reading only"):
                    await refused
            with pytest.raises(StoreError, match="reading only"):
                loaded.log.acknowledge(1, "screen")
            await reading.close()


class TestRepairs:
    """What the doctor finds and repairs in tables that somebody has changed by hand."""

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE conversations SET waits = 0, next_timer = 7, state_type = 'idle'",
            "UPDATE conversations SET owner = 'bert'",
            "UPDATE details SET title = 'Another'",
            "DELETE FROM outbox WHERE target = 'paper'",
            "INSERT INTO outbox SELECT key, 'voice', 99, 3, 0, NULL, 0 FROM conversations",
        ],
    )
    async def test_a_row_that_was_changed_is_found_and_put_right(self, postgres_url: str, damage: str) -> None:
        """What follows from the log is written again."""
        story = Story(owner="anna", title="Dinner").say().answer()
        async with opened(postgres_url) as store:
            log = await store.create("story", *story.opening)
            await log.append(*story.steps[1])
            await log.append(*story.steps[2], deliveries_of(story.steps[2][1], "screen", "paper"))
            assert (await examine(store)).findings == ()
            with psycopg.connect(postgres_url) as administrator:
                administrator.execute(damage)

            found = await examine(store)
            assert found.findings
            await repair(store, found.findings)

            assert (await examine(store)).findings == ()

    async def test_a_conversation_that_has_moved_since_is_not_put_back(self, postgres_url: str) -> None:
        """Other processes may go on while the doctor looks: what he has found of it is out of date."""
        story = Story().say()
        async with opened(postgres_url) as store:
            log = await story.into(store)
            head = (await store.read_record("story")).head
            await log.append(*story.answer().newest)

            with pytest.raises(StoreConflict):
                await store.repair([ReplaceHead("story", head)])

            assert (await store.load("story")).state == story.state
