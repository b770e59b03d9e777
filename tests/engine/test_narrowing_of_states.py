"""Type checkers know what a state and a tool call hold, once a program has asked for the class or the type."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.type_checking import BY_EACH_CHECKER, lines_with_errors, marked_lines

pytestmark = pytest.mark.slow

STATES = """
from datetime import UTC, datetime
from typing import Any, assert_never, assert_type

from turnwise import BlockingConversation, Conversation
from turnwise.states import (
    AnyState, AwaitingApproval, AwaitingSubAgents, AwaitingUserResponse, Cancelling, Closed, Compacting, Context,
    Failed, Idle, InDoubt, LlmRequesting, LlmResponse, MemoryRecalling, ModelSpec, Profile, ProfileSelecting,
    RetryWaiting, Summarizing, ToolCall, ToolExecuting, UserMessage, Verifying, transition,
)


def by_type(conversation: Conversation) -> str:
    state = conversation.state
    if state.type == "awaiting_user_response":
        assert_type(state, AwaitingUserResponse)
        return state.questions[0].question
    if state.type == "failed":
        return state.sentence
    return state.sentence  # error


def without_an_event_loop(conversation: BlockingConversation) -> str:
    state = conversation.state
    return state.sentence if isinstance(state, Failed) else conversation.state.type


def by_class(conversation: Conversation) -> str:
    state = conversation.state
    if isinstance(state, LlmRequesting | RetryWaiting):
        return str(state.attempt)
    return state.call.name if isinstance(state, AwaitingApproval | InDoubt) else state.type


def every_class(state: AnyState) -> int:
    match state:
        case Idle() | Closed() | Compacting() | Failed():
            return state.book.turn
        case ProfileSelecting() | MemoryRecalling() | LlmRequesting() | RetryWaiting() | Verifying() | Summarizing():
            return state.turn.number
        case ToolExecuting() | Cancelling() | InDoubt():
            return len(state.round.running)
        case AwaitingUserResponse() | AwaitingApproval() | AwaitingSubAgents():
            return len(state.call.name)
        case _:
            assert_never(state)


def pure() -> str:
    step = transition(Idle(), UserMessage(event_id="1", at=datetime.now(UTC), text="Hello"), Context())
    return step.state.sentence if step.state.type == "failed" else ""


def values(call: ToolCall) -> None:
    assert_type(call.arguments, dict[str, Any])
    assert_type(call.raw_arguments, str)
    ToolCall(call_id="1", name="look", raw_arguments="{}")
    ToolCall(call_id="1", name="look", raw_arguments={})  # error
    Profile(name="quick", tools=["look"], model="small")
    assert_type(Profile(name="quick", model=ModelSpec(name="small")).model, ModelSpec | None)
    Profile(name="quick", model=1)  # error


async def events(conversation: Conversation) -> str:
    for entry in await conversation.events():
        if entry.event.type == "user_message":
            return entry.event.text
        if isinstance(entry.event, LlmResponse):
            return entry.event.content
        entry.event.text  # error
    return ""
"""


@BY_EACH_CHECKER
def test_they_narrow(checker: str, tmp_path: Path) -> None:
    """The checker finds the marked errors, and no other."""
    assert lines_with_errors(checker, STATES, tmp_path) == marked_lines(STATES)
