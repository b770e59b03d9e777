"""How deeply JSON is nested."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states.values.value import is_nested_deeper


@pytest.mark.parametrize(
    ("value", "depth"),
    [(1, 0), ("[[", 0), ([], 1), ({}, 1), ({"a": 1, "b": [2]}, 2), ([[], [[{"a": None}]]], 4)],
)
def test_every_list_and_object_is_a_level(value: Any, depth: int) -> None:
    """A value is deeper than one level less than it has, and not deeper than it is."""
    assert not is_nested_deeper(value, depth)
    assert depth == 0 or is_nested_deeper(value, depth - 1)


def test_a_deep_value_does_not_exhaust_the_stack() -> None:
    """Values are looked through layer by layer."""
    value: Any = None
    for _ in range(100_000):
        value = [value]

    assert is_nested_deeper(value, 50_000)
