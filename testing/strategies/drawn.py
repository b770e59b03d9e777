"""Hypothesis as a source of chance: it makes the choices of a generator, and makes them smaller when a test fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..generation.chance import Chance
from ..generation.values import TRICKY_TEXTS

T = TypeVar("T")
P = ParamSpec("P")

PARTS = 100
"""Into how many parts a probability is divided."""


@cache
def texts() -> SearchStrategy[str]:
    """Any text that can be written as UTF-8."""
    return st.sampled_from(TRICKY_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@cache
def _numbers(count: int) -> SearchStrategy[int]:
    return st.integers(0, count - 1)


class Drawn(Chance):
    """Choices that Hypothesis draws."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, which shrinks towards 0."""
        return self.draw(_numbers(count)) if count > 1 else 0

    def probably(self, probability: float) -> bool:
        """True with this probability; it shrinks towards False."""
        return self.below(PARTS) >= PARTS * (1.0 - probability)

    def text(self) -> str:
        """Any text that can be written as UTF-8."""
        return self.draw(texts())


def strategy_of(generate: Callable[Concatenate[Chance, P], T]) -> Callable[P, SearchStrategy[T]]:
    """A function that returns a Hypothesis strategy, made of a generator that makes its choices by `Chance`."""

    @st.composite
    def drawn(draw: st.DrawFn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return generate(Drawn(draw), *args, **kwargs)

    @wraps(generate)
    def strategy(*args: P.args, **kwargs: P.kwargs) -> SearchStrategy[T]:
        return drawn(*args, **kwargs)

    return strategy
