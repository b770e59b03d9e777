"""Rows out of `ProfileSelecting` and `MemoryRecalling`: the turn has what it needs, or goes on without it."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, MemoryRecalled, ProfileSelected
from ..states import MemoryRecalling, ProfileSelecting
from ..step_builder import StepBuilder


def take_profile(step: StepBuilder[ProfileSelecting], event: ProfileSelected | EffectFailed, context: Context) -> None:
    """The turn goes on with the chosen profile, or with the first one if the policy does not know the choice."""
    if isinstance(event, ProfileSelected):
        step.spend(event.usage)
        if context.policy.has_profile(event.profile):
            step.change_turn(profile=event.profile)


def take_memory(step: StepBuilder[MemoryRecalling], event: MemoryRecalled | EffectFailed, context: Context) -> None:
    """The turn goes on with what was found, or without it."""
    if isinstance(event, MemoryRecalled):
        step.spend(event.usage)
        step.change_turn(memory=step.heard())
