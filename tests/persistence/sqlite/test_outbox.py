"""What goes out is written down with the step that says it, and crossed out when it has arrived."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from turnwise.persistence.errors import Damaged
from turnwise.persistence.records import Outgoing, Undelivered
from turnwise.persistence.sqlite.store import SqliteLog, SqliteStore
from turnwise.states import DeliverToUser, LlmResponse, StoreError

from ...support.store_internals import NAMES, query, statements_of, together, without_repeats
from ...support.walks import NOON, Walk

SOON = NOON + timedelta(minutes=1)


def answered() -> Walk:
    """A turn at whose end the model says something to the user."""
    return Walk().say().answer(LlmResponse, content="Sakura has one.")


async def talking(store: SqliteStore, name: str = "walk", *targets: str) -> tuple[SqliteLog, int]:
    """A conversation that has said something, and the effect by which it did."""
    walk = answered()
    event, step = walk.steps[-1]
    (effect_id,) = [effect.effect_id for effect in step.effects if isinstance(effect, DeliverToUser)]
    log = await Walk().say().into(store, name)
    await log.append(event, step, [Outgoing(effect_id, target) for target in targets or ("screen",)])
    return log, effect_id


def rows_in(database: Path) -> list[tuple[str, int]]:
    """The outbox as another program finds it in the file: target, and failed attempts."""
    with closing(sqlite3.connect(database)) as other:
        return other.execute("SELECT target, attempts FROM outbox ORDER BY target").fetchall()


async def until(database: Path, rows: list[tuple[str, int]]) -> None:
    """Wait until the outbox in the file is this; the test's own time limit ends it otherwise."""
    while rows_in(database) != rows:
        await asyncio.sleep(0.01)


class TestAStepThatSaysSomething:
    """One transaction holds the step and what goes out with it."""

    async def test_is_three_statements(self, store: SqliteStore) -> None:
        """The conversation moves on, the step is added, and so are its deliveries."""
        log = await Walk().say().into(store)
        event, step = answered().steps[-1]
        words = await statements_of(store)

        await log.append(event, step, [Outgoing(2, "screen"), Outgoing(2, "paper")])

        assert without_repeats(words) == [
            "BEGIN IMMEDIATE",
            "UPDATE conversations",
            "INSERT INTO events",
            "INSERT INTO outbox",
            "COMMIT",
        ]

    async def test_says_where_it_stands(self, store: SqliteStore) -> None:
        """The row names the step, in which the effect itself is found."""
        _, effect_id = await talking(store)

        (row,) = await store.outbox(await store.ids())

        assert row == Undelivered("walk", "screen", effect_id, 3)
        (entry,) = await store.entries("walk", after=row.seq - 1)
        assert effect_id in [effect.effect_id for effect in entry.effects if isinstance(effect, DeliverToUser)]

    async def test_lists_a_delivery_once(self, store: SqliteStore) -> None:
        """However often the caller names it."""
        log = await Walk().say().into(store)

        await log.append(*answered().steps[-1], [Outgoing(2, "screen"), Outgoing(2, "paper"), Outgoing(2, "screen")])

        assert [row.target for row in await store.outbox(await store.ids())] == ["paper", "screen"]


