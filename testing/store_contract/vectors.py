"""Vectors of texts: kept as long as the text, and compared within a scope."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from ...states.errors import InvalidInput
from ...states.values.acts import MemoryScope
from .dialogues import ANNA, dialogue, on_a_searchable_store, texts_of
from .opening import OpenedStore

if TYPE_CHECKING:
    from .dialogues import SearchedStore


class VectorContract(OpenedStore):
    """`without_vectors`, `keep_vectors`, `nearest`. A store that is no `SearchableStore` skips these tests."""

    @on_a_searchable_store
    async def test_texts_without_vectors_are_named(self, store: SearchedStore) -> None:
        """The newest first, each until it has a vector in this space."""
        await dialogue(store, "a", "one", "two")

        without = await store.without_vectors(ANNA, "space", 3)
        assert [text for _, text in without] == ["2.", "two", "1."]
        await store.keep_vectors("space", {number: [1.0, 0.0] for number, _ in without})

        assert [text for _, text in await store.without_vectors(ANNA, "space", 9)] == ["one"]
        assert len(await store.without_vectors(ANNA, "another space", 9)) == 4
        assert await store.without_vectors(ANNA, "space", 0) == ()

    @on_a_searchable_store
    async def test_the_nearest_come_first(self, store: SearchedStore) -> None:
        """By the angle, whatever the lengths; within the window, and of this space and this number of dimensions."""
        story = await dialogue(store, "a", "north", "north east", "east", "south")
        directions: dict[str, list[float]] = {
            "north": [0, 9],
            "north east": [0.5, 0.5],
            "east": [1e30, 0],
            "south": [0, -1],
            "1.": [1, 1, 1],
        }
        without = await store.without_vectors(ANNA, "space", 99)
        await store.keep_vectors("space", {number: directions[text] for number, text in without if text in directions})
        await store.keep_vectors("another", {number: [0.0, 1.0] for number, _ in without})

        async def nearest(vector: list[float], limit: int = 9, **window: datetime) -> list[str]:
            bounds = {"since": None, "until": None, **window}
            return texts_of(await store.nearest(ANNA, "space", vector, limit=limit, **bounds))

        assert await nearest([0.1, 1]) == ["north", "north east", "east", "south"]
        assert await nearest([7, 0.1], limit=2) == ["east", "north east"]
        assert await nearest([0, 1], since=story.steps[3][0].at, until=story.steps[5][0].at) == ["north east", "east"]
        assert await nearest([0, 1, 0]) == ["1."]
        assert await nearest([0, 1], limit=0) == []

    @on_a_searchable_store
    async def test_vectors_stay_in_their_scope(self, store: SearchedStore) -> None:
        """Those of other owners are not compared, those of a deleted conversation are gone, and a vector for a text
        that is gone is passed over."""
        await dialogue(store, "a", "sushi")
        await dialogue(store, "b", "ramen", owner="bert")
        bert = MemoryScope("b", "bert", 9)
        anna, without = await store.without_vectors(ANNA, "space", 9), await store.without_vectors(bert, "space", 9)
        await store.keep_vectors("space", {number: [1.0] for number, _ in (*anna, *without)})

        assert "ramen" not in texts_of(await store.nearest(ANNA, "space", [1.0], None, None, 9))
        assert await store.nearest(MemoryScope("a", "anna", 1), "space", [1.0], None, None, 9) == ()
        await store.delete("b")
        await dialogue(store, "c", "pizza", owner="bert")
        await store.keep_vectors("space", {number: [1.0] for number, _ in without})
        assert await store.nearest(bert, "space", [1.0], None, None, 9) == ()
        assert len(await store.without_vectors(bert, "space", 9)) == 2

    @on_a_searchable_store
    async def test_what_is_no_vector_is_refused(self, store: SearchedStore) -> None:
        """Nothing of what was given with it is stored."""
        await dialogue(store, "a", "sushi")
        (first, _), (second, _) = await store.without_vectors(ANNA, "space", 9)

        wrong: list[Any] = [[], [float("nan")], [float("inf"), 1.0], ["x"], [None], 7]
        for vector in wrong:
            with pytest.raises(InvalidInput):
                await store.keep_vectors("space", {first: [1.0], second: vector})
            with pytest.raises(InvalidInput):
                await store.nearest(ANNA, "space", vector, None, None, 9)

        assert len(await store.without_vectors(ANNA, "space", 9)) == 2
