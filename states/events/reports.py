"""The events by which a process reports what a crash interrupted, and what a sub-agent asks."""

from __future__ import annotations

from typing import Literal

from ..values.questions import QuestionSet
from ..values.value import Instant, Text
from .family import Report


class Resumed(Report):
    """A process takes over the conversation. `open` lists the effects in flight that nobody carries out any more, apart
    from those of calls that were reported as interrupted before. An empty list stands for all that is in flight."""

    type: Literal["resumed"] = "resumed"
    open: tuple[int, ...] = ()


class ToolInterrupted(Report):
    """The call `call_id` was running when the process died."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    call_id: Text


class SubAgentAsked(Report):
    """The sub-agent that the effect `effect_id` started asks the user, by its call `call_id`, since the moment `since`;
    or, if `questions` is None, it no longer asks by that call."""

    type: Literal["sub_agent_asked"] = "sub_agent_asked"
    effect_id: int
    call_id: Text
    questions: QuestionSet | None = None
    since: Instant | None = None
