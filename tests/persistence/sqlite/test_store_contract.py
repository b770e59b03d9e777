"""The store that ships keeps the contract that every store keeps: on a file, and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from turnwise.persistence.ports import Store
from turnwise.persistence.sqlite import queries, recorder
from turnwise.persistence.sqlite.log_position import Append
from turnwise.persistence.sqlite.recorder import Advance
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.sqlite.writer import Writer
from turnwise.states import StoreError
from turnwise.testing.store_contract import StoreContract


@asynccontextmanager
async def opened(url: str | Path) -> AsyncIterator[SqliteStore]:
    """A store, open."""
    store = await SqliteStore.open(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def full(store: Store) -> AsyncIterator[None]:
    """The database may not grow."""
    assert isinstance(store, SqliteStore)

    def limit(connection: Connection, pages: int | None) -> None:
        pages = pages or connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    await store.database.write(lambda connection: limit(connection, None))
    yield
    await store.database.write(lambda connection: limit(connection, 1_000_000))


class TestAFile(StoreContract):
    """SQLite on a file."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """The file is `dinner.db`."""
        place.mkdir(exist_ok=True)
        return opened(place / "dinner.db")

    def in_trouble(self, store: Store, place: Path) -> AbstractAsyncContextManager[None]:
        """The disk is full."""
        return full(store)


class TestMemory(StoreContract):
    """SQLite in memory, which is gone when it is closed."""

    lasting = False

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """No file at all."""
        return opened(":memory:")

    def in_trouble(self, store: Store, place: Path) -> AbstractAsyncContextManager[None]:
        """The memory is full."""
        return full(store)


class TestAStoreThatIsNotDescribed:
    """A contract that is subclassed in part says what is missing."""

    def test_must_say_how_it_is_opened(self, tmp_path: Path) -> None:
        """Nothing is guessed."""
        with pytest.raises(NotImplementedError):
            StoreContract().opened(tmp_path)

    def test_need_not_say_how_it_fails(self, tmp_path: Path) -> None:
        """That test is skipped."""
        with pytest.raises(pytest.skip.Exception):
            StoreContract().in_trouble(None, tmp_path)  # type: ignore[arg-type]


def forgets_conflicts(patch: pytest.MonkeyPatch) -> None:
    """A step that lost its race is dropped, and nobody is told."""
    patch.setattr(Writer, "_commit_alone", lambda self, position, step: None)


def mixes_targets(patch: pytest.MonkeyPatch) -> None:
    """A receipt counts for all targets of a delivery."""
    patch.setattr(recorder, "_ACKNOWLEDGE", "DELETE FROM outbox WHERE conversation = ?1 AND effect_id = ?3 AND ?2 = ?2")


def turns_the_outbox_around(patch: pytest.MonkeyPatch) -> None:
    """What was said last is delivered first."""
    right = queries.undelivered
    patch.setattr(queries, "undelivered", lambda connection, ids: right(connection, ids)[::-1])


def loses_receipts(patch: pytest.MonkeyPatch) -> None:
    """Nothing of what became of deliveries is stored."""
    patch.setattr(recorder, "note", lambda driver, receipts: None)


def sends_without_storing(patch: pytest.MonkeyPatch) -> None:
    """Nothing is put into the outbox."""
    right = recorder.advance
    patch.setattr(
        recorder, "advance", lambda driver, steps: right(driver, [step._replace(outgoing=()) for step in steps])
    )


def leaves_a_gap(patch: pytest.MonkeyPatch) -> None:
    """Where a step does not follow is not looked at, as long as nobody else was first."""
    patch.setattr(
        Append, "advance", lambda self: Advance(self.position.head, *self.step.behind(self.position.head.chain))
    )


def lists_the_oldest_first(patch: pytest.MonkeyPatch) -> None:
    """The list is the wrong way round."""
    right = queries.summaries
    patch.setattr(queries, "summaries", lambda *given: right(*given)[::-1])


def lets_go_of_what_is_handed_in(patch: pytest.MonkeyPatch) -> None:
    """A step whose caller is cancelled is not stored."""
    right = Writer._store
    patch.setattr(
        Writer, "_store", lambda self, batch: right(self, [one for one in batch if not one.result.future.cancelled()])
    )


class TestAFault:
    """The contract notices a store that does not keep it."""

    @pytest.mark.parametrize(
        ("fault", "test"),
        [
            (forgets_conflicts, "test_of_two_writers_one_wins"),
            (mixes_targets, "test_what_was_acknowledged_is_no_longer_in_the_outbox"),
            (turns_the_outbox_around, "test_the_outbox_is_in_order_for_each_target"),
            (loses_receipts, "test_receipts_go_along_with_steps"),
            (sends_without_storing, "test_the_outbox_is_in_order_for_each_target"),
            (leaves_a_gap, "test_a_step_follows_the_newest"),
            (lists_the_oldest_first, "test_the_list_has_the_newest_first"),
            (lets_go_of_what_is_handed_in, "test_a_caller_that_is_cancelled_has_handed_its_step_in"),
        ],
    )
    def test_is_noticed(
        self, fault: Callable[[pytest.MonkeyPatch], None], test: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the test that says what was broken."""
        getattr(TestAFile(), test)(tmp_path / "before")

        fault(monkeypatch)

        with pytest.raises((AssertionError, StoreError, pytest.fail.Exception)):
            getattr(TestAFile(), test)(tmp_path / "after")
