"""What a client asks of a conversation over HTTP: to take a message, an answer, an approval or a cancel.

Each request returns once it is stored; the updates show what follows.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from ...engine.conversation import Conversation, new_id
from ...engine.requests import make
from ...states.events import DoubtResolved, Resolution, ToolApproval
from ...states.policy import ModelSettings, WhenBusy
from .dependencies import CONVERSATION, CurrentCaller, TheConversation
from .files import OF_FILES, SentFile, given_files
from .problems import problems
from .schemas import BODY_REFUSALS, Answer, Body, Repeatable, RequestId, StateJson, TurnJson, TurnNumber

_CallId = Annotated[str, Field(min_length=1, description="The call of a tool that the conversation waits for.")]


class NewMessage(Body):
    """A message of a user. It is taken once, however often it is sent under its `message_id`."""

    text: str
    files: Annotated[list[str | SentFile], Field(default_factory=list, description=OF_FILES)]
    message_id: RequestId | None = None
    when_busy: WhenBusy | None = None
    heard: Annotated[str, Field(description="What the user heard of what they interrupt.")] | None = None
    settings: ModelSettings | None = None
    output: Annotated[
        dict[str, Any] | None, Field(description="The JSON schema that the answer must have; its title is its name")
    ] = None


class GivenAnswers(Repeatable):
    """The answers to the questions of the call `call_id`, by the text of the question: an answer, or a list of them
    where several may be chosen. Without `call_id` they are for the questions that are open when they arrive."""

    answers: dict[str, str | list[str]]
    annotations: dict[str, dict[str, str]] | None = None
    call_id: _CallId | None = None


class Declined(Repeatable):
    """Nobody answers the questions of the call `call_id`, or those that are open."""

    call_id: _CallId | None = None


class CancelRequest(Repeatable):
    """Stop the turn with this number, or the one that runs when this arrives."""

    turn: TurnNumber | None = None
    heard: Annotated[str, Field(description="What the user heard, up to where they interrupted it.")] | None = None


class Approval(Repeatable):
    """Whether a call may run. A `note` tells the model why not; `arguments` replace those that the model wrote."""

    call_id: _CallId
    allowed: bool
    note: str | None = None
    arguments: dict[str, Any] | None = None


class Verdict(Repeatable):
    """What became of a call in doubt; with `again` it runs once more."""

    call_id: _CallId
    verdict: Resolution


class Withdrawal(Repeatable):
    """A message that waits, and that no turn shall take."""

    message_id: RequestId


class SentMessage(Answer):
    """A message that is stored, and the turn that takes it, as of this moment."""

    message_id: str
    turn: TurnJson


class TurnAnswer(Answer):
    """The turn that the request concerns, as of this moment."""

    turn: TurnJson


class CancelAnswer(Answer):
    """`no_op`: nothing ran, or another turn than the one that was meant."""

    no_op: bool


class StateAnswer(Answer):
    """The state of the conversation as of this moment."""

    state: StateJson


REFUSALS: dict[int | str, dict[str, Any]] = problems(*BODY_REFUSALS, 404, 409)
"""How every one of these requests may be refused."""

router: APIRouter = APIRouter(tags=["requests"], prefix=CONVERSATION, responses=REFUSALS)


@router.post("/messages", status_code=202, operation_id="sendMessage")
async def send_message(body: NewMessage, conversation: TheConversation, caller: CurrentCaller) -> SentMessage:
    """Send a message. It is stored, and the turn that takes it goes on by itself."""
    caller.require("settings", unless=body.settings is None)
    message_id = new_id() if body.message_id is None else body.message_id
    turn = await conversation.send(
        body.text,
        files=await given_files(conversation, body.files),
        settings=body.settings,
        output=body.output,
        message_id=message_id,
        when_busy=body.when_busy,
        heard=body.heard,
        wait=False,
    )
    return SentMessage(message_id=message_id, turn=turn.data)


@router.post("/respond", operation_id="answerQuestions")
async def answer_questions(body: GivenAnswers, conversation: TheConversation) -> TurnAnswer:
    """Answer the questions that the conversation asks. A refused answer leaves them open."""
    turn = await conversation.answer(
        body.answers, body.annotations, call_id=body.call_id, request_id=body.request_id, wait=False
    )
    return TurnAnswer(turn=turn.data)


@router.post("/decline", operation_id="declineQuestions")
async def decline_questions(conversation: TheConversation, body: Declined | None = None) -> TurnAnswer:
    """Decline to answer the questions that the conversation asks."""
    given = body or Declined()
    turn = await conversation.decline(given.call_id, request_id=given.request_id, wait=False)
    return TurnAnswer(turn=turn.data)


@router.post("/cancel", operation_id="cancelTurn")
async def cancel_turn(conversation: TheConversation, body: CancelRequest | None = None) -> CancelAnswer:
    """Stop a turn. Returns while it is still stopping."""
    given = body or CancelRequest()
    cancelled = await conversation.cancel(given.turn, heard=given.heard, request_id=given.request_id, wait=False)
    return CancelAnswer(no_op=cancelled.no_op)


@router.post("/approve", operation_id="approveCall")
async def approve_call(body: Approval, conversation: TheConversation, caller: CurrentCaller) -> TurnAnswer:
    """Allow or deny the call that waits for approval. Arguments that its tool refuses leave it waiting."""
    act = make(
        ToolApproval,
        event_id=body.request_id or new_id(),
        at=conversation.now(),
        call_id=body.call_id,
        allowed=body.allowed,
        note=body.note or "",
        arguments=body.arguments,
    )
    return TurnAnswer(turn=(await caller.submit(conversation, act)).data)


@router.post("/resolve", operation_id="resolveCall")
async def resolve_call(body: Verdict, conversation: TheConversation, caller: CurrentCaller) -> TurnAnswer:
    """Say what became of a call that was running when the server stopped."""
    event_id, at = body.request_id or new_id(), conversation.now()
    act = make(DoubtResolved, event_id=event_id, at=at, call_id=body.call_id, verdict=body.verdict)
    return TurnAnswer(turn=(await caller.submit(conversation, act)).data)


@router.post("/retry", operation_id="retryTurn")
async def retry_turn(conversation: TheConversation, body: Repeatable | None = None) -> TurnAnswer:
    """Try the failed turn again, as a new turn."""
    turn = await conversation.retry(request_id=_id_of(body), wait=False)
    return TurnAnswer(turn=turn.data)


@router.post("/withdraw", operation_id="withdrawMessage")
async def withdraw_message(body: Withdrawal, conversation: TheConversation) -> StateAnswer:
    """Withdraw a message that still waits for its turn."""
    await conversation.withdraw(body.message_id, request_id=body.request_id)
    return await state_of(conversation)


@router.post("/compact", status_code=202, operation_id="compactConversation")
async def compact_conversation(conversation: TheConversation, body: Repeatable | None = None) -> StateAnswer:
    """Have the history condensed into a summary for requests to models."""
    await conversation.compact(request_id=_id_of(body), wait=False)
    return await state_of(conversation)


@router.post("/close", operation_id="closeConversation")
async def close_conversation(conversation: TheConversation, body: Repeatable | None = None) -> StateAnswer:
    """End a conversation for good. It can still be read."""
    await conversation.close(request_id=_id_of(body), wait=False)
    return await state_of(conversation)


def _id_of(body: Repeatable | None) -> str | None:
    return None if body is None else body.request_id


async def state_of(conversation: Conversation) -> StateAnswer:
    """Return the state of the conversation as of this moment, as an answer."""
    return StateAnswer(state=(await conversation.view()).data)
