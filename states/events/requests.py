"""The events that people and programs send: messages, answers to questions, approvals, cancels and changes of rules."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from ..policy.policy import Policy, WhenBusy
from ..policy.roles import Role
from ..values.acts import Audience
from ..values.details import Metadata, Owner, Title
from ..values.history import HistoryMessage
from ..values.images import Images
from ..values.messages import Usage
from ..values.questions import Annotation, Answers, answers_as_json
from ..values.revision import CURRENT_REVISION, FIRST_REVISION, Revision
from ..values.schedule import Schedule
from ..values.value import Block, FilledText, Instant, RequestText, Text
from .family import Request


class _BringsRules(Request):
    """A request that brings a policy. The policy is written in full, so that a default that changes in a later version
    does not change the rules of an old log."""

    policy: Policy

    @model_serializer(mode="wrap")
    def _with_whole_policy(self, write: Any) -> dict[str, Any]:
        return {**write(self), "policy": self.policy.model_dump(mode="json")}


class Opened(_BringsRules):
    """The conversation begins. This is the first event of every log.

    `works_for` is the conversation for whose user a background agent works; `parent` is the conversation whose turn
    started a sub-agent. `chose_models` says that the application chose the models of the policy; otherwise the
    conversation follows the models of its engine. `chose_profiles` says the same of the profiles. `tools` are the names
    of the tools that the conversation may use, or None for all that its engine has. `owner`, `title` and `metadata` are
    the application's own. `messages` are a history from elsewhere that the conversation continues, and `repairs` says
    what was wrong with it. `depth` is how many agents are above this one: 0 where no turn of another agent started it.
    `schedule` says when the conversation wakes up, and `next_wake` when it does so first; a sub-agent has no schedule.
    `nonce` is drawn at random when the conversation is created, so that no two logs are the same.
    """

    type: Literal["opened"] = "opened"
    role: Role = "foreground"
    system: RequestText = ""
    policy: Policy = Policy()
    works_for: Text | None = None
    parent: Text | None = None
    chose_models: bool = False
    chose_profiles: bool = False
    tools: tuple[Text, ...] | None = None
    owner: Owner | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    messages: tuple[HistoryMessage, ...] = ()
    repairs: tuple[Text, ...] = ()
    depth: int = Field(default=0, ge=0)
    revision: Revision = CURRENT_REVISION
    schedule: Schedule | None = None
    next_wake: Instant | None = None
    nonce: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _first_revision(cls, stored: Any) -> Any:
        """An event that was stored names its type. One without a revision was stored before revisions existed."""
        if isinstance(stored, dict) and "type" in stored and "revision" not in stored:
            return {**stored, "revision": FIRST_REVISION}
        return stored

    @model_validator(mode="after")
    def _may_wake_up(self) -> Self:
        _check_wake(self.schedule, self.next_wake)
        if self.schedule is not None and self.role == "sub_agent":
            raise PydanticCustomError("schedule_of_sub_agent", "a sub-agent has no schedule")
        return self

    @model_serializer(mode="wrap")
    def _with_whole_policy(self, write: Any) -> dict[str, Any]:
        """The revision is always written, too, apart from the first, which stands in no log."""
        written = {**write(self), "policy": self.policy.model_dump(mode="json")}
        written.pop("revision", None)
        return written if self.revision == FIRST_REVISION else {**written, "revision": self.revision}


def _not_empty(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("message_empty", "a message must not be empty")
    return text


def _check_wake(schedule: Schedule | None, next_wake: datetime | None) -> None:
    if schedule is None and next_wake is not None:
        raise PydanticCustomError("wake_without_schedule", "a conversation without a schedule has no next wake-up")


class UserMessage(Request):
    """A message of a person: text, images, or both. `when_busy` says what happens to it during a turn; None leaves that
    to the policy."""

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
        """The text of the message. `Pure.`"""
        return (self.text,)


class AgentMessage(Request):
    """A message of another agent, `origin`, to this agent or to its user. A silent message starts no turn; the next
    turn reads it."""

    type: Literal["agent_message"] = "agent_message"
    origin: Text = Field(min_length=1, max_length=200)
    text: Annotated[RequestText, AfterValidator(_not_empty)]
    audience: Audience = "agent"
    silent: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of the message. `Pure.`"""
        return (self.text,)


ORIGIN_OF_WAKE_UPS = "schedule"
"""The agent that a model, and whoever reads the transcript, is told to have written a wake-up."""


class WakeUp(Request):
    """The moment `due` of the conversation's schedule has come; the one after it is `next_wake`, if there is one.

    `text` is the task of the schedule. The conversation reads it like the message of another agent. A wake-up that is
    not the one that the conversation waits for changes nothing.
    """

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

    @property
    def texts(self) -> tuple[str, ...]:
        """The task. `Pure.`"""
        return (self.text,)


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
    person. `usage` is what was spent on the answers that were under way and end with the turn."""

    type: Literal["user_cancel"] = "user_cancel"
    turn: int | None = None
    call_id: Text | None = None
    usage: Usage = Usage()


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
    """The title or the metadata of the conversation is replaced. None leaves it as it is."""

    type: Literal["details_changed"] = "details_changed"
    title: Title | None = None
    metadata: Metadata | None = None


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
