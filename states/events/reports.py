"""The events by which a process reports what a crash interrupted, and what a sub-agent asks."""

from __future__ import annotations

from typing import Literal

from ..values.messages import Approver, CrashContract
from ..values.questions import QuestionSet
from ..values.value import Instant, Text
from .family import Report


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
