"""The events by which a process that takes over a conversation reports what a crash interrupted."""

from __future__ import annotations

from typing import Literal

from ..values.value import Text
from .family import Report


class Resumed(Report):
    """A process takes over the conversation. `open` lists the effects that were in flight when the last process
    died."""

    type: Literal["resumed"] = "resumed"
    open: tuple[int, ...] = ()


class ToolInterrupted(Report):
    """The call `call_id` was running when the process died."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    call_id: Text
