"""The rows of titles and metadata always say what the log says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.persistence.ports import Log
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter, details_of, details_row
from turnwise.states import CloseRequested, DetailsChanged, LlmResponse, ToolsChanged, UserMessage, pending

from ...support.walks import Walk

METADATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, True, 1, 1.5, "1", "寿司\u0000", [], {}]))
TITLES = st.sampled_from(["", " ", "Dinner", "Dinner\nfor two", "x" * 1000])

OPENINGS = st.fixed_dictionaries({"metadata": METADATA, "title": st.none() | TITLES, "owner": st.none() | st.text()})

EVENTS: st.SearchStrategy[tuple[Any, dict[str, Any]]] = st.one_of(
    st.tuples(
        st.just(UserMessage),
        st.fixed_dictionaries({"text": st.sampled_from(["hello", " a\nb ", "x" * 100]), "when_busy": st.just("queue")}),
    ),
    st.tuples(
        st.just(DetailsChanged),
        st.fixed_dictionaries({}, optional={"title": TITLES, "metadata": METADATA}),
    ),
    st.tuples(st.just(ToolsChanged), st.fixed_dictionaries({"tools": st.sampled_from([None, ("a",), ("b",)])})),
    st.tuples(st.just(LlmResponse), st.just({"content": "Hello."})),
)


class Writer:
    """Writes a conversation through logs that were loaded at different times."""

    def __init__(self, store: SqliteStore, walk: Walk) -> None:
        self.store = store
        self.walk = walk
        self.logs: list[Log] = []

    async def write(self, kind: Any, fields: dict[str, Any], through: int) -> None:
        """Store an event through one of the logs, or through one that is loaded now; an answer only if the model was
        asked."""
        if kind is LlmResponse and not pending(self.walk.state):
            return
        if through >= len(self.logs):
            self.logs.append((await self.store.load(self.walk.name)).log)
        log = self.logs[min(through, len(self.logs) - 1)]
        await log.catch_up()
        if kind is LlmResponse:
            self.walk.answer(kind, **fields)
        else:
            turn = {"from_turn": self.walk.state.book.turn + 1} if kind is ToolsChanged else {}
            self.walk.request(kind, **fields, **turn)
        await log.append(*self.walk.steps[-1])

    async def check(self) -> None:
        """Compare the rows and the list with the log, and the context with that of all events."""
        details = details_of(await self.store.entries(self.walk.name))
        (listed,) = await self.store.list()

        assert (await self.store.read_record(self.walk.name)).details == details_row(details)
        assert listed.header_fields == details.shown
        assert (await self.store.load(self.walk.name)).context == self.walk.context
        if details.metadata:
            assert await self.store.list(ConversationFilter(metadata=details.metadata, owner=details.owner)) == (
                listed,
            )


class TestTheRows:
    """After any events, through any logs."""

    @pytest.mark.slow
    @given(opening=OPENINGS, events=st.lists(st.tuples(EVENTS, st.integers(0, 3)), max_size=8))
    def test_follow_from_the_log(self, opening: dict[str, Any], events: list[Any]) -> None:
        """Step by step; and a conversation that is written from its record has the same."""

        async def write() -> None:
            store = await SqliteStore.open(":memory:")
            writer = Writer(store, Walk(**opening))
            writer.logs.append(await writer.walk.into(store))
            for (kind, fields), through in (*events, ((CloseRequested, {}), 9)):
                await writer.write(kind, fields, through)
                await writer.check()
            record = await store.read_record("walk")
            await store.delete("walk")
            await store.write_records([record])
            await writer.check()
            await store.close()

        asyncio.run(write())
