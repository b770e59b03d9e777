"""The contract of stores notices a store that breaks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnwise.persistence import LoadedConversation, StorageFailed, Store, StoreConflict
from turnwise.states import StoreError
from turnwise.testing.store_contract import StoreContract

from ..support.examples import example

MemoryStore = example("memory_store").MemoryStore


class Wrapped:
    """Something whose methods are those of another object, apart from those that a subclass defines."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Wrapper(Wrapped):
    """A store whose logs are of the type `log_type`."""

    log_type: type[Wrapped] = Wrapped

    async def create(self, *arguments: Any, **options: Any) -> Any:
        """Create a conversation, and wrap its log."""
        return self.log_type(await self.inner.create(*arguments, **options))

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Load a conversation, and wrap its log."""
        loaded = await self.inner.load(conversation_id)
        log: Any = self.log_type(loaded.log)
        return LoadedConversation(log, loaded.state, loaded.context)


def with_log(log_type: type[Wrapped]) -> type[Wrapper]:
    """Return a store whose logs are of this type."""
    return type(f"With{log_type.__name__}", (Wrapper,), {"log_type": log_type})


class DropsWhatIsInConflict(Wrapped):
    """A step that is in conflict is dropped, and nobody is told."""

    async def append(self, *arguments: Any) -> None:  # noqa: D102
        try:
            await self.inner.append(*arguments)
        except StoreConflict:
            return


class AcknowledgesAllTargets(Wrapped):
    """A receipt counts for all targets of a delivery."""

    def acknowledge(self, effect_id: int, target: str) -> None:  # noqa: D102
        for each in ("screen", "paper"):
            self.inner.acknowledge(effect_id, each)


class LosesReceipts(Wrapped):
    """Nothing of what became of deliveries is stored."""

    def acknowledge(self, effect_id: int, target: str) -> None:  # noqa: D102
        pass

    def postpone(self, *receipt: Any) -> None:  # noqa: D102
        pass


class StoresNoDeliveries(Wrapped):
    """Nothing is put into the outbox."""

    async def append(self, event: Any, step: Any, targets: Any = ()) -> None:  # noqa: D102
        await self.inner.append(event, step)


class FindsNoRequest(Wrapped):
    """No request is ever recognised."""

    async def request(self, event_id: str) -> None:  # noqa: D102
        return None


class FindsTheNewestStep(Wrapped):
    """A request is found, with a step that did not take it."""

    async def request(self, event_id: str) -> Any:  # noqa: D102
        found = await self.inner.request(event_id)
        return None if found is None else replace(found, seq=self.inner.seq, turn=found.turn + 1)


class CatchesUpWithNothing(Wrapped):
    """A log moves on, and does not say what it missed."""

    async def catch_up(self) -> tuple[()]:  # noqa: D102
        await self.inner.catch_up()
        return ()


class ListsTheOldestFirst(Wrapper):
    """The list is in reverse order."""

    async def list(self, **options: Any) -> Any:  # noqa: D102
        return (await self.inner.list(**options))[::-1]


class IgnoresFilters(Wrapper):
    """The list is that of everybody."""

    async def list(self, *, owner: Any = None, state: Any = None, **options: Any) -> Any:  # noqa: D102
        return await self.inner.list(**options)


class RepeatsThePage(Wrapper):
    """A page begins with the last conversation of the page before."""

    async def list(self, *, before: str | None = None, limit: int | None = None, **options: Any) -> Any:  # noqa: D102
        everything = await self.inner.list(**options)
        start = [one.id for one in everything].index(before) if before else 0
        return everything[start:][:limit]


class ReversesTheOutbox(Wrapper):
    """What was said last is delivered first."""

    async def outbox(self, conversation_ids: Iterable[str]) -> Any:  # noqa: D102
        return (await self.inner.outbox(conversation_ids))[::-1]


class ReturnsTheWholeOutbox(Wrapper):
    """The outbox is that of all conversations."""

    async def outbox(self, conversation_ids: Iterable[str]) -> Any:  # noqa: D102
        return await self.inner.outbox(await self.inner.ids())


class ClaimsEverything(Wrapper):
    """Every conversation is said to wait."""

    async def claim(self, limit: int) -> Any:  # noqa: D102
        return (await self.inner.ids())[:limit]


class WritesSomeRecords(Wrapper):
    """The records before the one in conflict are stored."""

    async def write_records(self, records: Iterable[Any]) -> None:  # noqa: D102
        for record in records:
            await self.inner.write_records([record])


class CopiesWhatIsGone(Wrapper):
    """A copy does not need its original."""

    async def copy(self, source_id: str, record: Any) -> None:  # noqa: D102
        await self.inner.write_records([record])


class Fails(Wrapped):
    """A storage that can be made to fail, as it must: nothing of the step is stored."""

    is_failing = False

    async def append(self, *arguments: Any) -> None:  # noqa: D102
        if Fails.is_failing:
            raise StorageFailed("The disk is full.")
        await self.inner.append(*arguments)


class FailsLate(Wrapped):
    """A step that is said to have failed is stored."""

    async def append(self, *arguments: Any) -> None:  # noqa: D102
        await self.inner.append(*arguments)
        if Fails.is_failing:
            raise StorageFailed("The disk is full.")


def contract_of(store_type: Callable[[Any], Any]) -> StoreContract:
    """Return the contract of a store that wraps one in memory."""

    class Contract(StoreContract):
        lasting = False

        @asynccontextmanager
        async def opened(self, place: Path) -> AsyncIterator[Store]:
            store = store_type(MemoryStore())
            try:
                yield store
            finally:
                await store.close()

        @asynccontextmanager
        async def in_trouble(self, store: Store, place: Path) -> AsyncIterator[None]:
            Fails.is_failing = True
            yield
            Fails.is_failing = False

    return Contract()


FAULTS = [
    (with_log(DropsWhatIsInConflict), "test_of_two_writers_one_succeeds"),
    (with_log(DropsWhatIsInConflict), "test_an_equal_step_of_another_writer_is_a_conflict"),
    (with_log(DropsWhatIsInConflict), "test_a_step_follows_the_newest"),
    (with_log(DropsWhatIsInConflict), "test_a_request_is_taken_once"),
    (with_log(DropsWhatIsInConflict), "test_an_effect_is_answered_once"),
    (with_log(DropsWhatIsInConflict), "test_among_many_steps_only_the_conflicting_ones_fail"),
    (with_log(AcknowledgesAllTargets), "test_an_acknowledged_delivery_leaves_the_outbox"),
    (with_log(LosesReceipts), "test_receipts_are_stored_beside_steps"),
    (with_log(LosesReceipts), "test_a_failed_attempt_is_stored"),
    (with_log(StoresNoDeliveries), "test_the_outbox_is_in_order_for_each_target"),
    (with_log(FindsNoRequest), "test_a_request_is_found_by_its_id"),
    (with_log(FindsNoRequest), "test_a_request_that_another_writer_took_is_found"),
    (with_log(FindsTheNewestStep), "test_a_request_is_found_by_its_id"),
    (with_log(CatchesUpWithNothing), "test_a_log_catches_up_with_all_that_it_missed"),
    (with_log(CatchesUpWithNothing), "test_of_two_writers_one_succeeds"),
    (with_log(FailsLate), "test_a_step_that_fails_leaves_everything_as_before"),
    (ListsTheOldestFirst, "test_the_list_has_the_newest_first"),
    (IgnoresFilters, "test_the_list_can_be_filtered"),
    (RepeatsThePage, "test_the_list_has_pages"),
    (ReversesTheOutbox, "test_the_outbox_is_in_order_for_each_target"),
    (ReturnsTheWholeOutbox, "test_the_outbox_is_that_of_the_conversations_asked_for"),
    (ClaimsEverything, "test_what_waits_is_claimed"),
    (ClaimsEverything, "test_each_conversation_is_claimed_once"),
    (WritesSomeRecords, "test_records_are_written_all_or_none"),
    (CopiesWhatIsGone, "test_a_copy_needs_its_original"),
]


@pytest.mark.parametrize(("store_type", "test"), FAULTS, ids=[f"{one.__name__}-{test}" for one, test in FAULTS])
def test_a_fault_is_noticed(store_type: Callable[[Any], Any], test: str, tmp_path: Path) -> None:
    """By the test that says what was broken; without the fault this test passes."""
    getattr(contract_of(with_log(Fails)), test)(tmp_path)

    with pytest.raises((AssertionError, StoreError, pytest.fail.Exception)):
        getattr(contract_of(store_type), test)(tmp_path)


class TestAnIncompleteSubclass:
    """A subclass of the contract that leaves something out says what is missing."""

    def test_must_say_how_its_store_is_opened(self, tmp_path: Path) -> None:
        """Nothing is guessed."""
        with pytest.raises(NotImplementedError):
            StoreContract().opened(tmp_path)

    def test_need_not_say_how_its_storage_fails(self, tmp_path: Path) -> None:
        """The test that needs it is skipped."""
        with pytest.raises(pytest.skip.Exception):
            StoreContract().in_trouble(None, tmp_path)  # type: ignore[arg-type]
