"""Everything that can happen to a conversation, as plain data, in three families.

A *request* comes from a person or a program: messages, answers to questions, approvals, cancels and changes of rules.
The sender gives it an `event_id`, so that a request that is delivered twice is handled once. An *answer* is the outcome
of an effect, of a model, a tool, a sub-agent or a timer, and names that effect; each effect has one answer. A *report*
tells of something that is under way and answers nothing: what a crash interrupted, what a sub-agent asks. Every event
says when it happened, because the machine has no clock.

What a conversation asks for in return is in `effects`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from .header import Setup
from .policy import ModelSettings, Policy, WhenBusy
from .values.acts import Audience, Metadata, Owner, Schedule, Title, check_message
from .values.files import FileReference, FileReferences
from .values.messages import (
    Approver,
    Citation,
    CrashContract,
    HistoryMessage,
    ProviderFields,
    Suspect,
    ToolCall,
    ToolResult,
    Usage,
)
from .values.output import GivenOutput, ModelOutput
from .values.questions import Annotation, Answers, QuestionSet, answers_as_json
from .values.turn import BranchPoint, Waiting
from .values.value import (
    Block,
    FailureKind,
    FilledText,
    Instant,
    RequestText,
    Tagged,
    Text,
    Value,
    members,
    writer_of,
)


class Event(Tagged):
    """Something that happened, at the moment `at`."""

    TEXTS: ClassVar[tuple[str, ...]] = ()
    """The fields that hold the texts of an event of this type, where each is a field of its own."""

    at: Instant

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this event brings, in the order in which `Heard.index` counts them. `Pure.`"""
        return tuple(getattr(self, name) for name in self.TEXTS)


def files_of(event: Event) -> tuple[FileReference, ...]:
    """The files that this event brings, in order. `Pure.`"""
    match event:
        case UserMessage(files=files):
            return files
        case ToolComplete(result=ToolResult(files=files)) | ToolReconciled(result=ToolResult(files=files)):
            return files
        case Opened(messages=messages) if messages:
            return tuple(file for message in messages for file in message.files)
        case _:
            return ()


class Request(Event):
    """Something that a person or a program wants. Two requests with the same `event_id` are the same request."""

    event_id: Text = Field(min_length=1, max_length=200)


class Answer(Event):
    """The outcome of the effect `effect_id`."""

    effect_id: int


AnswerType: TypeAlias = type[Answer]
"""A type of answer. Within a record, whose field may be called `type`, an annotation cannot say it otherwise."""

AnswerTypes: TypeAlias = tuple[AnswerType, ...]
"""Types of answer, such as those that an effect can have."""


class Report(Event):
    """News of something that is under way: what a crash interrupted, or what a sub-agent asks. A report about anything
    else is ignored."""


class ProfileSelected(Answer):
    """The router chose a profile. A name that the policy does not know stands for the policy's first profile."""

    type: Literal["profile_selected"] = "profile_selected"
    profile: Text
    usage: Usage = Usage()


class RecentText(Value):
    """A text of the last minutes, from any conversation of the same owner."""

    role: Literal["user", "assistant"]
    text: Text


class MemoryRecalled(Answer):
    """What was found for a turn: a block of older conversations and a block of documents, both for the end of its
    requests, and the dialogue of the last minutes. `left_out` says what could not be looked up, in sentences for
    people."""

    TEXTS: ClassVar[tuple[str, ...]] = ("block", "documents")

    type: Literal["memory_recalled"] = "memory_recalled"
    block: Text = ""
    recent: tuple[RecentText, ...] = ()
    documents: Text = ""
    usage: Usage = Usage()
    left_out: tuple[Text, ...] = ()


