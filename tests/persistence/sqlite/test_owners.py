"""Two owners never see each other's messages, whatever happened to their conversations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwise.persistence import SqliteStore, examine, fork
from turnwise.states.values.acts import MemoryQuery, MemoryScope

from ...support.walks import NOON, Walk

OWNERS = ("anna", "Anna", "", "anna\0", None)
OWNER = st.sampled_from(OWNERS)
NAME = st.sampled_from("abcd")

MOVES = st.one_of(
    st.tuples(st.just("create"), NAME, OWNER),
    st.tuples(st.just("say"), NAME),
    st.tuples(st.just("delete"), NAME),
    st.tuples(st.just("fork"), NAME, NAME),
    st.tuples(st.just("take_in"), NAME, NAME),
    st.tuples(st.just("search"), NAME, OWNER),
)


class History:
    """A store, and what each conversation in it holds. Every message is a word of its own."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.owners: dict[str, str | None] = {}
        self.said: dict[str, list[str]] = {}
        self._walks: dict[str, Walk] = {}
        self._count = 0

    async def move(self, kind: str, name: str, *more: Any) -> None:
        """Do one thing to a conversation, if it can be done."""
        await getattr(self, kind)(name, *more)

    async def create(self, name: str, owner: str | None) -> None:
        """Begin a conversation."""
        if name not in self.owners:
            self._walks[name] = Walk(name, owner=owner)
            await self._walks[name].into(self.store)
            self.owners[name], self.said[name] = owner, []

    async def say(self, name: str) -> None:
        """Have a turn."""
        if name in self._walks:
            self._count += 1
            word, walk = f"word{self._count}", self._walks[name]
            log, before = (await self.store.load(name)).log, len(walk.steps)
            for event, step in walk.turn(f"{word} sushi").steps[before:]:
                await log.append(event, step)
            self.said[name].append(word)

    async def delete(self, name: str) -> None:
        """Delete a conversation."""
        if name in self.owners:
            await self.store.delete(name)
            for known in (self.owners, self.said, self._walks):
                known.pop(name, None)

    async def fork(self, name: str, copy: str) -> None:
        """Copy a conversation, for the same owner."""
        if name in self.owners and copy not in self.owners:
            await fork(self.store, name, copy, None, NOON)
            self.owners[copy], self.said[copy] = self.owners[name], [*self.said[name]]

    async def take_in(self, name: str, copy: str) -> None:
        """Import a conversation under another id, and for another owner."""
        if name in self.owners and copy not in self.owners:
            owner = "bert" if self.owners[name] is None else None
            record = await self.store.read_record(name)
            await self.store.write_records([record._replace(id=copy, owner=owner, outbox=())])
            self.owners[copy], self.said[copy] = owner, [*self.said[name]]

    async def search(self, name: str, owner: str | None) -> None:
        """Search as an engine does in a conversation, and compare with what may be found."""
        scope = MemoryScope(name, owner, 10**6)
        allowed = {
            word
            for each, words in self.said.items()
            if (each == name if owner is None else self.owners[each] == owner)
            for word in words
        }
        query = MemoryQuery(scope, ("sushi",), None, None, 1000)
        without = [text for _, text in await self.store.without_vectors(scope, "space", 1000)]
        for texts in (await self.store.search(query), await self.store.recent(scope, NOON), without):
            found = {text if isinstance(text, str) else text.text for text in texts}
            assert {text.split()[0] for text in found if text.startswith("word")} == allowed


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=15)
@given(st.lists(MOVES, max_size=25))
def test_owners_never_see_each_other(moves: list[tuple[Any, ...]]) -> None:
    """Every search finds all messages of its scope and no other message."""

    async def play() -> None:
        store = await SqliteStore.open(":memory:")
        history = History(store)
        for kind, *arguments in moves:
            await history.move(kind, *arguments)
        for name in "ab":
            for owner in (*OWNERS, "bert"):
                await history.search(name, owner)
        indexed = [one for one in (await examine(store)).findings if "what was said" in one.sentence]
        assert indexed == []
        await store.close()

    asyncio.run(play())
