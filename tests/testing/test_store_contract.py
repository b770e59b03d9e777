"""The contract of stores notices a store that breaks it, and one that finds the wrong texts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from turnwise.persistence import ConversationRecord, LoadedConversation, StorageFailed, Store, StoreConflict, encode
from turnwise.persistence.codec import GENESIS
from turnwise.persistence.summaries import EVERYTHING, ConversationFilter
from turnwise.states import Context, DetailsChanged, Opened, StoreError, UnknownConversation, UserMessage
from turnwise.testing.store_contract import StoreContract

from ..support.scenarios.examples import example

# --- The contract of stores notices a store that breaks it.


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

    async def begin(self, *receipt: Any) -> None:  # noqa: D102
        pass


class StoresNoDeliveries(Wrapped):
    """Nothing is put into the outbox."""

    async def append(self, event: Any, step: Any, targets: Any = ()) -> None:  # noqa: D102
        await self.inner.append(event, step)


class FindsNoRequest(Wrapped):
    """No request is ever recognised."""

    async def request(self, event_id: str) -> None:  # noqa: D102
        return None


class TakesADeletedLogForAnEmptyOne(Wrapped):
    """A conversation that was deleted has taken no request."""

    async def request(self, event_id: str) -> Any:  # noqa: D102
        try:
            return await self.inner.request(event_id)
        except UnknownConversation:
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

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return (await self.inner.list(wanted))[::-1]


class CountsFromNought(Wrapper):
    """The first step has the number 0."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return tuple(one.replace(seq=one.seq - 1) for one in await self.inner.list(wanted))


class IgnoresFilters(Wrapper):
    """The list is that of everybody."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return await self.inner.list(replace(wanted, owner=None, state=None))


class IgnoresMetadata(Wrapper):
    """The list is not selected by metadata."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return await self.inner.list(replace(wanted, metadata=None))


class ComparesMetadataInPython(Wrapper):
    """Values are equal where Python says so, to which 1 is True."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        values = (wanted.metadata or {}).items()
        return tuple(
            one
            for one in await self.inner.list(replace(wanted, metadata=None))
            if all(name in one.metadata and one.metadata[name] == value for name, value in values)
        )


class ComparesMetadataAsText(Wrapper):
    """Values are equal if they are written alike."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        values = {(name, json.dumps(value)) for name, value in (wanted.metadata or {}).items()}
        return tuple(
            one
            for one in await self.inner.list(replace(wanted, metadata=None))
            if values <= {(name, json.dumps(value)) for name, value in one.metadata.items()}
        )


class TitledAnew(Wrapper):
    """What a list shows of a conversation is changed by this."""

    def titled(self, summary: Any, messages: list[str], given: list[str]) -> str:
        """Return another title than the right one."""
        raise NotImplementedError

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return tuple([await self._changed(one) for one in await self.inner.list(wanted)])

    async def _changed(self, summary: Any) -> Any:
        events = [entry.event for entry in await self.inner.entries(summary.id)]
        messages = [event.text for event in events if isinstance(event, UserMessage)]
        given = [event.title or "" for event in events if isinstance(event, Opened | DetailsChanged)]
        return summary.replace(title=self.titled(summary, messages, given))


class ShowsTheNewestMessage(TitledAnew):
    """The title is the newest message of the user."""

    def titled(self, summary: Any, messages: list[str], given: list[str]) -> str:  # noqa: D102
        return messages[-1] if messages and summary.title in messages else summary.title


class ShowsTheWholeMessage(TitledAnew):
    """The title is not cut, and not put on one line."""

    def titled(self, summary: Any, messages: list[str], given: list[str]) -> str:  # noqa: D102
        return messages[0] if messages and messages[0].strip() else summary.title


class ShowsNoGivenTitle(TitledAnew):
    """The title that was given is not shown."""

    def titled(self, summary: Any, messages: list[str], given: list[str]) -> str:  # noqa: D102
        return messages[0] if messages else ""


class ShowsNoTitleOfAHistory(TitledAnew):
    """Only messages that were sent give a title."""

    def titled(self, summary: Any, messages: list[str], given: list[str]) -> str:  # noqa: D102
        return messages[0] if messages and not any(given) else summary.title


class ForgetsTheOwner(Wrapper):
    """Nothing is listed with its owner."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return tuple(one.replace(owner=None) for one in await self.inner.list(wanted))


class ForgetsTheRole(Wrapper):
    """Everything is listed as if it had a user."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        listed = await self.inner.list(wanted)
        return tuple(one.replace(role="foreground", parent=None, works_for=None) for one in listed)


