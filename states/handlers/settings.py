"""Rows of every state but `Closed`: the tools of later turns, or the title and the metadata, are changed.

Each is a step of its own in which nothing else changes; `Context.after` takes the change over.
"""

from __future__ import annotations

from ..context import Context
from ..events import DetailsChanged, ToolsChanged
from ..state import State
from ..step_builder import StepBuilder


def change_tools(step: StepBuilder[State], event: ToolsChanged, context: Context) -> State:
    """Other tools are offered from the next turn on."""
    return step.same()


def change_details(step: StepBuilder[State], event: DetailsChanged, context: Context) -> State:
    """The conversation has another title, or other metadata."""
    return step.same()
