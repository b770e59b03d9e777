"""Owner, title and metadata of a conversation, as they follow from its events, and as stores find conversations by
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.persistence.codec import GENESIS, encode
from turnwise.persistence.records import DetailsRow
from turnwise.persistence.summaries import (
    HEADER_COLUMNS,
    TITLE,
    ConversationFilter,
    Details,
    Summary,
    details_of,
    details_of_rows,
    details_row,
    json_identity,
    message_title,
    metadata_entry,
    read_header,
)
from turnwise.states import DetailsChanged, LogEntry, Opened, PolicyChanged, UserMessage
from turnwise.testing import strategies
from turnwise.testing.history import Trace

from ..support.cases import holds_for
from ..support.pictures import PNG, stored
from ..support.walks import NOON, Walk

PICTURE = stored(PNG)

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


class TestDetails:
    """The fold of a log."""

    def test_other_events_change_nothing(self) -> None:
        """Only the first event, the first message and changes of the details do."""
        details = details_of(LogEntry.of(event, step) for event, step in Walk().turn("tonight").steps)
        policy = PolicyChanged(event_id="p", at=NOON, policy=Walk().context.policy)

        assert details.after(policy) is details
        assert details.after(UserMessage(event_id="m", at=NOON, text="again")) is details
        assert details == Details(first_message="tonight")

    def test_a_change_leaves_what_it_does_not_name(self) -> None:
        """An empty title takes the given one back, and empty metadata clears it."""
        opened = Opened(event_id="o", at=NOON, owner="anna", title="Dinner", metadata={"a": 1})
        details = Details().after(opened)

        titled = details.after(DetailsChanged(event_id="t", at=NOON, title=""))
        cleared = details.after(DetailsChanged(event_id="m", at=NOON, metadata={}))

        assert (titled.shown_title, titled.owner, titled.metadata) == ("", "anna", {"a": 1})
        assert (cleared.title, cleared.owner, cleared.metadata) == ("Dinner", "anna", {})

    @pytest.mark.slow
    @given(trace=strategies.traces(max_size=12))
    def test_the_rows_of_a_log_say_the_same(self, trace: Trace) -> None:
        """Only a few of them are decoded."""
        steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
        rows = [encode(event, step, GENESIS)[0] for event, step in steps]

        assert details_of_rows(rows) == details_of(LogEntry.of(event, step) for event, step in steps)

    def test_a_row_that_cannot_be_read_is_passed_over(self) -> None:
        """The rest gives what can be known."""
        rows = [encode(event, step, GENESIS)[0] for event, step in Walk().turn("tonight").say("tomorrow").steps]
        rows[1] = rows[1]._replace(payload="damaged")

        assert details_of_rows(rows).shown_title == "tomorrow"

    def test_a_row_is_read_as_it_was_written(self) -> None:
        """Metadata is JSON in it; what is missing is None."""
        details = Details(
            owner="anna", title="Dinner", first_message="hello", metadata={"寿司": [1, None], "a": "\u0000"}
        )
        row = details_row(details)

        assert read_header(row.header) == {"title": "Dinner", "metadata": details.metadata}
        assert row.first_message == "hello"
        assert row.entries == tuple(sorted(metadata_entry(*entry) for entry in details.metadata.items()))
        assert details_row(Details()) == DetailsRow((None,) * len(HEADER_COLUMNS), None, ())


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
        listed = Summary(id="1", state="idle", busy=False, updated_at=NOON, metadata={"a": one})
        assert ConversationFilter(metadata={"a": other}).selects(listed) is same

    def test_an_entry_is_a_name_and_a_value(self) -> None:
        """The same value under another name is another entry."""
        entries = {metadata_entry(name, value) for name, value in (("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"))}

        assert len(entries) == 4
        assert {len(entry) for entry in entries} == {16}


class TestTitles:
    """The title that a message gives."""

    @given(text=st.text())
    def test_is_one_short_line(self, text: str) -> None:
        """Whatever the message is."""
        title = message_title(text, 0)

        if not text.strip():
            assert title is None
        else:
            assert title is not None
            assert title == " ".join(title.split())
            assert 0 < len(title) <= TITLE
            line = " ".join(text.split())
            assert title == (line if len(line) <= TITLE else f"{line[: TITLE - 1].rstrip()}…") or title[-1] == "…"

    @pytest.mark.parametrize("make", ["x".__mul__, "x ".__mul__, " \n".__mul__], ids=["word", "words", "blanks"])
    def test_of_a_long_message_is_made_of_its_beginning(self, make: Callable[[int], str]) -> None:
        """A message of a million characters is read only as far as the title goes, or the blanks in front of it."""
        title = message_title(f"{make(500_000)} end", 0)

        assert title is not None
        assert len(title) <= TITLE

    @pytest.mark.parametrize(
        ("text", "files", "title"),
        [
            ("x" * 60, 0, "x" * 60),
            ("x" * 61, 0, "x" * 59 + "…"),
            ("a" * 58 + " " + "b" * 9, 0, "a" * 58 + " …"),
            ("", 1, "1 image"),
            (" ", 20, "20 images"),
            ("this", 2, "this"),
            ("", 0, None),
        ],
    )
    def test_is_cut_with_an_ellipsis_and_counts_files(self, text: str, files: int, title: str | None) -> None:
        """Files are counted only where there is no text."""
        assert message_title(text, (PICTURE,) * files) == title