class IgnoresRoles(Wrapper):
    """The list is not selected by role."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return await self.inner.list(replace(wanted, role=None))


class TakesParentsForEmployers(Wrapper):
    """What an agent works for is mistaken for what started it."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return await self.inner.list(replace(wanted, parent=wanted.works_for or wanted.parent, works_for=None))


class ListsForgottenSchedules(Wrapper):
    """A wake-up stays scheduled as the first step says."""

    async def scheduled(self, limit: int) -> Any:  # noqa: D102
        opened = {each: (await self.inner.entries(each, up_to=1))[0].event for each in await self.inner.ids()}
        wakes = [(each, event.next_wake) for each, event in opened.items() if event.next_wake is not None]
        return tuple(sorted(wakes, key=lambda wake: wake[1])[:limit])


class ListsTheLatestWakeUpFirst(Wrapper):
    """The wake-ups are in reverse order."""

    async def scheduled(self, limit: int) -> Any:  # noqa: D102
        return (await self.inner.scheduled(10**6))[::-1][:limit]


class RoundsWakeUps(Wrapper):
    """The moments are those of whole seconds."""

    async def scheduled(self, limit: int) -> Any:  # noqa: D102
        return tuple((each, at.replace(microsecond=0)) for each, at in await self.inner.scheduled(limit))


class ListsAllWakeUps(Wrapper):
    """The limit does not count."""

    async def scheduled(self, limit: int) -> Any:  # noqa: D102
        return await self.inner.scheduled(10**6)


class HidesWakeUps(Wrapper):
    """A list does not show them."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return tuple(one.replace(wakes_at=None) for one in await self.inner.list(wanted))


class KeepsTheFirstMetadata(Wrapper):
    """Metadata that was changed is listed as it was in the beginning."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        return tuple([await self._first(one) for one in await self.inner.list(wanted)])

    async def _first(self, summary: Any) -> Any:
        (opened,) = await self.inner.entries(summary.id, up_to=1)
        return summary.replace(metadata=opened.event.metadata)


class LoadsTheFirstContext(Wrapper):
    """What was changed since the conversation began is not in its context."""

    async def load(self, conversation_id: str) -> LoadedConversation:  # noqa: D102
        loaded = await self.inner.load(conversation_id)
        (opened,) = await self.inner.entries(conversation_id, up_to=1)
        return LoadedConversation(loaded.log, loaded.state, Context().after(opened.event))


class LosesGivenHistories(Wrapper):
    """The messages of a given history are not stored."""

    async def create(self, conversation_id: str, event: Any, step: Any) -> Any:  # noqa: D102
        return await self.inner.create(conversation_id, event.replace(messages=()), step)


class TakesOrphans(Wrapper):
    """A sub-agent does not need its parent."""

    async def create(self, conversation_id: str, event: Any, step: Any) -> Any:  # noqa: D102
        try:
            return await self.inner.create(conversation_id, event, step)
        except UnknownConversation:
            row, head = encode(event, step, GENESIS)
            await self.inner.write_records([ConversationRecord(conversation_id, row.at, head, (row,), event.owner)])
            return (await self.inner.load(conversation_id)).log


class MatchesIdsAnywhere(Wrapper):
    """An id is found by any part of it."""

    async def ids(self, prefix: str = "") -> Any:  # noqa: D102
        return tuple(each for each in await self.inner.ids() if prefix in each)


class MatchesIdsInAnyCase(Wrapper):
    """Case does not count."""

    async def ids(self, prefix: str = "") -> Any:  # noqa: D102
        return tuple(each for each in await self.inner.ids() if each.lower().startswith(prefix.lower()))


