"""Everything that can happen to a conversation, as plain data, in three families.

A *request* comes from a person or a program. The sender gives it an `event_id`, so that a request that is delivered
twice is handled once. An *answer* is the outcome of an effect and names that effect; each effect has one answer. A
*report* tells of something that is under way and answers nothing: what a crash interrupted, what a sub-agent asks.
Every event says when it happened, because the machine has no clock.

What a conversation asks for in return is in `effects`.
"""

from __future__ import annotations

from typing import Annotated, TypeVar, cast

from pydantic import Field

from ..values.value import members
from .answers import (
    AskUserQuestionPending as AskUserQuestionPending,
    DeadlineReached as DeadlineReached,
    EffectFailed as EffectFailed,
    HistoryCompacted as HistoryCompacted,
    LlmFailed as LlmFailed,
    LlmResponse as LlmResponse,
    MemoryRecalled as MemoryRecalled,
    ProfileSelected as ProfileSelected,
    RecentText as RecentText,
    RetryDue as RetryDue,
    SubAgentFinished as SubAgentFinished,
    ToolAborted as ToolAborted,
    ToolComplete as ToolComplete,
    ToolReconciled as ToolReconciled,
    TurnSummarized as TurnSummarized,
    WorkVerified as WorkVerified,
)
from .family import (
    Answer as Answer,
    AnswerTypes as AnswerTypes,
    Event as Event,
    Report as Report,
    Request as Request,
)
from .reports import (
    CallRestricted as CallRestricted,
    Resumed as Resumed,
    SubAgentAsked as SubAgentAsked,
    ToolInterrupted as ToolInterrupted,
)
from .requests import (
    AgentMessage as AgentMessage,
    CloseRequested as CloseRequested,
    CompactionRequested as CompactionRequested,
    DetailsChanged as DetailsChanged,
    DoubtResolved as DoubtResolved,
    MessageWithdrawn as MessageWithdrawn,
    Opened as Opened,
    PolicyChanged as PolicyChanged,
    ProfileTransferred as ProfileTransferred,
    Resolution as Resolution,
    RetryRequested as RetryRequested,
    ScheduleChanged as ScheduleChanged,
    ToolApproval as ToolApproval,
    ToolsChanged as ToolsChanged,
    UserCancel as UserCancel,
    UserMessage as UserMessage,
    UserQuestionResponse as UserQuestionResponse,
    WakeUp as WakeUp,
)

AnyEvent = Annotated[
    Opened
    | UserMessage
    | AgentMessage
    | WakeUp
    | MessageWithdrawn
    | UserQuestionResponse
    | ToolApproval
    | UserCancel
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
    # Each answer comes through here, so pydantic-core is called without what `model_dump_json` and a union add to it.
    written = event.__pydantic_serializer__.to_json(event, exclude_defaults=True, warnings="error")
    return cast(E, kind.__pydantic_validator__.validate_json(written))
