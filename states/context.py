"""What a transition may read besides the state and the event."""

from __future__ import annotations

from .events import Event, Opened, PolicyChanged
from .policy.policy import Policy
from .policy.roles import Role
from .values.value import Value

CHANGES_CONTEXT = (Opened, PolicyChanged)
"""The events that change the context. To compute the context of a log, all other events can be left out."""


class Context(Value):
    """What holds for the whole conversation: its role, its system prompt, its rules, and the agents that it works
    for."""

    role: Role = "foreground"
    system: str = ""
    policy: Policy = Policy()
    works_for: str | None = None
    parent: str | None = None

    def after(self, event: Event) -> Context:
        """The context after this event. This is the only place where a context changes.

        When a log is folded, call this beside `transition`; `transition` takes the context from *before* the event.
        `Pure.`
        """
        match event:
            case Opened(role=role, system=system, policy=policy, works_for=works_for, parent=parent):
                return Context(role=role, system=system, policy=policy, works_for=works_for, parent=parent)
            case PolicyChanged(policy=policy):
                return self.replace(policy=policy)
            case _:
                return self
