"""Steps and entries of a log are values, like everything that they hold."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from turnwise import StoredEntry
from turnwise.states import LogEntry, Opened, Step, UserMessage, begin

AT = datetime(2026, 1, 1, tzinfo=UTC)
STEP = begin(Opened(at=AT, event_id="opened"))
MESSAGE = UserMessage(at=AT, event_id="message", text="Hello.")
ENTRY = LogEntry(2, MESSAGE)
STORED = StoredEntry(seq=2, event=MESSAGE, digest=b"digest", chain=b"chain", content=b"content")


@pytest.mark.parametrize("value", [STEP, ENTRY, STORED], ids=["step", "entry", "stored"])
class TestAValue:
    """Whoever sees a step sees what was stored: an observer cannot change it for the next one."""

    def test_no_field_can_be_set(self, value: Any) -> None:
        """It raises FrozenInstanceError, and nothing happened."""
        before = deepcopy(value)
        for field in fields(value):
            with pytest.raises(FrozenInstanceError):
                setattr(value, field.name, None)

        assert value == before

    def test_equal_ones_count_once_in_a_set(self, value: Any) -> None:
        """They can be compared and counted, by tests of properties for instance."""
        assert len({value, replace(value)}) == 1

    def test_it_can_be_pickled(self, value: Any) -> None:
        """Another process gets an equal one."""
        assert pickle.loads(pickle.dumps(value)) == value


def test_only_the_state_must_be_given() -> None:
    """Everything else is absent unless it is given."""
    assert Step(STEP.state) == Step(STEP.state, effects=(), ended=None, withdrawn=(), ignored=False)