class TestReceipts:
    """Nobody waits for them, and none is lost but by a crash."""

    async def test_ride_along_with_the_next_steps(self, store: SqliteStore) -> None:
        """One commit holds them and whatever else waits, and each is written once."""
        receipts = [await talking(store, name, "screen", "paper") for name in NAMES]
        logs = [await Walk().into(store, f"other {name}") for name in NAMES]
        words = await statements_of(store)

        async def acknowledge(log: SqliteLog, effect_id: int) -> None:
            log.acknowledge(effect_id, "screen")
            log.postpone(effect_id, "paper", 1, SOON)

        appends = [log.append(*Walk().say().steps[1]) for log in logs]
        await together(store, *appends[:5], *(acknowledge(*one) for one in receipts), *appends[5:])
        left = await store.outbox(await store.ids())

        assert without_repeats(words) == [
            "BEGIN IMMEDIATE",
            "UPDATE conversations",
            "INSERT INTO events",
            "INSERT INTO details",
            "INSERT INTO acknowledgements",
            "DELETE FROM outbox",
            "UPDATE outbox",
            "COMMIT",
        ]
        assert {(row.target, row.attempts, row.next_attempt) for row in left} == {("paper", 1, SOON)}

    async def test_do_not_wait_for_a_step_for_long(self, store: SqliteStore, database: Path) -> None:
        """If nothing else comes they are stored by themselves, so that a crash repeats little."""
        log, effect_id = await talking(store, "walk", "screen", "paper")

        log.acknowledge(effect_id, "screen")
        log.postpone(effect_id, "paper", 1, SOON)

        await until(database, [("paper", 1)])

    async def test_are_kept_while_the_disk_fails(self, store: SqliteStore, database: Path) -> None:
        """They go along with a later commit."""
        log, effect_id = await talking(store)
        await query(store, "PRAGMA query_only = ON")

        log.acknowledge(effect_id, "screen")
        during = await store.outbox(await store.ids())
        await query(store, "PRAGMA query_only = OFF")
        await log.append(*Walk().say().answer(LlmResponse, content="Sakura has one.").say("Thanks.").steps[-1])

        assert ([row.target for row in during], rows_in(database)) == (["screen"], [])

    async def test_are_stored_behind_a_transaction_that_was_left_open(self, store: SqliteStore) -> None:
        """A disk in trouble may not let one be rolled back at once; the next one begins with that."""
        log, effect_id = await talking(store)
        await query(store, "BEGIN IMMEDIATE")

        log.acknowledge(effect_id, "screen")

        assert await store.outbox(await store.ids()) == ()

    async def test_are_tried_again_by_themselves(
        self, store: SqliteStore, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No step has to come."""
        monkeypatch.setattr("turnwise.persistence.sqlite.writer.RETRY_DELAY", 0.01)
        log, effect_id = await talking(store)

        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            log.acknowledge(effect_id, "screen")
            before = await store.outbox(await store.ids())

        assert len(before) == 1
        await until(database, [])

    async def test_are_not_tried_again_at_once(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """A disk in trouble is left alone for a while."""
        monkeypatch.setattr("turnwise.persistence.sqlite.writer.LONGEST_DELAY", 0.0)
        monkeypatch.setattr("turnwise.persistence.sqlite.writer.RETRY_DELAY", 3600.0)
        log, effect_id = await talking(store)
        await query(store, "PRAGMA query_only = ON")
        words = await statements_of(store)

        log.acknowledge(effect_id, "screen")
        while "BEGIN IMMEDIATE" not in words:
            await asyncio.sleep(0.01)
        for _ in range(10):
            await query(store, "PRAGMA user_version")
            await asyncio.sleep(0.01)
        await query(store, "PRAGMA query_only = OFF")

        assert words.count("BEGIN IMMEDIATE") == 1

    async def test_do_no_harm_to_steps(self, store: SqliteStore) -> None:
        """A receipt that cannot be written keeps no step from being stored."""
        log, effect_id = await talking(store)
        trigger = "CREATE TRIGGER t BEFORE DELETE ON outbox BEGIN SELECT RAISE(FAIL, 'no'); END"
        await store.database.write(lambda connection: connection.exec_driver_sql(trigger))

        log.acknowledge(effect_id, "screen")
        await log.append(*answered().say("Thanks.").steps[-1])
        await store.database.write(lambda connection: connection.exec_driver_sql("DROP TRIGGER t"))

        assert log.seq == 4
        assert await store.outbox(await store.ids()) == ()

    async def test_are_stored_when_the_store_is_closed(self, database: Path) -> None:
        """However little time they had."""
        store = await SqliteStore.open(database)
        log, effect_id = await talking(store)

        log.acknowledge(effect_id, "screen")
        await store.close()

        assert rows_in(database) == []

    async def test_are_not_taken_by_a_store_that_only_reads(self, database: Path) -> None:
        """It lists what is to be delivered, and changes nothing."""
        store = await SqliteStore.open(database)
        await talking(store)
        await store.close()
        reading = await SqliteStore.open(database, read_only=True)
        log = (await reading.load("walk")).log

        with pytest.raises(StoreError) as refused:
            log.acknowledge(2, "screen")

        assert refused.value.sentence == f"{database} was opened for reading only."
        assert [row.target for row in await reading.outbox(["walk"])] == ["screen"]
        await reading.close()


class TestDamage:
    """What is to be delivered is not guessed."""

    @pytest.mark.parametrize("moment", ["'noon'", "9223372036854775807"])
    async def test_of_a_moment_is_told(self, moment: str, store: SqliteStore) -> None:
        """One sentence (P33)."""
        await talking(store)
        update = f"UPDATE outbox SET next_attempt = {moment}"
        await store.database.write(lambda connection: connection.exec_driver_sql(update))

        with pytest.raises(Damaged) as damaged:
            await store.outbox(await store.ids())

        assert damaged.value.sentence == "What is to be delivered cannot be read: the database is damaged."
