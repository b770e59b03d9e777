"""Rows of every state but `Closed`: the tools of later turns, the title and the metadata, or the profile are changed.

Each is a step of its own in which nothing else changes. `Context.after` takes the change over, except for the profile,
which stands in the state because tools can change it too.
"""

from __future__ import annotations

from ..context import Context
from ..errors import Refused
from ..events import DetailsChanged, ProfileTransferred, ToolsChanged
from ..state import State
from ..step_builder import StepBuilder


def change_tools(step: StepBuilder[State], event: ToolsChanged, context: Context) -> State:
    """Other tools are offered from the next turn on."""
    return step.same()


def change_details(step: StepBuilder[State], event: DetailsChanged, context: Context) -> State:
    """The conversation has another title, or other metadata."""
    return step.same()


def transfer(step: StepBuilder[State], event: ProfileTransferred, context: Context) -> State:
    """The conversation goes on under another profile from its next model request on."""
    step.profile = event.profile
    return step.same()


def unknown_profile(step: StepBuilder[State], event: ProfileTransferred, context: Context) -> Refused:
    """The refusal of a profile that the policy does not have. `Pure.`"""
    return Refused("unknown_profile", event.profile)
