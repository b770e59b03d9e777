"""Asking an application's embedding function."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from turnwise.effects.recall.ports import PartFailed
from turnwise.effects.recall.search import MAX_BYTES_OF_TEXT, MAX_DIMENSIONS, Embedding

from ...support.cases import holds_for


async def two(texts: Sequence[str]) -> list[list[float]]:
    """Return a vector for each text."""
    return [[float(len(text)), 1.0] for text in texts]


def returning(value: Any) -> Any:
    """Return an embedding function that returns this."""

    async def embed(texts: Sequence[str]) -> Any:
        return value

    return embed


class TestVectors:
    """J4: what is no vector is not used."""

    async def test_each_text_gets_its_vector(self) -> None:
        """In the order of the texts."""
        assert await Embedding(two, 1).vectors(["a", "bcd"]) == ((1.0, 1.0), (3.0, 1.0))

    @holds_for(
        "value",
        [
            None,
            5,
            "ab",
            b"ab",
            [],
            [[1.0]],
            [[1.0], [1.0], [1.0]],
            [[1.0], [1.0, 2.0]],
            [[1.0], [math.nan]],
            [[1.0], [math.inf]],
            [[1.0], [0.0]],
            [[1.0], []],
            itertools.repeat([1.0]),
            [[1.0], "1"],
            [[1.0], ["x"]],
            [[1.0], None],
            [[1.0], [None]],
            [[1.0], [10**400]],
            [[1.0], [1.0] * (MAX_DIMENSIONS + 1)],
        ],
    )
    async def test_an_answer_that_cannot_be_right_is_refused_as_a_whole(self, value: Any) -> None:
        """J4: too few, too many, of different dimensions, without a direction, or no numbers."""
        with pytest.raises(PartFailed):
            await Embedding(returning(value), 1).vectors(["a", "b"])

    async def test_arrays_of_other_libraries_are_vectors(self) -> None:
        """Embeddings often come as arrays of numpy."""
        numpy = pytest.importorskip("numpy")

        assert await Embedding(returning(numpy.ones((1, 2), "float32")), 1).vectors(["a"]) == ((1.0, 1.0),)

    async def test_a_plain_function_runs_in_a_thread_of_its_own(self) -> None:
        """So a local model does not block the event loop."""
        threads = []

        def embed(texts: Sequence[str]) -> list[list[float]]:
            threads.append(threading.current_thread())
            return [[1.0]]

        assert await Embedding(embed, 1).vectors(["a"]) == ((1.0,),)  # type: ignore[arg-type]
        assert threads != [threading.main_thread()]

    @pytest.mark.parametrize("error", [ValueError("secret"), asyncio.CancelledError(), SystemExit(), TimeoutError()])
    async def test_a_function_that_raises_is_a_failure_without_its_words(self, error: BaseException) -> None:
        """J4: whatever it raises."""

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            raise error

        with pytest.raises(PartFailed, match=f"^{type(error).__name__}$"):
            await Embedding(embed, 1).vectors(["a"])

    async def test_a_function_that_hangs_is_a_failure(self) -> None:
        """J4, J19: after the seconds of the setting."""

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            await asyncio.Event().wait()
            return []

        with pytest.raises(PartFailed, match="no answer within"):
            await Embedding(embed, 0.01).vectors(["a"])

    async def test_long_texts_are_shortened(self) -> None:
        """Since no model takes in any length."""
        ((length, _),) = await Embedding(two, 1).vectors(["x" * 1_000_000])

        assert length <= MAX_BYTES_OF_TEXT


class TestName:
    """Vectors are kept under the name of what made them."""

    def test_a_function_may_have_a_name(self) -> None:
        """Such as the name of its model."""
        embed = functools.partial(two)
        embed.name = "text-embedding-3-small"  # type: ignore[attr-defined]

        assert Embedding(embed, 1).name == "text-embedding-3-small"

    @pytest.mark.parametrize("name", [None, "", " ", 5])
    def test_otherwise_it_has_that_of_its_definition(self, name: Any) -> None:
        """So two functions without a name are not mixed up."""
        embed = functools.partial(two)
        embed.name = name  # type: ignore[attr-defined]

        assert Embedding(embed, 1).name.endswith(".two")
