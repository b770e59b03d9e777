"""The reports of whoever takes up a conversation after its process died. They answer nothing."""

from __future__ import annotations

from typing import Literal

from ..values.value import Text
from .family import Report


class Resumed(Report):
    """A process takes the conversation up again; `open` are the effects that were in flight when the last one died."""

    type: Literal["resumed"] = "resumed"
    open: tuple[int, ...] = ()


class ToolInterrupted(Report):
    """This call was running when the process died."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    call_id: Text
