"""Type checkers know what turns, updates, states and calls hold, once a program has asked for the class."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.type_checking import BY_EACH_CHECKER, lines_with_errors, marked_lines

# --- Type checkers know what a turn and an update hold, once a program has asked for the class, the status or the type.


TURNS = """
from typing import assert_never, assert_type

from turnwise import (
    BaseTurn, CancelledTurn, CompletedTurn, FailedTurn, IncompleteTurn, QueuedTurn, RunningTurn, Turn, UserQuestion,
    WaitsForAnswer, WaitsForApproval, WaitsForResolution,
)


def by_status(turn: Turn) -> None:
    assert_type(turn.call_id, str | None)
    assert_type(turn.questions, tuple[UserQuestion, ...])
    if turn.status == "awaiting_user":
        assert_type(turn, WaitsForAnswer)
        assert_type(turn.call_id, str)
    elif turn.status == "failed":
        assert_type(turn.failure, str)
    else:
        turn.call.name  # error


def by_match_on_the_status(turn: Turn) -> str:
    match turn.status:
        case "awaiting_approval" | "in_doubt":
            return turn.call.name + turn.call_id
        case "awaiting_user":
            return turn.questions[0].question
        case _:
            return turn.failure  # error


def by_class(turn: Turn) -> str:
    if isinstance(turn, WaitsForApproval | WaitsForResolution):
        return turn.call_id + str(turn.call.arguments["amount"])
    return turn.reply


def every_class(turn: Turn) -> str:
    match turn:
        case WaitsForAnswer(questions=questions, call_id=call_id):
            return questions[0].question + call_id
        case WaitsForApproval(call=call) | WaitsForResolution(call=call):
            return call.name
        case FailedTurn(failure=sentence):
            return sentence
        case CompletedTurn(reply=reply) | IncompleteTurn(reply=reply) | CancelledTurn(reply=reply):
            return reply
        case RunningTurn() | QueuedTurn():
            return ""
        case _:
            assert_never(turn)


def any_object(value: object) -> str:
    return value.reply if isinstance(value, BaseTurn) else ""


WaitsForAnswer(number=1)  # error
"""

UPDATES = """
from typing import Literal, assert_never, assert_type

from turnwise import (
    Conversation, DeliveredUpdate, DeliveryFailedUpdate, DeliveryUpdate, HeardUpdate, MessageUpdate, OutputUpdate,
    RewoundUpdate, SnapshotUpdate, StateChangeUpdate, ThoughtUpdate, TokenUpdate, ToolProgressUpdate, ToolUpdate,
    TurnEndedUpdate, Update, update_schema,
)


async def watch(conversation: Conversation) -> None:
    async for update in conversation.updates(after="0.0"):
        assert_type(update, Update)


def by_type(update: Update) -> None:
    assert_type(update.id, str | None)
    assert_type(update.position, tuple[int, int] | None)
    if update.type == "token":
        assert_type(update, TokenUpdate)
        assert_type(update.kind, Literal["text", "thinking", "speech"])
        assert_type(update.id, None)
    elif update.type == "tool":
        assert_type(update.error, str | None)
        assert_type(update.id, str)
    elif update.type == "snapshot":
        assert_type(update.streaming.text if update.streaming else "", str)
    else:
        update.kind  # error


def by_class(update: Update) -> int:
    return update.position[0] if isinstance(update, SnapshotUpdate | StateChangeUpdate) else 0


def every_class(update: Update) -> object:
    match update:
        case SnapshotUpdate(state=state) | StateChangeUpdate(state=state):
            return state.questions if state.type == "awaiting_user_response" else state.request
        case MessageUpdate(text=text) | ThoughtUpdate(text=text) | DeliveryUpdate(text=text) | TokenUpdate(text=text):
            return text
        case ToolUpdate(arguments=arguments) | ToolProgressUpdate(call_id=arguments):
            return arguments
        case TurnEndedUpdate(status=status):
            return status
        case OutputUpdate(value=value):
            return value
        case RewoundUpdate() | HeardUpdate():
            return update.turn
        case DeliveredUpdate(key=key) | DeliveryFailedUpdate(key=key):
            return key
        case _:
            assert_never(update)


def any_object(value: object) -> object:
    return value.data if isinstance(value, Update) else update_schema()["oneOf"]
"""


OUTPUTS = """
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from turnwise import BlockingConversation, BlockingEngine, CompletedTurn, Conversation, Engine, Output, Turn


