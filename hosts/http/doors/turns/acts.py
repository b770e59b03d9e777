"""What a person does about a turn that waits for one, as data: the same for every protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .....engine.conversation import Conversation
from .....engine.turns import Turn
from .....states.events import Resolution
from .....states.states import AnyState, AwaitingApproval, InDoubt
from .....states.values.questions import UserQuestion
from ...permissions import Caller

Wanted: TypeAlias = Literal["answers", "approval", "resolution"]
"""What a turn waits for: answers to questions, the approval of a call, or word of whether a call ran."""


@dataclass(frozen=True)
class Awaited:
    """What a turn waits for, and the call that it is about."""

    wanted: Wanted
    call_id: str
    questions: tuple[UserQuestion, ...] = ()


def awaited_by(state: AnyState) -> Awaited | None:
    """Return what a conversation in this state waits for, None if it waits for nobody. `Pure.`"""
    if (asked := state.open_question) is not None:
        return Awaited("answers", asked.call_id, asked.questions)
    if isinstance(state, AwaitingApproval):
        return Awaited("approval", state.call.call_id)
    if isinstance(state, InDoubt):
        return Awaited("resolution", state.call.call_id)
    return None


@dataclass(frozen=True, kw_only=True)
class AnswerQuestions:
    """Answer the questions of a call, by their text."""

    call_id: str
    answers: Mapping[str, str | Sequence[str]]
    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeclineQuestions:
    """Decline to answer the questions of a call."""

    call_id: str


@dataclass(frozen=True, kw_only=True)
class DecideCall:
    """Allow a call to run, perhaps with other arguments, or deny it."""

    call_id: str
    allowed: bool
    note: str | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ResolveCall:
    """Say whether a call ran that was interrupted."""

    call_id: str
    verdict: Resolution


Act: TypeAlias = AnswerQuestions | DeclineQuestions | DecideCall | ResolveCall


async def perform(caller: Caller, conversation: Conversation, act: Act, request_id: str) -> Turn:
    """Hand an act of the caller to its conversation, once however often it is handed in under this id, and return the
    turn as of the moment when it is stored. Raises what the methods of `Conversation` raise, and `HttpError` for what
    the caller may not decide."""
    match act:
        case AnswerQuestions():
            return await conversation.answer(
                act.answers, act.annotations, call_id=act.call_id, request_id=request_id, wait=False
            )
        case DeclineQuestions():
            return await conversation.decline(act.call_id, request_id=request_id, wait=False)
        case DecideCall():
            return await caller.approve(
                conversation, act.call_id, act.allowed, act.note, act.arguments, request_id=request_id
            )
        case ResolveCall():
            return await caller.resolve(conversation, act.call_id, act.verdict, request_id=request_id)
