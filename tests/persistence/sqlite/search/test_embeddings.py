"""Vectors are compared in the same way with numpy and without it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from turnwise.persistence import SqliteStore
from turnwise.persistence.sqlite.search import encoded
from turnwise.states import HistoryMessage
from turnwise.states.values.acts import FoundText, MemoryScope

from ....support.walks import Walk

ANNA = MemoryScope("", "anna", 0)
SIZE = 4


async def nearest(path: Path) -> list[tuple[FoundText, ...]]:
    """Some searches over many vectors, the same in each call."""
    chance = random.Random(7)

    def vector() -> list[float]:
        return [chance.gauss(0, 1) for _ in range(SIZE)]

    store = await SqliteStore.open(path)
    given = tuple(HistoryMessage(role="user", content=f"text {number}") for number in range(2_100))
    await Walk("one", owner="anna", messages=given).into(store)
    without = await store.without_vectors(ANNA, "space", 10_000)
    await store.keep_vectors("space", {number: vector() for number, _ in without})
    found = [await store.nearest(ANNA, "space", vector(), None, None, 20) for _ in range(3)]
    await store.close()
    return found


async def test_numpy_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the number of vectors that are compared at a time."""
    with_numpy = await nearest(tmp_path / "with.db")
    monkeypatch.setitem(sys.modules, "numpy", None)
    without_numpy = await nearest(tmp_path / "without.db")

    assert [len(found) for found in with_numpy] == [20, 20, 20]
    assert with_numpy == without_numpy


async def test_vectors_of_zeros_are_no_fault(tmp_path: Path) -> None:
    """They are as far from everything as a right angle is."""
    store = await SqliteStore.open(tmp_path / "dinner.db")
    await Walk("one", owner="anna", messages=(HistoryMessage(role="user", content="text"),)).into(store)
    ((number, _),) = await store.without_vectors(ANNA, "space", 9)
    await store.keep_vectors("space", {number: [0.0, 0.0]})

    assert [one.text for one in await store.nearest(ANNA, "space", [0.0, 0.0], None, None, 9)] == ["text"]
    await store.close()


def test_a_vector_takes_four_bytes_a_number() -> None:
    """The lowest byte first, whatever the machine."""
    assert encoded([3.0, 4.0]) == b"\x9a\x99\x19?\xcd\xccL?"
    assert len(encoded([1.0] * 1536)) == 4 * 1536