class LlmResponse(Answer):
    """The model's response: its text, its thinking, and the tools that it calls.

    `opaque` holds the provider's sealed thinking blocks, and `provider` what else only its family of models reads; both
    are sent back unchanged, and no state has them. `digest` identifies the request that was sent. `speaks` says whether
    it offered a tool that speaks to the user. The performer makes the ids of the calls unique. `output` says, where a
    typed answer is wanted, what came of the attempt to give one; None if the response was none. `citations` are the
    sources that the model names, and `logprobs` the probabilities of its tokens, as the provider wrote them.
    `clearable` is about how many tokens the next request would be smaller without the old results that
    `Policy.clear_results` names; it is 0 as long as the window is far from full.
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
    speaks: bool = False
    provider: ProviderFields | None = None
    output: ModelOutput | None = None
    citations: tuple[Citation, ...] = ()
    logprobs: Block | None = None
    clearable: int = Field(default=0, ge=0)

    @field_validator("tool_calls")
    @classmethod
    def _ids_differ(cls, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        if len({call.call_id for call in calls}) < len(calls):
            raise PydanticCustomError("call_ids_repeat", "the ids of the calls in one response must differ")
        return calls

    @field_validator("output")
    @classmethod
    def _names_its_calls(cls, output: ModelOutput | None, info: ValidationInfo) -> ModelOutput | None:
        made = len(info.data.get("tool_calls", ()))
        if output is not None and not all(0 <= place < made for place in output.calls):
            raise PydanticCustomError("output_calls", "a typed answer was given by calls of its response")
        return output

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of the response, then the fault of each call; then what is wrong with its typed answer, or the
        typed answer as JSON and what the user receives of it. `Pure.`"""
        calls, output = self.tool_calls, self.output
        texts = (self.content, *(call.fault or "" for call in calls)) if calls else (self.content,)
        if output is None:
            return texts
        return (
            (*texts, self.output_json, output.reply or self.output_json) if output.is_valid else (*texts, output.errors)
        )

    @property
    def output_index(self) -> int:
        """The place in `texts` of what the response says as a typed answer. `Pure.`"""
        return 1 + len(self.tool_calls)

    @property
    def output_json(self) -> str:
        """The typed answer as JSON, if the response holds a valid one. `Pure.`"""
        output = self.output
        if output is None or output.value:
            return "" if output is None else output.value
        return self.tool_calls[output.calls[0]].raw_arguments if output.calls else self.content


class LlmFailed(Answer):
    """The model request failed. `retry_after` is the wait in seconds that the provider asked for, and `usage` what was
    spent before the answer broke off.

    `held` says of a request that was refused for its content what in it may be what was refused. It is empty for every
    other failure, and in the events that were stored before anything was withheld. `clearable` says of one that did not
    fit the window about how many tokens it would be smaller without old results of tools; it is 0 for every other
    failure.
    """

    type: Literal["llm_failed"] = "llm_failed"
    kind: FailureKind
    sentence: Text
    retry_after: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    held: tuple[Suspect, ...] = ()
    usage: Usage = Usage()
    clearable: int = Field(default=0, ge=0)


class LlmStopped(Answer):
    """The model was stopped before its response was complete: the text and the thinking that had come by then, and what
    they cost. Calls that it had begun to write are dropped, but not what a tool was to say to the user: with `spoken`
    the text ends with it, or is nothing else.

    `speaks` says whether the request offered a tool that speaks to the user. Everything is empty if nothing had come,
    or if nobody knows what had.
    """

    TEXTS: ClassVar[tuple[str, ...]] = ("content",)

    type: Literal["llm_stopped"] = "llm_stopped"
    content: Text = ""
    thinking: Text = ""
    usage: Usage = Usage()
    model: Text = ""
    speaks: bool = False
    spoken: bool = False


class RetryDue(Answer):
    """The wait before the next attempt is over."""

    type: Literal["retry_due"] = "retry_due"


class DeadlineReached(Answer):
    """The time to wait for something is over."""

    type: Literal["deadline_reached"] = "deadline_reached"


class AskUserQuestionPending(Answer):
    """A tool asks a person. The answers become the result of its call; or, if the call `suspends`, it has not ended: it
    waits for the answers and then goes on."""

    type: Literal["ask_user_question_pending"] = "ask_user_question_pending"
    questions: QuestionSet
    suspends: bool = False


class ToolComplete(Answer):
    """A tool returned a result, which may be an error."""

    type: Literal["tool_complete"] = "tool_complete"
    result: ToolResult

    @property
    def texts(self) -> tuple[str, ...]:
        """The text that the model reads, then the texts of the acts. `Pure.`"""
        return self.result.texts


