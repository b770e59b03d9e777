"""What can happen to a conversation.

Three families come in by the same door. *Requests* come from people and programs; each carries an `event_id` made by
whoever sends it, so that the same request delivered twice is handled once. *Answers* come from the world; each names
the effect that it answers, and one effect has one answer. *Reports* come from whoever takes up a conversation after its
process died; they answer nothing. Every event says when it happened: the machine has no clock of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter, ValidationInfo, field_validator, model_serializer
from pydantic_core import PydanticCustomError

from .policy.policy import Policy, WhenBusy
from .policy.roles import Role
from .values.acts import Audience
from .values.failures import FailureKind
from .values.images import Images
from .values.messages import ToolCall, ToolResult, Usage
from .values.questions import Annotation, Answers, QuestionSet, answers_as_json
from .values.value import Block, Instant, RequestText, Tagged, Text, Value, members


class Event(Tagged):
    """Something that happened, `at` a moment."""

    at: Instant

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that it brings, in the order in which `Heard` counts them. `Pure.`"""
        return ()


class Request(Event):
    """Something that a person or a program wants. The same `event_id` twice is the same request."""

    event_id: Text = Field(min_length=1, max_length=200)


class Answer(Event):
    """What came of an effect."""

    effect_id: int


AnswerTypes: TypeAlias = tuple[type[Answer], ...]
"""The types of answer that something can have."""


class Report(Event):
    """What became of a conversation whose process died. One about something that does not run is ignored."""


# --- requests


class _BringsRules(Request):
    """Rules are written whole: a default that changes later must not change what held then."""

    policy: Policy

    @model_serializer(mode="wrap")
    def _with_whole_policy(self, write: Any) -> dict[str, Any]:
        return {"type": self.type, **write(self), "policy": self.policy.model_dump(mode="json")}


class Opened(_BringsRules):
    """The conversation begins: the first event of every log, and where its rules come from.

    `works_for` is the conversation for whose user a background agent works, `parent` the one whose turn started a
    sub-agent.
    """

    type: Literal["opened"] = "opened"
    role: Role = "foreground"
    system: RequestText = ""
    policy: Policy = Policy()
    works_for: Text | None = None
    parent: Text | None = None