class RepeatsThePage(Wrapper):
    """A page begins with the last conversation of the page before."""

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> Any:  # noqa: D102
        everything = await self.inner.list(replace(wanted, before=None, limit=None))
        start = [one.id for one in everything].index(wanted.before) if wanted.before else 0
        return everything[start:][: wanted.limit]


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
    (with_log(TakesADeletedLogForAnEmptyOne), "test_the_log_of_a_deleted_conversation_knows_that_it_is_gone"),
    (with_log(TakesADeletedLogForAnEmptyOne), "test_the_log_of_a_deleted_conversation_takes_nothing"),
    (with_log(FindsTheNewestStep), "test_a_request_is_found_by_its_id"),
    (with_log(CatchesUpWithNothing), "test_a_log_catches_up_with_all_that_it_missed"),
    (with_log(CatchesUpWithNothing), "test_of_two_writers_one_succeeds"),
    (with_log(FailsLate), "test_a_step_that_fails_leaves_everything_as_before"),
    (ListsTheOldestFirst, "test_the_list_has_the_newest_first"),
    (CountsFromNought, "test_the_list_has_the_newest_first"),
    (IgnoresFilters, "test_the_list_can_be_filtered"),
    (IgnoresMetadata, "test_owner_metadata_and_state_select_together"),
    (IgnoresMetadata, "test_a_deleted_conversation_is_not_found_by_its_metadata"),
    (ComparesMetadataInPython, "test_metadata_is_compared_exactly_as_json"),
    (ComparesMetadataAsText, "test_equal_json_is_found_however_it_is_written"),
    (ShowsTheNewestMessage, "test_the_title_is_the_first_message_of_a_user"),
    (ShowsTheNewestMessage, "test_a_log_that_was_loaded_before_the_first_message_gives_the_title"),
    (ShowsTheWholeMessage, "test_the_title_is_the_first_message_of_a_user"),
    (ShowsNoGivenTitle, "test_a_given_title_comes_before_the_first_message"),
    (ShowsNoGivenTitle, "test_a_copy_has_what_its_steps_say"),
    (ShowsNoTitleOfAHistory, "test_a_given_history_gives_the_title"),
    (ForgetsTheOwner, "test_the_list_shows_owner_and_metadata"),
    (ForgetsTheOwner, "test_details_follow_from_the_log"),
    (ForgetsTheRole, "test_the_list_shows_the_role_of_each_conversation"),
    (IgnoresRoles, "test_the_list_is_selected_by_role_and_by_whom_an_agent_belongs_to"),
    (IgnoresRoles, "test_a_deleted_agent_is_not_found"),
    (TakesParentsForEmployers, "test_the_list_is_selected_by_role_and_by_whom_an_agent_belongs_to"),
    (TakesParentsForEmployers, "test_a_copy_belongs_to_whom_its_steps_say"),
    (ListsForgottenSchedules, "test_a_schedule_follows_from_the_newest_step"),
    (ListsTheLatestWakeUpFirst, "test_scheduled_wake_ups_come_earliest_first"),
    (RoundsWakeUps, "test_scheduled_wake_ups_come_earliest_first"),
    (ListsAllWakeUps, "test_scheduled_wake_ups_come_earliest_first"),
    (HidesWakeUps, "test_scheduled_wake_ups_come_earliest_first"),
    (with_log(DropsWhatIsInConflict), "test_a_step_in_conflict_changes_no_schedule"),
    (KeepsTheFirstMetadata, "test_the_list_shows_owner_and_metadata"),
    (KeepsTheFirstMetadata, "test_details_follow_from_the_log"),
    (LoadsTheFirstContext, "test_the_context_is_that_of_all_changes"),
    (LosesGivenHistories, "test_a_given_history_is_stored"),
    (TakesOrphans, "test_a_sub_agent_needs_its_parent"),
    (MatchesIdsAnywhere, "test_ids_are_found_by_their_beginning"),
    (MatchesIdsInAnyCase, "test_ids_are_found_by_their_beginning"),
    (RepeatsThePage, "test_the_list_has_pages"),
    (ReversesTheOutbox, "test_the_outbox_is_in_order_for_each_target"),
    (ReturnsTheWholeOutbox, "test_the_outbox_is_that_of_the_conversations_asked_for"),
    (ClaimsEverything, "test_what_waits_is_claimed"),
    (ClaimsEverything, "test_each_conversation_is_claimed_once"),
    (WritesSomeRecords, "test_records_are_written_all_or_none"),
    (CopiesWhatIsGone, "test_a_copy_needs_its_original"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("store_type", "test"), FAULTS, ids=[f"{one.__name__}-{test}" for one, test in FAULTS])
def test_a_fault_is_noticed(store_type: Callable[[Any], Any], test: str, tmp_path: Path) -> None:
    """By the test that says what was broken; without the fault this test passes."""
    getattr(contract_of(with_log(Fails)), test)(tmp_path)

    with pytest.raises((AssertionError, StoreError, pytest.fail.Exception)):
        getattr(contract_of(store_type), test)(tmp_path)


@pytest.mark.slow
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


# --- The contract of stores notices one that finds the wrong texts.


class IgnoresOwners(MemoryStore):  # type: ignore[misc, valid-type]
    """A search reads everybody's texts."""

    async def search(self, query: Any) -> Any:  # noqa: D102
        found = [await super(IgnoresOwners, self).search(replace(query, scope=scope)) for scope in scopes(query.scope)]
        return tuple(text for texts in found for text in texts)[: max(query.limit, 0)]


