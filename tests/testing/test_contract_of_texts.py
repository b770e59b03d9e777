"""The contract of stores notices one that finds the wrong texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from turnwise.persistence import Store
from turnwise.states import Opened
from turnwise.testing.store_contract import StoreContract

from ..support.scenarios.examples import example

pytestmark = pytest.mark.slow

MemoryStore = example("memory_store").MemoryStore


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


FAULTS = {
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


@pytest.mark.parametrize("store_type", FAULTS)
def test_a_fault_is_noticed(store_type: Any, tmp_path: Path) -> None:
    """By the test of what the store does wrong."""

    class Contract(StoreContract):
        lasting = False

        @asynccontextmanager
        async def opened(self, place: Path) -> AsyncIterator[Store]:
            yield store_type()

    with pytest.raises((AssertionError, ValueError)):
        getattr(Contract(), FAULTS[store_type])(tmp_path)
