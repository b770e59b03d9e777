"""How the tests of texts that are found again store dialogues, and search them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import pytest

from ...persistence.codec import GENESIS, encode
from ...persistence.ports import SearchableStore
from ...persistence.records import ConversationRecord, EventRow, HeadRow
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope
from .opening import OpenedStore, on_a_store
from .story import NOON, Story

if TYPE_CHECKING:
    from ...persistence.ports import Store

    class SearchedStore(Store, SearchableStore, Protocol):
        """What these tests need: a store that is searchable, too."""


LATER = NOON + timedelta(days=1)
ANNA = MemoryScope("elsewhere", "anna", 0)
"""All conversations of this owner."""

T = TypeVar("T", bound=OpenedStore)


def on_a_searchable_store(test: Callable[[T, SearchedStore], Awaitable[None]]) -> Callable[[T, Path], None]:
    """Turn a test of a store that can be searched into one that pytest runs; it is skipped for any other store."""

    async def run(self: T, store: Store) -> None:
        if not isinstance(store, SearchableStore):
            pytest.skip("this store cannot be searched")
        await test(self, cast("SearchedStore", store))

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return on_a_store(run)


async def found(
    store: SearchableStore,
    *keywords: str,
    scope: MemoryScope = ANNA,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
) -> list[str]:
    """Search, and return the texts."""
    return texts_of(await store.search(MemoryQuery(scope, keywords, since, until, limit)))


def texts_of(found: tuple[FoundText, ...]) -> list[str]:
    """Return the texts alone."""
    return [one.text for one in found]


async def dialogue(store: Store, name: str, *texts: str, at: datetime = NOON, **opened_with: Any) -> Story:
    """Store a conversation of turns with these messages, each of which is answered by a number; in one transaction,
    since they may be many."""
    story = Story(at=at, **{"owner": "anna", **opened_with})
    for number, text in enumerate(texts, start=1):
        story.say(text).answer(f"{number}.")
    encoded: list[tuple[EventRow, HeadRow]] = []
    for event, step in story.steps:
        encoded.append(encode(event, step, encoded[-1][0].chain if encoded else GENESIS))
    rows, head = tuple(row for row, _ in encoded), encoded[-1][1]
    await store.write_records([ConversationRecord(name, rows[0].at, head, rows, opened_with.get("owner", "anna"))])
    return story
