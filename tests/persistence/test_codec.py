"""Rows of steps: what stands in columns of its own. The messages of a given history stand at the end of the first row,
so that the rest is read without them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic_core import from_json

from turnwise.persistence import GENESIS, decode, encode
from turnwise.persistence.codec import content_of, without_given_messages
from turnwise.persistence.records import EventRow
from turnwise.states import Book, HistoryMessage, Idle, Opened, Step, SubAgentAsked, SubAgentFinished, begin
from turnwise.states.events import Event

from ..support.walks import NOON

AT = datetime(2026, 6, 1, tzinfo=UTC)

NESTED: dict[str, Any] = {"messages": [{"messages": ["deep"]}], "text": ',"messages":[{"a":"b\\"}]', '"messages"': "}"}


def row_of(**fields: Any) -> EventRow:
    """Return the row of a first step."""
    opened = Opened(event_id="opened", at=NOON, **fields)
    return encode(opened, begin(opened), GENESIS)[0]


def history(*texts: str) -> tuple[HistoryMessage, ...]:
    """Return a given history of a user and an assistant in turns."""
    roles = ("user", "assistant")
    return tuple(
        HistoryMessage.model_validate({"role": roles[number % 2], "content": text, "extra": NESTED})
        for number, text in enumerate(texts)
    )


@pytest.mark.parametrize(
    ("event", "column"),
    [
        (SubAgentFinished(effect_id=3, at=AT, outcome="Done."), 3),
        (SubAgentAsked(effect_id=3, at=AT, call_id="call_1_0"), None),
    ],
)
def test_only_an_answer_has_its_effect_in_the_column_of_answers(event: Event, column: int | None) -> None:
    """P20: each effect is answered once, while a sub-agent may ask several times before it ends."""
    row, _ = encode(event, Step(Idle(book=Book(seq=1))), GENESIS)

    assert row.effect_id == column
    assert decode(row).event == event


def test_values_that_are_nested_deeply_are_read_back() -> None:
    """Whatever can be written can be read: pydantic writes more levels than its parser reads."""
    nested: JsonValue = "deep"
    for _ in range(230):
        nested = [nested]
    opened = Opened(event_id="1", at=AT, metadata={"nested": nested})
    row, _ = encode(opened, begin(opened), GENESIS)

    with pytest.raises(ValueError, match="recursion"):
        from_json(row.payload)
    assert decode(row).event == opened


class TestTheFirstRow:
    """Decoded with and without its messages."""

    @given(
        texts=st.lists(st.text(), max_size=4),
        system=st.text(),
        metadata=st.dictionaries(st.sampled_from(["messages", "a", '"messages"']), st.text() | st.just(NESTED)),
        repairs=st.lists(st.text(), max_size=2),
    )
    def test_is_the_same_but_for_the_messages(
        self, texts: list[str], system: str, metadata: dict[str, Any], repairs: list[str]
    ) -> None:
        """Whatever else is called messages in it."""
        row = row_of(messages=history(*texts), system=system, metadata=metadata, repairs=tuple(repairs))
        event = decode(row).event
        assert isinstance(event, Opened)

        assert event.messages == history(*texts)
        assert decode(without_given_messages(row)).event == event.replace(messages=())

    def test_without_a_history_is_left_as_it_is(self) -> None:
        """The very same row."""
        for row in (row_of(), row_of(metadata=NESTED, system='"messages":[]')):
            assert without_given_messages(row) is row

    def test_has_them_at_the_end(self) -> None:
        """Behind everything else, and nothing of them is read."""
        row = row_of(messages=history("hello"), metadata=NESTED, repairs=("One was left out.",), title="Dinner")
        damaged = row._replace(payload=row.payload.replace("hello", "hello\x00 [[[ }"))

        assert list(json.loads(row.payload))[-1] == "messages"
        assert without_given_messages(damaged).payload == without_given_messages(row).payload

    @pytest.mark.parametrize(
        "payload",
        [
            "",
            "{",
            "[]",
            '{"system":"messages',
            '{"a": 1, "messages": []}',
            '{"a":[1,"messages":[]}',
            None,
        ],
    )
    def test_that_was_not_written_like_this_is_left_as_it_is(self, payload: Any) -> None:
        """Damaged, or written by another program with other spaces: it is read in full then."""
        row = row_of()._replace(payload=payload)

        assert without_given_messages(row) is row

    def test_keeps_its_digest(self) -> None:
        """That is the digest of the row as it is stored."""
        row = row_of(messages=history("hello"))

        assert decode(row).content == content_of(row) != content_of(without_given_messages(row))
