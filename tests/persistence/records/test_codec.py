"""Rows of steps: what stands in columns of its own."""

from datetime import UTC, datetime

import pytest

from turnwise.persistence import GENESIS, decode, encode
from turnwise.states import Book, Idle, Step, SubAgentAsked, SubAgentFinished
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
