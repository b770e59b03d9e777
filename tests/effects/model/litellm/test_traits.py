"""What litellm is given shares nothing with the request that it could change."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.litellm.traits import copy_json

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=20)


def containers(value: Any) -> list[Any]:
    """The lists and dicts in the value, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [
        *([value] if isinstance(value, list | dict) else []),
        *(found for one in inner for found in containers(one)),
    ]


@given(JSON)
def test_a_copy_is_equal_and_has_containers_of_its_own(value: Any) -> None:
    """At every depth."""
    copied = copy_json(value)

    assert copied == value
    assert {id(one) for one in containers(copied)}.isdisjoint(id(one) for one in containers(value))


def test_tuples_become_lists() -> None:
    """The messages of a request are a tuple, and litellm takes a list."""
    assert copy_json(({"role": "user", "content": "Hi"},)) == [{"role": "user", "content": "Hi"}]
