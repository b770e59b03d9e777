"""Which models and profiles a conversation has when a turn begins: its engine may have been opened with others than
before.

They change at rest only, so that a turn ends with the models and profiles with which it began.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from ...effects.clock import Clock
from ...states.context import Context
from ...states.events import (
    AgentMessage,
    CompactionRequested,
    PolicyChanged,
    Request,
    RetryRequested,
    UserMessage,
    WakeUp,
)
from ...states.policy import Profile
from ...states.states import Failed, Idle, State
from .defaults import Defaults

_BEGINNINGS: Mapping[type[State], tuple[type[Request], ...]] = {
    Idle: (UserMessage, AgentMessage, WakeUp, CompactionRequested),
    Failed: (UserMessage, AgentMessage, WakeUp, CompactionRequested, RetryRequested),
}
"""The requests with which a conversation that rests in these states begins to work."""


@dataclass(frozen=True)
class Adoption:
    """Has the conversations of an engine adopt its models and its profiles."""

    defaults: Defaults

    def change_before(self, request: Request, state: State, context: Context, clock: Clock) -> PolicyChanged | None:
        """The event by which a conversation in this state changes its rules before the request; None if the request
        does not make it begin to work, or if it goes on under the rules that it has.

        One that follows its engine has the engine's models and profiles. One that chose its models keeps them as long
        as the engine has all of them; otherwise it follows the engine from then on. Chosen profiles are kept, but a
        profile loses a model that the engine lacks.
        """
        if not isinstance(request, _BEGINNINGS.get(type(state), ())):
            return None
        policy = context.policy
        chose_models, chose_profiles = self.defaults.keeps_models(context), self.defaults.keeps_profiles(context)
        models = policy.models if chose_models else self.defaults.models.chain
        profiles = policy.profiles if chose_profiles else self.defaults.profiles
        profiles = tuple(map(self._with_known_model, profiles))
        if (models, profiles) == (policy.models, policy.profiles):
            return None
        return PolicyChanged(
            event_id=str(uuid.uuid4()),
            at=clock.now(),
            policy=policy.model_copy(update={"models": models, "profiles": profiles}),
            chose_models=chose_models,
            chose_profiles=chose_profiles,
        )

    def _with_known_model(self, profile: Profile) -> Profile:
        lacks = profile.model is not None and not self.defaults.models.know([profile.model])
        return profile.replace(model=None) if lacks else profile
