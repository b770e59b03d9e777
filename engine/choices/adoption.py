"""Which models a conversation asks when a turn begins: its engine may have been opened with others than before."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from ...effects.clock import Clock
from ...states.context import Context
from ...states.events import PolicyChanged
from ...states.policy.policy import Profile
from .models import Models


@dataclass(frozen=True)
class ModelAdoption:
    """Has the conversations of an engine adopt its models."""

    models: Models

    def change(self, context: Context, clock: Clock) -> PolicyChanged | None:
        """The event by which a conversation at rest changes its rules, or None if it goes on under those that it has.

        One that follows its engine asks the engine's models. One that chose its models keeps them as long as the engine
        has all of them; otherwise it follows the engine from then on. A profile loses a model that the engine lacks.
        """
        policy = context.policy
        chose_models = context.chose_models and self.models.know(policy.models)
        models = policy.models if chose_models else self.models.chain
        lost = [profile for profile in policy.profiles if self._lacks_model_of(profile)]
        if models == policy.models and not lost:
            return None
        profiles = tuple(profile.replace(model=None) if profile in lost else profile for profile in policy.profiles)
        return PolicyChanged(
            event_id=str(uuid.uuid4()),
            at=clock.now(),
            policy=policy.model_copy(update={"models": models, "profiles": profiles}),
            chose_models=chose_models,
        )

    def _lacks_model_of(self, profile: Profile) -> bool:
        return profile.model is not None and not self.models.know([profile.model])
