"""What a transition may look at besides state and event."""

from __future__ import annotations

from .events import Event, Opened, PolicyChanged
from .policy import Policy
from .value import Value


class Context(Value):
    """The standing facts of a conversation: its system prompt and its rules."""

    system: str = ""
    policy: Policy = Policy()

    def after(self, event: Event) -> Context:
        """The context once this event was taken: the only place where a context changes.

        Whoever folds a log folds this beside `transition`, with the context from *before* the event for the
        transition. `Pure.`
        """
        match event:
            case Opened(system=system, policy=policy):
                return Context(system=system, policy=policy)
            case PolicyChanged(policy=policy):
                return self.model_copy(update={"policy": policy})
            case _:
                return self