def _not_empty(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("message_empty", "a message must not be empty")
    return text


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
        return text if info.data.get("images") else _not_empty(text)

    @property
    def texts(self) -> tuple[str, ...]:
        """What the person says. `Pure.`"""
        return (self.text,)


class AgentMessage(Request):
    """Another agent, `origin`, says something: to this agent, or for its user. A silent one starts no turn; it is read
    by the next one (seed 003)."""

    type: Literal["agent_message"] = "agent_message"
    origin: Text = Field(min_length=1, max_length=200)
    text: Annotated[RequestText, AfterValidator(_not_empty)]
    audience: Audience = "agent"
    silent: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """What the agent says. `Pure.`"""
        return (self.text,)


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

    @property
    def texts(self) -> tuple[str, ...]:
        """The answers, as JSON. `Pure.`"""
        return (answers_as_json(self.answers, self.annotations),)


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


class CompactionRequested(Request):
    """Somebody wants the history condensed, without waiting until it fills the window."""

    type: Literal["compaction_requested"] = "compaction_requested"


Resolution = Literal["ran", "did_not_run", "again"]
"""What a person can say of a call that a crash left in doubt: it ran, it did not, or it shall run again."""


class DoubtResolved(Request):
    """A person says what became of a call that a crash left in doubt."""

    type: Literal["doubt_resolved"] = "doubt_resolved"
    call_id: Text
    verdict: Resolution


class CloseRequested(Request):
    """The conversation shall end for good."""

    type: Literal["close_requested"] = "close_requested"


# --- answers


class ProfileSelected(Answer):
    """The router chose a profile. A name that the policy does not know means the first one (case J2)."""

    type: Literal["profile_selected"] = "profile_selected"
    profile: Text
    usage: Usage = Usage()


class RecentText(Value):
    """A text of the last minutes, from whatever conversation of the same owner (case J3)."""

    role: Literal["user", "assistant"]
    text: Text


class MemoryRecalled(Answer):
    """What was found in older conversations: a block for the system message, and the dialogue of the last minutes."""

    type: Literal["memory_recalled"] = "memory_recalled"
    block: Text = ""
    recent: tuple[RecentText, ...] = ()
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The block. `Pure.`"""
        return (self.block,)


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

    @property
    def texts(self) -> tuple[str, ...]:
        """What the model said, then the fault of each call. `Pure.`"""
        return (self.content, *(call.fault or "" for call in self.tool_calls))


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

    @property
    def texts(self) -> tuple[str, ...]:
        """What the model reads, then the texts of the acts. `Pure.`"""
        return self.result.texts


class ToolReconciled(Answer):
    """A tool says whether a call that a crash interrupted did run, and what came of it if that is known."""

    type: Literal["tool_reconciled"] = "tool_reconciled"
    verdict: Literal["ran", "did_not_run", "unknown"]
    result: ToolResult | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """As of a tool that ended, if the result is known. `Pure.`"""
        return () if self.result is None else self.result.texts


class SubAgentFinished(Answer):
    """A sub-agent ended: what it said last, and how it ended."""

    type: Literal["sub_agent_finished"] = "sub_agent_finished"
    outcome: Text
    status: Literal["completed", "incomplete", "failed", "cancelled"] = "completed"
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """What the sub-agent came to. `Pure.`"""
        return (self.outcome,)


class WorkVerified(Answer):
    """The claim that the work is complete was checked: whether it holds, why, and what is missing."""

    type: Literal["work_verified"] = "work_verified"
    passed: bool
    reason: Text = ""
    missing: tuple[Text, ...] = ()
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """Why the claim holds or does not, and what is missing. `Pure.`"""
        return ("\n".join((self.reason, *(f"- {one}" for one in self.missing))).strip(),)


class TurnSummarized(Answer):
    """A summary of the turn, for display."""

    type: Literal["turn_summarized"] = "turn_summarized"
    summary: Text
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The summary. `Pure.`"""
        return (self.summary,)


class HistoryCompacted(Answer):
    """The history, condensed."""

    type: Literal["history_compacted"] = "history_compacted"
    summary: Annotated[Text, Field(min_length=1)]
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """What stands for the history. `Pure.`"""
        return (self.summary,)


class ToolAborted(Answer):
    """A tool was stopped before it ended, or before it began."""

    type: Literal["tool_aborted"] = "tool_aborted"


class EffectFailed(Answer):
    """An effect ended without an answer of its own kind: the last resort of every performer."""

    type: Literal["effect_failed"] = "effect_failed"
    kind: FailureKind
    sentence: Text

    @property
    def texts(self) -> tuple[str, ...]:
        """Why. `Pure.`"""
        return (self.sentence,)


# --- reports


class Resumed(Report):
    """A process takes the conversation up again; `open` are the effects that were in flight when the last one died."""

    type: Literal["resumed"] = "resumed"
    open: tuple[int, ...] = ()


class ToolInterrupted(Report):
    """This call was running when the process died."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    call_id: Text


AnyEvent = Annotated[
    Opened
    | UserMessage
    | AgentMessage
    | MessageWithdrawn
    | UserQuestionResponse
    | ToolApproval
    | UserCancel
    | RetryRequested
    | PolicyChanged
    | CompactionRequested
    | DoubtResolved
    | CloseRequested
    | ProfileSelected
    | MemoryRecalled
    | LlmResponse
    | LlmFailed
    | RetryDue
    | DeadlineReached
    | AskUserQuestionPending
    | ToolComplete
    | ToolReconciled
    | ToolAborted
    | SubAgentFinished
    | WorkVerified
    | TurnSummarized
    | HistoryCompacted
    | EffectFailed
    | Resumed
    | ToolInterrupted,
    Field(discriminator="type"),
]
"""Every event, for reading one back by its `type`."""

REQUESTS = members(AnyEvent, Request)
ANSWERS = members(AnyEvent, Answer)
REPORTS = members(AnyEvent, Report)
EVENTS = members(AnyEvent, Event)

_ANY_EVENT: TypeAdapter[Event] = TypeAdapter(AnyEvent)


def exact(event: Event) -> Event:
    """The event as it will be read back from the log.

    For the doors through which foreign code hands in events: an event can be built past its own validation. Raises
    `ValueError` (pydantic's errors are such) for one that does not hold what it declares. `Pure.`
    """
    if type(event) not in EVENTS:
        raise ValueError("this is not an event that a conversation knows")
    return _ANY_EVENT.validate_json(event.model_dump_json(exclude_defaults=True, warnings="error"))