class ToolReconciled(Answer):
    """A tool says whether a call that a crash interrupted ran, and with which result, if that is known."""

    type: Literal["tool_reconciled"] = "tool_reconciled"
    verdict: Literal["ran", "did_not_run", "unknown"]
    result: ToolResult | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the result, if it is known. `Pure.`"""
        return () if self.result is None else self.result.texts


class SubAgentFinished(Answer):
    """A sub-agent ended, with its last text and its status. With `is_json` the text is its typed answer."""

    TEXTS: ClassVar[tuple[str, ...]] = ("outcome",)

    type: Literal["sub_agent_finished"] = "sub_agent_finished"
    outcome: Text
    status: Literal["completed", "incomplete", "failed", "cancelled"] = "completed"
    usage: Usage = Usage()
    is_json: bool = False


class WorkVerified(Answer):
    """The claim that the work is complete was checked: whether it holds, why, and what is missing."""

    type: Literal["work_verified"] = "work_verified"
    passed: bool
    reason: Text = ""
    missing: tuple[Text, ...] = ()
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The reason, and what is missing. `Pure.`"""
        return ("\n".join((self.reason, *(f"- {one}" for one in self.missing))).strip(),)


class TurnSummarized(Answer):
    """A summary of the turn, for display."""

    TEXTS: ClassVar[tuple[str, ...]] = ("summary",)

    type: Literal["turn_summarized"] = "turn_summarized"
    summary: Text
    usage: Usage = Usage()


class HistoryCompacted(Answer):
    """The summary that replaces the history."""

    TEXTS: ClassVar[tuple[str, ...]] = ("summary",)

    type: Literal["history_compacted"] = "history_compacted"
    summary: Annotated[Text, Field(min_length=1)]
    usage: Usage = Usage()


class ToolAborted(Answer):
    """A tool was stopped before it ended, or before it began."""

    type: Literal["tool_aborted"] = "tool_aborted"


class EffectFailed(Answer):
    """An effect ended without an answer of its own kind. Every performer can fall back to this answer."""

    TEXTS: ClassVar[tuple[str, ...]] = ("sentence",)

    type: Literal["effect_failed"] = "effect_failed"
    kind: FailureKind
    sentence: Text


class Resumed(Report):
    """A process takes over the conversation. `open` lists the effects in flight that nobody carries out any more, apart
    from those of calls that were reported as interrupted before. An empty list stands for all that is in flight.
    `imported`: the log comes from elsewhere, so nothing of it goes on by itself, and what was under way is closed."""

    type: Literal["resumed"] = "resumed"
    open: tuple[int, ...] = ()
    imported: bool = False


class ToolInterrupted(Report):
    """The call `call_id` was running when the process died."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    call_id: Text


class CallRestricted(Report):
    """The process that takes the conversation over declares the tool of the call `call_id` more strictly than the
    process that recorded the call. From now on the stricter contract holds. `approval` says whether a person must
    approve the call, unless one did before who may, and `approval_by` who may."""

    type: Literal["call_restricted"] = "call_restricted"
    call_id: Text
    crash: CrashContract
    approval: bool = False
    approval_by: Approver = "user"


class SubAgentAsked(Report):
    """The sub-agent that the effect `effect_id` started asks the user, by its call `call_id`, since the moment `since`;
    or, if `questions` is None, it no longer asks by that call."""

    type: Literal["sub_agent_asked"] = "sub_agent_asked"
    effect_id: int
    call_id: Text
    questions: QuestionSet | None = None
    since: Instant | None = None


class _BringsRules(Request):
    """A request that brings a policy. The policy is written in full, so that a default that changes in a later version
    does not change the rules of an old log."""

    policy: Policy

    @model_serializer(mode="wrap")
    def _with_whole_policy(self, write: Any) -> dict[str, Any]:
        return {**write(self), "policy": self.policy.model_dump(mode="json")}


class Opened(Setup, _BringsRules):
    """The conversation begins. This is the first event of every log.

    `messages` are a history from elsewhere that the conversation continues, and `repairs` says what was wrong with it.
    `next_wake` is when the schedule wakes it up first. `nonce` is drawn at random when the conversation is created, so
    that no two logs are the same.
    """

    type: Literal["opened"] = "opened"
    messages: tuple[HistoryMessage, ...] = ()
    repairs: tuple[Text, ...] = ()
    next_wake: Instant | None = None
    nonce: Text = ""

    @model_validator(mode="after")
    def _may_wake_up(self) -> Self:
        _check_wake(self.schedule, self.next_wake)
        if self.schedule is not None and self.role == "sub_agent":
            raise PydanticCustomError("schedule_of_sub_agent", "a sub-agent has no schedule")
        return self

    @model_serializer(mode="wrap")
    def _with_whole_policy(self, write: Any) -> dict[str, Any]:
        """The revision is always written, too, since the default of a later version is another one."""
        return {**write(self), "policy": self.policy.model_dump(mode="json"), "revision": self.revision}


def _check_wake(schedule: Schedule | None, next_wake: datetime | None) -> None:
    if schedule is None and next_wake is not None:
        raise PydanticCustomError("wake_without_schedule", "a conversation without a schedule has no next wake-up")


class UserMessage(Request):
    """A message of a person: text, files, or both. `when_busy` says what happens to it during a turn; None leaves that
    to the policy. `settings` are parameters of the model requests of the turn that takes it. `output` is the form that
    the answer must have; None leaves that to the profile of the turn, or else to the conversation. Of several messages
    in one turn the newest that says so decides. One that interrupts may tell what the user has `heard` of what was said
    in the newest turn, as a cancel does: see `UserCancel`."""

    type: Literal["user_message"] = "user_message"
    files: FileReferences = ()  # in front of the text, which may be empty if there are any
    text: RequestText
    when_busy: WhenBusy | None = None
    settings: ModelSettings | None = None
    output: GivenOutput | None = None
    heard: RequestText | None = None

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str, info: ValidationInfo) -> str:
        return text if info.data.get("files") else check_message(text)

    @field_validator("heard")
    @classmethod
    def _interrupts(cls, heard: str | None, info: ValidationInfo) -> str | None:
        if heard is not None and info.data.get("when_busy") != "interrupt":
            raise PydanticCustomError("heard_without_interrupt", "only a message that interrupts tells what was heard")
        return heard

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, then what was heard, if that is told. `Pure.`"""
        return (self.text,) if self.heard is None else (self.text, self.heard)


