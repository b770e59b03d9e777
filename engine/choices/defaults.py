"""What an engine gives to conversations that choose nothing: its models and its profiles."""

from __future__ import annotations

from dataclasses import dataclass

from ...states.context import Context
from ...states.policy import Profile
from ...states.values.value import NAMES_PROFILES
from .models import Models


@dataclass(frozen=True)
class Defaults:
    """The models and the profiles of conversations that follow their engine."""

    models: Models
    profiles: tuple[Profile, ...] = ()

    def keeps_models(self, context: Context) -> bool:
        """Whether a conversation goes on with the models that it has. It follows the engine if it chose none, or if the
        engine lacks one of them."""
        return context.chose_models and self.models.know(context.policy.models)

    def keeps_profiles(self, context: Context) -> bool:
        """Whether a conversation goes on with the profiles that it has, because it chose them. A log that began before
        this was noted keeps the profiles that it has; without any it follows the engine."""
        was_noted = context.revision >= NAMES_PROFILES
        return context.chose_profiles or (bool(context.policy.profiles) and not was_noted)
