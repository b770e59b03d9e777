"""A conversation is loaded by few short reads, whatever it began with and however often it was changed."""

from __future__ import annotations

import pytest

from turnwise.persistence.codec import GENESIS, content, encode, link
from turnwise.persistence.errors import Damaged
from turnwise.persistence.records import ConversationRecord
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import DetailsChanged, HistoryMessage, ToolsChanged

from ...support.store_internals import query
from ...support.walks import Walk

HISTORY = (HistoryMessage.model_validate({"role": "user", "content": "hello"}),)


class TestAGivenHistory:
    """It is not decoded for the next step, which does not need it."""

    async def test_is_left_out_when_the_conversation_is_loaded(self, store: SqliteStore) -> None:
        """One that cannot be decoded, although its digest holds, is noticed by whoever reads it, and not before."""
        event, step = Walk(messages=HISTORY, owner="anna", metadata={"tenant": "a"}).steps[0]
        row, head = encode(event, step, GENESIS)
        row = row._replace(payload=row.payload.replace('"role":"user"', '"role":"nobody"'))
        row = row._replace(chain=link(GENESIS, content(row[:-1])))
        await store.write_records([ConversationRecord("walk", row.at, head._replace(chain=row.chain), (row,), "anna")])

        loaded = await store.load("walk")

        assert (loaded.state, loaded.context.metadata) == (step.state, {"tenant": "a"})
        with pytest.raises(Damaged, match="Step 1 cannot be read"):
            await store.entries("walk")

    async def test_that_was_damaged_is_noticed(self, store: SqliteStore) -> None:
        """The digest of the first step covers it."""
        await Walk(messages=HISTORY).into(store)
        await query(store, "UPDATE events SET payload = replace(payload, 'hello', 'hullo') WHERE seq = 1")

        with pytest.raises(Damaged, match="Step 1 is not what was stored"):
            await store.load("walk")


class TestChangesOfTheContext:
    """What still matters of them is read, and verified."""

    @pytest.mark.parametrize(
        ("sql", "sentence"),
        [
            ("UPDATE events SET payload = 'not JSON' WHERE seq = 3", "Step 3 cannot be read"),
            ('UPDATE events SET payload = \'{"title":"Lunch"}\' WHERE seq = 3', "Step 3 is not what was stored"),
            ("UPDATE events SET payload = 'not JSON' WHERE seq = 5", "Step 5 cannot be read"),
            ('UPDATE events SET payload = \'{"tools":["b"],"from_turn":1}\' WHERE seq = 5', "Step 5 is not what"),
        ],
    )
    async def test_that_were_damaged_are_noticed(self, sql: str, sentence: str, store: SqliteStore) -> None:
        """Nothing goes on from what is not what was stored."""
        walk = Walk().say().request(DetailsChanged, title="Dinner").request(DetailsChanged, metadata={"tenant": "a"})
        await walk.request(ToolsChanged, tools=("a",), from_turn=2).into(store)
        await query(store, sql)

        with pytest.raises(Damaged, match=sentence):
            await store.load("walk")

    async def test_that_later_ones_replaced_are_not_read(self, store: SqliteStore) -> None:
        """Damage further back in the log is found by reading the log."""
        walk = Walk().say()
        for number in range(3):
            walk.request(DetailsChanged, title=f"Dinner {number}", metadata={"number": number})
            walk.request(ToolsChanged, tools=(f"tool {number}",), from_turn=2)
        await walk.into(store)
        await query(store, "UPDATE events SET payload = '{}' WHERE seq IN (3, 4, 5, 6)")

        loaded = await store.load("walk")

        assert loaded.context == walk.context
        with pytest.raises(Damaged, match="Step 3 "):
            await store.entries("walk")
