"""What can happen to a conversation.

Three families come in by the same door. *Requests* come from people and programs; each carries an `event_id` made by
whoever sends it, so that the same request delivered twice is handled once. *Answers* come from the world; each names
the effect that it answers, and one effect has one answer. *Reports* come from whoever takes up a conversation after its
process died; they answer nothing. Every event says when it happened: the machine has no clock of its own.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from ..values.value import members
from .answers import (
    AskUserQuestionPending as AskUserQuestionPending,
)
from .answers import (
    DeadlineReached as DeadlineReached,
)
from .answers import (
    EffectFailed as EffectFailed,
)
from .answers import (
    HistoryCompacted as HistoryCompacted,
)
from .answers import (
    LlmFailed as LlmFailed,
)
from .answers import (
    LlmResponse as LlmResponse,
)
from .answers import (
    MemoryRecalled as MemoryRecalled,
)
from .answers import (
    ProfileSelected as ProfileSelected,
)
from .answers import (
    RecentText as RecentText,
)
from .answers import (
    RetryDue as RetryDue,
)
from .answers import (
    SubAgentFinished as SubAgentFinished,
)
from .answers import (
    ToolAborted as ToolAborted,
)
from .answers import (
    ToolComplete as ToolComplete,
)
from .answers import (
    ToolReconciled as ToolReconciled,
)
from .answers import (
    TurnSummarized as TurnSummarized,
)
from .answers import (
    WorkVerified as WorkVerified,
)
from .family import (
    Answer as Answer,
)
from .family import (
    AnswerTypes as AnswerTypes,
)
from .family import (
    Event as Event,
)
from .family import (
    Report as Report,
)
from .family import (
    Request as Request,
)
from .reports import (
    Resumed as Resumed,
)
from .reports import (
    ToolInterrupted as ToolInterrupted,
)
from .requests import (
    AgentMessage as AgentMessage,
)
from .requests import (
    CloseRequested as CloseRequested,
)
from .requests import (
    CompactionRequested as CompactionRequested,
)
from .requests import (
    DoubtResolved as DoubtResolved,
)
from .requests import (
    MessageWithdrawn as MessageWithdrawn,
)
from .requests import (
    Opened as Opened,
)
from .requests import (
    PolicyChanged as PolicyChanged,
)
from .requests import (
    Resolution as Resolution,
)
from .requests import (
    RetryRequested as RetryRequested,
)
from .requests import (
    ToolApproval as ToolApproval,
)
from .requests import (
    UserCancel as UserCancel,
)
from .requests import (
    UserMessage as UserMessage,
)
from .requests import (
    UserQuestionResponse as UserQuestionResponse,
)

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
