"""What a transition may look at besides state and event."""

from __future__ import annotations

from .events import Event, Opened, PolicyChanged
from .policy.policy import Policy
from .policy.roles import Role
from .values.value import Value

CHANGES_CONTEXT = (Opened, PolicyChanged)
"""The events that change a context. Who only wants the context of a log may leave out all others."""


class Context(Value):
    """The standing facts of a conversation: who it is to others, its system prompt and its rules."""

    role: Role = "foreground"
    system: str = ""
    policy: Policy = Policy()
    works_for: str | None = None
    parent: str | None = None

    def after(self, event: Event) -> Context:
        """The context once this event was taken: the only place where a context changes.

        Whoever folds a log folds this beside `transition`, with the context from *before* the event for the transition.
        `Pure.`
        """
        match event:
            case Opened(role=role, system=system, policy=policy, works_for=works_for, parent=parent):
                return Context(role=role, system=system, policy=policy, works_for=works_for, parent=parent)
            case PolicyChanged(policy=policy):
                return self.replace(policy=policy)
            case _:
                return self
