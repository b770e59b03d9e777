"""Counts what a function does, so that a test can hold its cost to the size of its input without measuring time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def operations(function: Callable[[], object]) -> int:
    """Return how many functions run while this one runs, those of C and each step of a generator included."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def growth(made: Callable[[int], T], function: Callable[[T], object], size: int) -> float:
    """Return how many times more operations the function needs for an input of four times the size: 4 if its cost grows
    as its input does, 16 if it grows with the square. The small one is run once before, so that nothing is loaded while
    they are counted."""
    small, large = made(size), made(4 * size)
    function(small)
    return operations(lambda: function(large)) / operations(lambda: function(small))


LINEAR = 5.5
"""More than the growth of a linear function, whose sorting costs a little, and less than half of that of a square."""
