"""What can happen to a conversation.

Three families come in by the same door. *Requests* come from people and programs; each carries an `event_id` made by
whoever sends it, so that the same request delivered twice is handled once. *Answers* come from the world; each names
the effect that it answers, and one effect has one answer. Every event says when it happened: the machine has no clock
of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator, model_serializer
from pydantic_core import PydanticCustomError

from .failures import FailureKind
from .images import Images
from .messages import ToolCall, ToolResult, Usage
from .policy import Policy, WhenBusy
from .questions import Annotation, Answers, QuestionSet
from .value import Block, Instant, RequestText, Tagged, Text


class Event(Tagged):
    """Something that happened, `at` a moment."""

    at: Instant


class Request(Event):
    """Something that a person or a program wants. The same `event_id` twice is the same request."""

    event_id: Text = Field(min_length=1, max_length=200)


class Answer(Event):
    """What came of an effect."""

    effect_id: int


# --- requests


class _BringsRules(Request):
    """Rules are written whole: a default that changes later must not change what held then."""

    policy: Policy

    @model_serializer(mode="wrap")
    def _with_whole_policy(self, write: Any) -> dict[str, Any]:
        return {"type": self.type, **write(self), "policy": self.policy.model_dump(mode="json")}


class Opened(_BringsRules):
    """The conversation begins: the first event of every log, and where its rules come from."""

    type: Literal["opened"] = "opened"
    system: RequestText = ""
    policy: Policy = Policy()


class UserMessage(Request):
    """A person says something, or shows images, or both. `when_busy` says what becomes of it during a turn; None
    leaves that to the policy."""

    type: Literal["user_message"] = "user_message"
    images: Images = ()  # in front of the text, which may be empty if there are any
    text: RequestText
    when_busy: WhenBusy | None = None

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str, info: ValidationInfo) -> str:
        if not text.strip() and not info.data.get("images"):
            raise PydanticCustomError("message_empty", "a message must not be empty")
        return text


class MessageWithdrawn(Request):
    """A person takes back a message that still waits: the one sent under `message_id`."""

    type: Literal["message_withdrawn"] = "message_withdrawn"
    message_id: Text


class UserQuestionResponse(Request):
    """A person answers what was asked. `call_id`, if given, must be the call that asks now (case P40)."""

    type: Literal["user_question_response"] = "user_question_response"
    answers: Answers
    annotations: dict[RequestText, Annotation] = Field(default_factory=dict)
    call_id: Text | None = None


class ToolApproval(Request):
    """A person allows a call, or does not. `arguments`, if given, take the place of those that the model wrote."""

    type: Literal["tool_approval"] = "tool_approval"
    call_id: Text
    allowed: bool
    note: Text = Field(default="", max_length=2000)
    arguments: Block | None = None


class UserCancel(Request):
    """A person wants this to stop. `turn` and `call_id`, if given, must be the turn that runs and the call that waits
    for a person now (case P40)."""

    type: Literal["user_cancel"] = "user_cancel"
    turn: int | None = None
    call_id: Text | None = None


class RetryRequested(Request):
    """A person wants the failed turn tried again."""

    type: Literal["retry_requested"] = "retry_requested"


class PolicyChanged(_BringsRules):
    """From here on these rules hold."""

    type: Literal["policy_changed"] = "policy_changed"


class CloseRequested(Request):
    """The conversation shall end for good."""

    type: Literal["close_requested"] = "close_requested"


# --- answers


class LlmResponse(Answer):
    """The model answered: what it said, thought, and which tools it wants.

    `opaque` are the provider's sealed thinking blocks, given back unchanged. `digest` identifies the request that
    was sent. The ids of the calls must differ: whoever performs the request makes them so.
    """

    type: Literal["llm_response"] = "llm_response"
    content: Text = ""
    thinking: Text = ""
    opaque: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: Text = "stop"
    usage: Usage = Usage()
    model: Text = ""
    digest: Text = ""

    @field_validator("tool_calls")
    @classmethod
    def _ids_differ(cls, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        if len({call.call_id for call in calls}) < len(calls):
            raise PydanticCustomError("call_ids_repeat", "the ids of the calls in one response must differ")
        return calls


class LlmFailed(Answer):
    """The model request failed. `retry_after` is the wait in seconds that the provider asked for."""

    type: Literal["llm_failed"] = "llm_failed"
    kind: FailureKind
    sentence: Text
    retry_after: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class RetryDue(Answer):
    """The wait before the next attempt is over."""

    type: Literal["retry_due"] = "retry_due"


class DeadlineReached(Answer):
    """The time for something to happen is over."""

    type: Literal["deadline_reached"] = "deadline_reached"


class AskUserQuestionPending(Answer):
    """A tool wants to ask a person."""

    type: Literal["ask_user_question_pending"] = "ask_user_question_pending"
    questions: QuestionSet


class ToolComplete(Answer):
    """A tool ended, well or not."""

    type: Literal["tool_complete"] = "tool_complete"
    result: ToolResult


class ToolAborted(Answer):
    """A tool was stopped before it ended, or before it began."""

    type: Literal["tool_aborted"] = "tool_aborted"


class EffectFailed(Answer):
    """An effect ended without an answer of its own kind: the last resort of every performer."""

    type: Literal["effect_failed"] = "effect_failed"
    kind: FailureKind
    sentence: Text


AnyEvent = Annotated[
    Opened
    | UserMessage
    | MessageWithdrawn
    | UserQuestionResponse
    | ToolApproval
    | UserCancel
    | RetryRequested
    | PolicyChanged
    | CloseRequested
    | LlmResponse
    | LlmFailed
    | RetryDue
    | DeadlineReached
    | AskUserQuestionPending
    | ToolComplete
    | ToolAborted
    | EffectFailed,
    Field(discriminator="type"),
]
"""Every event, for reading one back by its `type`."""

REQUESTS: tuple[type[Request], ...] = (
    Opened,
    UserMessage,
    MessageWithdrawn,
    UserQuestionResponse,
    ToolApproval,
    UserCancel,
    RetryRequested,
    PolicyChanged,
    CloseRequested,
)
ANSWERS: tuple[type[Answer], ...] = (
    LlmResponse,
    LlmFailed,
    RetryDue,
    DeadlineReached,
    AskUserQuestionPending,
    ToolComplete,
    ToolAborted,
    EffectFailed,
)
EVENTS: tuple[type[Event], ...] = (*REQUESTS, *ANSWERS)

_ANY_EVENT: TypeAdapter[Event] = TypeAdapter(AnyEvent)


def exact(event: Event) -> Event:
    """The event as it will be read back from the log.

    For the doors through which foreign code hands in events: an event can be built past its own validation. Raises
    `ValueError` (pydantic's errors are such) for one that does not hold what it declares. `Pure.`
    """
    if type(event) not in EVENTS:
        raise ValueError("this is not an event that a conversation knows")
    return _ANY_EVENT.validate_json(event.model_dump_json(exclude_defaults=True, warnings="error"))


MODEL_ANSWERS: tuple[type[Answer], ...] = (LlmResponse, LlmFailed, EffectFailed)
"""What may come of a model request."""

TOOL_ANSWERS: tuple[type[Answer], ...] = (ToolComplete, ToolAborted, AskUserQuestionPending, EffectFailed)
"""What may come of a tool that runs."""

RETRY_TIMER: tuple[type[Answer], ...] = (RetryDue,)
DEADLINE_TIMER: tuple[type[Answer], ...] = (DeadlineReached,)