_MessageText = Annotated[RequestText, AfterValidator(check_message)]


class AgentMessage(Request):
    """A message of another agent, `origin`, to this agent or to its user. A silent message starts no turn; the next
    turn reads it."""

    TEXTS: ClassVar[tuple[str, ...]] = ("text",)

    type: Literal["agent_message"] = "agent_message"
    origin: Text = Field(min_length=1, max_length=200)
    text: _MessageText
    audience: Audience = "agent"
    silent: bool = False


ORIGIN_OF_WAKE_UPS = "schedule"
"""The agent that a model, and whoever reads the transcript, is told to have written a wake-up."""


class WakeUp(Request):
    """The moment `due` of the conversation's schedule has come; the one after it is `next_wake`, if there is one.

    `text` is the task of the schedule. The conversation reads it like the message of another agent. A wake-up that is
    not the one that the conversation waits for changes nothing.
    """

    TEXTS: ClassVar[tuple[str, ...]] = ("text",)

    type: Literal["wake_up"] = "wake_up"
    due: Instant
    next_wake: Instant | None = None
    text: FilledText

    @model_validator(mode="after")
    def _goes_forward(self) -> Self:
        if self.next_wake is not None and self.next_wake <= self.due:
            raise PydanticCustomError("wake_not_later", "the next wake-up must come after this one")
        return self

    @property
    def origin(self) -> str:
        """Who wrote this, as `AgentMessage.origin` says it. `Pure.`"""
        return ORIGIN_OF_WAKE_UPS

    @property
    def audience(self) -> Audience:
        """For whom this is: for the agent alone. `Pure.`"""
        return "agent"

    @property
    def silent(self) -> bool:
        """Whether this starts no turn: it always starts one. `Pure.`"""
        return False


def waiting(event: UserMessage | AgentMessage | WakeUp, seq: int, when_busy: WhenBusy = "queue") -> Waiting:
    """How this message, which the step `seq` brought, waits for a turn. `when_busy` is what the policy says. `Pure.`"""
    if isinstance(event, UserMessage):
        steer = (event.when_busy or when_busy) == "steer"
        return Waiting(event_id=event.event_id, seq=seq, steer=steer, output=event.output is not None)
    if isinstance(event, WakeUp):
        return Waiting(event_id=event.event_id, seq=seq, audience=event.audience, scheduled=True)
    return Waiting(event_id=event.event_id, seq=seq, audience=event.audience, silent=event.silent, origin=event.origin)