def scopes(scope: Any) -> list[Any]:
    """The scope, and that of another owner of the tests."""
    return [scope, replace(scope, owner="bert")]


class TakesAgentsForPeople(MemoryStore):  # type: ignore[misc, valid-type]
    """What one agent tells another is found."""

    async def write_records(self, records: Any) -> None:  # noqa: D102
        add = self.texts.add
        as_opened = {"role": "foreground", "parent": None, "works_for": None}

        def add_as_said(conversation_id: str, owner: Any, entry: Any) -> None:
            event = entry.event.replace(**as_opened) if isinstance(entry.event, Opened) else entry.event
            add(conversation_id, owner, replace(entry, event=event))

        self.texts.add = add_as_said
        await super().write_records(records)


class FindsTheCurrentTurn(MemoryStore):  # type: ignore[misc, valid-type]
    """The turn under way is not left out."""

    async def search(self, query: Any) -> Any:  # noqa: D102
        return await super().search(replace(query, scope=replace(query.scope, turn=query.scope.turn + 1)))


class LeavesOutTheBeginning(MemoryStore):  # type: ignore[misc, valid-type]
    """A text that is exactly as old as the window is left out."""

    async def recent(self, scope: Any, since: Any) -> Any:  # noqa: D102
        return await super().recent(scope, since + timedelta(microseconds=1))


class ReturnsTheNewestFirst(MemoryStore):  # type: ignore[misc, valid-type]
    """The last minutes are in reverse order."""

    async def recent(self, scope: Any, since: Any) -> Any:  # noqa: D102
        return (await super().recent(scope, since))[::-1]


class IgnoresTheWindow(MemoryStore):  # type: ignore[misc, valid-type]
    """A search is not bounded by time."""

    async def search(self, query: Any) -> Any:  # noqa: D102
        return await super().search(replace(query, since=None, until=None))


class WantsAllKeywords(MemoryStore):  # type: ignore[misc, valid-type]
    """Keywords are taken for one of several words."""

    async def search(self, query: Any) -> Any:  # noqa: D102
        return await super().search(replace(query, keywords=(" ".join(query.keywords),)))


class BreaksAtQuotes(MemoryStore):  # type: ignore[misc, valid-type]
    """A keyword is put into a query language as it is."""

    async def search(self, query: Any) -> Any:  # noqa: D102
        if any('"' in keyword for keyword in query.keywords):
            raise ValueError("malformed query")
        return await super().search(query)


class KeepsTextsOfDeletedConversations(MemoryStore):  # type: ignore[misc, valid-type]
    """What was said is found as long as the process lives."""

    async def delete(self, conversation_id: str) -> None:  # noqa: D102
        remove, self.texts.remove = self.texts.remove, lambda _: None
        await super().delete(conversation_id)
        self.texts.remove = remove


class ComparesLengths(MemoryStore):  # type: ignore[misc, valid-type]
    """The longest vector counts as the nearest."""

    async def nearest(self, *arguments: Any, **options: Any) -> Any:  # noqa: D102
        return (await super().nearest(*arguments, **options))[::-1]


TEXT_FAULTS = {
    IgnoresOwners: "test_owners_do_not_see_each_other",
    TakesAgentsForPeople: "test_only_conversations_with_a_user_are_found",
    FindsTheCurrentTurn: "test_the_current_turn_is_left_out",
    LeavesOutTheBeginning: "test_the_last_minutes_include_their_beginning",
    ReturnsTheNewestFirst: "test_the_last_minutes_are_in_order",
    IgnoresTheWindow: "test_a_window_includes_its_bounds",
    WantsAllKeywords: "test_a_keyword_of_several_words_needs_all_of_them",
    BreaksAtQuotes: "test_no_keyword_breaks_a_search",
    KeepsTextsOfDeletedConversations: "test_a_deleted_conversation_is_not_found",
    ComparesLengths: "test_the_nearest_come_first",
}


@pytest.mark.slow
@pytest.mark.parametrize("store_type", TEXT_FAULTS)
def test_a_fault_in_finding_texts_is_noticed(store_type: Any, tmp_path: Path) -> None:
    """By the test of what the store does wrong."""

    class Contract(StoreContract):
        lasting = False

        @asynccontextmanager
        async def opened(self, place: Path) -> AsyncIterator[Store]:
            yield store_type()

    with pytest.raises((AssertionError, ValueError)):
        getattr(Contract(), TEXT_FAULTS[store_type])(tmp_path)
