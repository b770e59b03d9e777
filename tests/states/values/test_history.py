"""Messages that a conversation is given to begin with."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from turnwise.states import HistoryMessage, Opened, begin
from turnwise.states.values.messages import effects_taken
from turnwise.testing.strategies import NOON

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG", "detail": "low"}}


def calling(call_id: str) -> dict[str, Any]:
    """A message of the assistant that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": '{"a":'}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "You book tables."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE], "name": "Ada"},
        calling("call_1"),
        {"role": "tool", "content": "Nothing.", "tool_call_id": "call_1"},
        {"role": "assistant", "content": None, "refusal": "I cannot."},
        {"role": "assistant", "content": "Hi", "tool_calls": None, "annotations": [], "x": {"deep": [1, 0.5, None]}},
    ],
)
def test_a_message_is_kept_as_it_was_given(message: dict[str, Any]) -> None:
    """All its members are kept, those that are None too, also after it was stored within its event."""
    opened = Opened(event_id="1", at=NOON, messages=[message])

    read = Opened.model_validate_json(opened.to_json())

    assert read == opened
    assert read.messages == (HistoryMessage(**message),)
    assert read.messages[0].given == message


@pytest.mark.parametrize("message", [{}, {"role": "robot"}, {"role": ["user"]}, "Hello", None])
def test_a_message_needs_a_role(message: object) -> None:
    """What has none of the roles of the format is refused."""
    with pytest.raises(ValidationError):
        HistoryMessage.model_validate(message)


def test_new_effects_are_numbered_beyond_the_given_calls() -> None:
    """A given call id may look like one of ours; no new call gets the same id."""
    given = [HistoryMessage(**calling(call_id)) for call_id in ("call_7_0", "call_x_9", "abc", "call_3_12")]

    step = begin(Opened(event_id="1", at=NOON, messages=given))

    assert effects_taken(given) == 7
    assert step.state.book.next_effect == 8
