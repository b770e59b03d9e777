"""Messages that a conversation is given to begin with."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import HistoryMessage, Opened, begin
from turnwise.states.values.history import effects_taken
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
    ],
)
def test_a_message_is_given_back_as_it_was_given(message: dict[str, Any]) -> None:
    """Reading and writing it again gives the same message, also after it was stored."""
    read = HistoryMessage.from_openai(message)

    assert read.to_openai() == message
    assert HistoryMessage.model_validate_json(read.to_json()) == read


def test_new_effects_are_numbered_beyond_the_given_calls() -> None:
    """A given call id may look like one of ours; no new call gets the same id."""
    given = [HistoryMessage.from_openai(calling(call_id)) for call_id in ("call_7_0", "call_x_9", "abc", "call_3_12")]

    step = begin(Opened(event_id="1", at=NOON, messages=given))

    assert effects_taken(given) == 7
    assert step.state.book.next_effect == 8