@dataclass
class Ticket:
    title: str


class Complaint(TypedDict):
    about: str


async def ask(conversation: Conversation) -> None:
    turn = await conversation.send("Hello", output=Ticket)
    assert_type(turn, Turn[Ticket])
    assert_type(turn.output, Ticket)
    turn.output.about  # error
    if isinstance(turn, CompletedTurn):
        assert_type(turn.output, Ticket)
    if turn.status == "completed":
        assert_type(turn.output, Ticket)
    assert_type((await conversation.send("Hello", output=Complaint)).output, Complaint)
    assert_type((await conversation.send("Hello", output=list[Ticket])).output, list[Ticket])
    assert_type((await conversation.send("Hello", output=(Ticket, Complaint))).output, Ticket | Complaint)
    assert_type((await conversation.send("Hello", output=(Ticket, int, str))).output, Ticket | int | str)
    either = Output[Ticket | Complaint](Ticket | Complaint, way="tool")
    assert_type((await conversation.send("Hello", output=either, wait=False)).output, Ticket | Complaint)
    assert_type((await conversation.send("Hello", output={"type": "object"})).output, Any)
    assert_type((await conversation.send("Hello")).output, Any)
    await conversation.send("Hello", output=7)  # error
    await conversation.send("Hello", output=Ticket, wiat=False)  # error


def without_an_event_loop(conversation: BlockingConversation) -> None:
    assert_type(conversation.send("Hello", output=Ticket).output, Ticket)
    assert_type(conversation.send("Hello", output=(Ticket, Complaint)).output, Ticket | Complaint)


async def of_one_form(engine: Engine) -> Conversation:
    conversation = await engine.create(output=Ticket, system="You sort mail.")
    assert_type(conversation, Conversation[Ticket])
    assert_type(await conversation.send("Hello"), Turn[Ticket])
    assert_type((await conversation.send("Hello", output=Complaint)).output, Complaint)
    assert_type((await conversation.answer({"Which?": "That"})).output, Ticket)
    assert_type((await conversation.regenerate()).output, Ticket)
    assert_type((await conversation.wait()).output, Ticket)
    assert_type([turn.output for turn in await conversation.turns()], list[Ticket])
    assert_type(await conversation.fork(), Conversation[Ticket])
    assert_type(await engine.create(output=(Ticket, Complaint)), Conversation[Ticket | Complaint])
    assert_type((await engine.create(output=(Ticket, int, str))), Conversation[Ticket | int | str])
    assert_type(await engine.create(output=Output[list[int] | str](list[int] | str)), Conversation[list[int] | str])
    assert_type(await engine.create(output={"type": "object"}), Conversation[Any])
    assert_type(await engine.create(), Conversation)
    assert_type(await engine.get("1"), Conversation[Any])
    await engine.create(output=7)  # error
    await engine.create(output=Ticket, sytem="You sort mail.")  # error
    return conversation


def of_one_form_without_an_event_loop(engine: BlockingEngine) -> BlockingConversation[Ticket]:
    conversation = engine.create(output=Ticket)
    assert_type(conversation, BlockingConversation[Ticket])
    assert_type(conversation.send("Hello").output, Ticket)
    assert_type(conversation.answer({"Which?": "That"}).output, Ticket)
    assert_type(conversation.retry().output, Ticket)
    assert_type([turn.output for turn in conversation.turns()], list[Ticket])
    assert_type(engine.create(output=(Ticket, Complaint)).send("Hello").output, Ticket | Complaint)
    assert_type(engine.create(), BlockingConversation)
    return conversation.fork()


def read(turn: Turn) -> Turn[Ticket]:
    assert_type(turn.output, Any)
    return turn
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [TURNS, UPDATES, OUTPUTS], ids=["turns", "updates", "outputs"])
@BY_EACH_CHECKER
def test_they_narrow(checker: str, program: str, tmp_path: Path) -> None:
    """The checker finds the marked errors, and no other."""
    assert lines_with_errors(checker, program, tmp_path) == marked_lines(program)


# --- Type checkers know what a state and a tool call hold, once a program has asked for the class or the type.


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


@pytest.mark.slow
@BY_EACH_CHECKER
def test_states_and_calls_narrow(checker: str, tmp_path: Path) -> None:
    """The checker finds the marked errors, and no other."""
    assert lines_with_errors(checker, STATES, tmp_path) == marked_lines(STATES)
