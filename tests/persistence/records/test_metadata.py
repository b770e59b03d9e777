"""Metadata as stores find conversations by it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwise.persistence.summaries import Details, json_identity, metadata_entry

from ...support.cases import holds_for

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, by the definition: type by type, and numbers by their value."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    return type(one) is type(other) and bool(one == other)


class TestJsonValues:
    """Metadata is compared exactly as JSON."""

    @given(one=JSON, other=JSON)
    def test_two_values_have_one_identity_if_they_are_the_same(self, one: Any, other: Any) -> None:
        """Not otherwise."""
        assert (json_identity(one) == json_identity(other)) == is_same(one, other)

    @holds_for(
        ("one", "other", "same"),
        [
            (1, 1.0, True),
            (0, -0.0, True),
            (2**53 + 1, float(2**53), False),
            (1, True, False),
            (1, "1", False),
            (0, False, False),
            (0, None, False),
            ([], {}, False),
            ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}, True),
            ([1, 2], [2, 1], False),
            ("\u00e9", "e\u0301", False),
        ],
    )
    def test_numbers_are_compared_by_value_and_everything_else_by_type(self, one: Any, other: Any, same: bool) -> None:
        """Also within lists and objects, whose members have no order."""
        assert (json_identity(one) == json_identity(other)) is same
        assert Details(metadata={"a": one}).has({"a": other}) is same

    def test_an_entry_is_a_name_and_a_value(self) -> None:
        """The same value under another name is another entry."""
        entries = {metadata_entry(name, value) for name, value in (("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"))}

        assert len(entries) == 4
        assert {len(entry) for entry in entries} == {16}
