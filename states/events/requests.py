"""The requests of people and programs. The sender gives each an `event_id`, under which it is handled once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_serializer
from pydantic_core import PydanticCustomError

from ..policy.policy import Policy, WhenBusy
from ..policy.roles import Role
from ..values.acts import Audience
from ..values.images import Images
from ..values.questions import Annotation, Answers, answers_as_json
from ..values.value import Block, RequestText, Text
from .family import Request


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
    """A person says something, or shows images, or both. `when_busy` says what becomes of it during a turn; None leaves
    that to the policy."""

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
    by the next one."""

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
    """A person answers what was asked. `call_id`, if given, must be the call that asks now."""

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
    for a person now."""

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
