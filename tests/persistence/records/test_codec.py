"""Rows of steps: what stands in columns of its own."""

from datetime import UTC, datetime

import pytest
from pydantic import JsonValue
from pydantic_core import from_json

from turnwise.persistence import GENESIS, decode, encode
from turnwise.states import Book, Idle, Opened, Step, SubAgentAsked, SubAgentFinished, begin
from turnwise.states.events import Event

AT = datetime(2026, 6, 1, tzinfo=UTC)


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