class MessageWithdrawn(Request):
    """A person takes back a message that waits in the inbox: the one that was sent under `message_id`."""

    type: Literal["message_withdrawn"] = "message_withdrawn"
    message_id: Text


class UserQuestionResponse(Request):
    """A person answers the questions of a call. If `call_id` is given, it must be the call that asks now."""

    type: Literal["user_question_response"] = "user_question_response"
    answers: Answers
    annotations: dict[RequestText, Annotation] = Field(default_factory=dict)
    call_id: Text | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The answers, as JSON. `Pure.`"""
        return (answers_as_json(self.answers, self.annotations),)


class ToolApproval(Request):
    """A person allows or denies a call. `arguments`, if given, replace those that the model wrote. `by` is who decided,
    as the application names its users; None if it did not say."""

    type: Literal["tool_approval"] = "tool_approval"
    call_id: Text
    allowed: bool
    note: Text = Field(default="", max_length=2000)
    arguments: Block | None = None
    by: Owner | None = None

    @property
    def raw_arguments(self) -> str | None:
        """The arguments as JSON text, as a call has them; None if it keeps those that the model wrote. `Pure.`"""
        return None if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)


class UserCancel(Request):
    """A person stops the turn. `turn` and `call_id`, if given, must be the turn under way and the call that waits for a
    person. `usage` is what was spent on the answers that were under way and end with the turn, apart from that of the
    model in the conversation: that one says so itself, by `LlmStopped`.

    `heard` is what the user has heard of what was said in the turn, up to where they interrupted it; None if they did
    not. It also tells of a turn that is over, since a voice speaks on behind its end.
    """

    type: Literal["user_cancel"] = "user_cancel"
    turn: int | None = None
    call_id: Text | None = None
    usage: Usage = Usage()
    heard: RequestText | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """What was heard, if that is told. `Pure.`"""
        return () if self.heard is None else (self.heard,)


class _Branching(Request):
    """A request by which the conversation goes on at another point of its tree of turns.

    What it says of the log was read by its sender, since no state knows the log: `branch` is the step in which the
    conversation went to the branch that it is on, `newest` the newest turn, if that must be the one that the sender
    saw, `window_used` what the last request had used of the window at that point, and `clearable` how much of that were
    old results of tools. `usage` is that of a `UserCancel`.
    """

    branch: int = 0
    newest: int | None = None
    window_used: int = 0
    clearable: int = 0
    usage: Usage = Usage()

    @property
    def point(self) -> BranchPoint:
        """Where the conversation goes on. `Pure.`"""
        raise NotImplementedError

    def _beginning(self, turn: int, again: tuple[Waiting, ...]) -> BranchPoint:
        """Where this turn began. `Pure.`"""
        window_used, clearable = self.window_used, self.clearable
        return BranchPoint(turn=turn, before=True, window_used=window_used, clearable=clearable, again=again)


class Rewound(_Branching):
    """A person hides the turn `before` and all that follows it. `again` are the messages of that turn, if they are to
    be answered again; the conversation rests otherwise. `to` is the point as the person named it, if they did: the
    number of the turn in front of that one, or the id of its message."""

    type: Literal["rewound"] = "rewound"
    to: Text = ""
    before: int = Field(ge=1)
    again: tuple[Waiting, ...] = ()

    @property
    def point(self) -> BranchPoint:
        """Where that turn began. `Pure.`"""
        return self._beginning(self.before, self.again)


class MessageEdited(UserMessage, _Branching):
    """A person says this in place of the message `message_id`, which began the turn `before` or entered it: the turn
    and all that follows it is hidden. `again` are the messages that stood before that message in the turn. Under
    `event_id` this is a message like any other."""

    type: Literal["message_edited"] = "message_edited"  # type: ignore[assignment]
    message_id: Text
    before: int = Field(ge=1)
    again: tuple[Waiting, ...] = ()

    @property
    def point(self) -> BranchPoint:
        """Where that turn began. `Pure.`"""
        return self._beginning(self.before, self.again)


class BranchSwitched(_Branching):
    """A person returns to the branch whose newest turn is `turn`."""

    type: Literal["branch_switched"] = "branch_switched"
    turn: int = Field(ge=0)

    @property
    def point(self) -> BranchPoint:
        """Behind that turn. `Pure.`"""
        return BranchPoint(turn=self.turn, window_used=self.window_used, clearable=self.clearable)


Branching: TypeAlias = Rewound | MessageEdited | BranchSwitched
"""The requests by which a conversation goes on at another point of its tree of turns."""


class RetryRequested(Request):
    """A person wants the failed turn to be tried again."""

    type: Literal["retry_requested"] = "retry_requested"


class PolicyChanged(_BringsRules):
    """The rules of the conversation are replaced. `chose_models` and `chose_profiles` say that the application chose
    the models and the profiles of the new policy."""

    type: Literal["policy_changed"] = "policy_changed"
    chose_models: bool = False
    chose_profiles: bool = False


class ToolsChanged(Request):
    """The conversation may use other tools from its next turn on, whose number is `from_turn`. None stands for all
    tools that the engine has. A change that `narrows` is refused unless the conversation has all of them."""

    type: Literal["tools_changed"] = "tools_changed"
    tools: tuple[Text, ...] | None
    from_turn: int = Field(ge=1)
    narrows: bool = False


class DetailsChanged(Request):
    """The title, the metadata or the system prompt of the conversation is replaced. None leaves it as it is. A system
    prompt holds from the next model request on, also within a turn."""

    type: Literal["details_changed"] = "details_changed"
    title: Title | None = None
    metadata: Metadata | None = None
    system: RequestText | None = None


class ScheduleChanged(Request):
    """The conversation has another schedule, or none, and wakes up next at `next_wake`. A schedule whose moments are
    all over has no next one."""

    type: Literal["schedule_changed"] = "schedule_changed"
    schedule: Schedule | None = None
    next_wake: Instant | None = None

    @model_validator(mode="after")
    def _may_wake_up(self) -> Self:
        _check_wake(self.schedule, self.next_wake)
        return self


class ProfileTransferred(Request):
    """The conversation goes on under another profile of its policy from its next model request on."""

    type: Literal["profile_transferred"] = "profile_transferred"
    profile: Text = Field(min_length=1)


class CompactionRequested(Request):
    """The history is to be compacted now, even though it does not fill the window."""

    type: Literal["compaction_requested"] = "compaction_requested"


Resolution = Literal["ran", "did_not_run", "again"]
"""What a person can say about a call in doubt: it ran, it did not run, or it shall run again."""


class DoubtResolved(Request):
    """A person says what became of a call that a crash left in doubt."""

    type: Literal["doubt_resolved"] = "doubt_resolved"
    call_id: Text
    verdict: Resolution


class CloseRequested(Request):
    """The conversation is to end for good."""

    type: Literal["close_requested"] = "close_requested"


AnyEvent = Annotated[
    Opened
    | UserMessage
    | AgentMessage
    | WakeUp
    | MessageWithdrawn
    | UserQuestionResponse
    | ToolApproval
    | UserCancel
    | Rewound
    | MessageEdited
    | BranchSwitched
    | RetryRequested
    | PolicyChanged
    | ToolsChanged
    | DetailsChanged
    | ScheduleChanged
    | ProfileTransferred
    | CompactionRequested
    | DoubtResolved
    | CloseRequested
    | ProfileSelected
    | MemoryRecalled
    | LlmResponse
    | LlmFailed
    | LlmStopped
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
    | ToolInterrupted
    | CallRestricted
    | SubAgentAsked,
    Field(discriminator="type"),
]
"""Every event. Used to read one back by its `type`; the families below follow from it."""

REQUESTS = members(AnyEvent, Request)
BRANCHING = members(AnyEvent, _Branching)
ANSWERS = members(AnyEvent, Answer)
REPORTS = members(AnyEvent, Report)
EVENTS = members(AnyEvent, Event)

_KNOWN = frozenset(EVENTS)

E = TypeVar("E", bound=Event)


def exact(event: E) -> E:
    """The event as it will be read back from the log.

    Call this where foreign code hands in an event, since a pydantic model can be constructed without validation. Raises
    `ValueError` (pydantic's errors are such) for an event that does not hold what it declares. `Pure.`
    """
    kind = type(event)
    if kind not in _KNOWN:
        raise ValueError("this is not an event that a conversation knows")
    written = writer_of(kind).to_json(event, exclude_defaults=True, warnings="error")
    return kind.model_validate_json(written)
