"""A step that another loop has stored is made again here, and must be the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.engine.updates import repeated_step
from turnwise.persistence.errors import Damaged
from turnwise.states import Context, LlmResponse, State, StoreError
from turnwise.states.step import LogEntry

from ...support.walks import Walk


def newest_step(walk: Walk) -> tuple[LogEntry, State, Context]:
    """The newest step of a conversation as its log holds it, and what was before it."""
    (_, before), (event, step) = walk.steps[-2:]
    return LogEntry.of(event, step), before.state, walk.context


def test_it_is_the_step_that_was_stored() -> None:
    """With the state, the effects and the end of the turn."""
    walk = Walk().say().answer(LlmResponse, content="Sakura has one.")

    assert repeated_step(*newest_step(walk)) == walk.steps[-1][1]


@pytest.mark.parametrize("distance", [-1, 1])
def test_an_entry_that_does_not_follow_is_damage(distance: int) -> None:
    """A step is missing, or stands twice."""
    entry, state, context = newest_step(Walk().say())

    with pytest.raises(Damaged, match=f"Step {entry.seq + distance} does not follow step {entry.seq - 1}"):
        repeated_step(replace(entry, seq=entry.seq + distance), state, context)


def test_a_step_that_the_machine_does_not_make_is_refused() -> None:
    """Another version stored other effects, took an event that is refused now, or one that is ignored now."""
    entry, state, context = newest_step(Walk().say())
    late, _, _ = newest_step(Walk().say().answer(LlmResponse, content="Sakura has one."))
    again, _, _ = newest_step(Walk().say())
    closed = Walk().say().state

    for stored, rests in (
        (replace(entry, effects=()), state),
        (replace(late, seq=entry.seq), state),
        (replace(again, seq=closed.book.seq + 1, effects=()), closed),
    ):
        with pytest.raises(StoreError, match=f"Step {stored.seq} was made by another version"):
            repeated_step(stored, rests, context)
