"""One thing that happened to a conversation: an event, the state that it met, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..states.context import Context
from ..states.effects import Effect
from ..states.errors import Refused
from ..states.events import Event, Opened
from ..states.machine import begin, transition
from ..states.states import AnyState, Idle
from ..states.step import Step

NOTHING = Idle()
"""The state of a conversation that has not begun: step 0, to which no conversation returns."""


@dataclass(frozen=True, repr=False)
class Observation:
    """An event, the state and context that it met, and the outcome. The repr is short, since a failing test shows a
    whole trace."""

    before: AnyState
    event: Event
    context: Context
    outcome: Step | Refused

    @property
    def step(self) -> Step | None:
        """The step that was taken: None if the event was refused or ignored."""
        return None if isinstance(self.outcome, Refused) or self.outcome.ignored else self.outcome

    @property
    def after(self) -> AnyState:
        """The state after the event."""
        return self.before if isinstance(self.outcome, Refused) else self.outcome.state

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that the step asks for."""
        return () if isinstance(self.outcome, Refused) else self.outcome.effects

    def __repr__(self) -> str:
        became = "refused" if isinstance(self.outcome, Refused) else "ignored" if self.step is None else self.after.type
        return f"<{self.before.type}, {self.event.to_json()} -> {became}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis would print all fields of a dataclass.
        printer.text(repr(self))


Trace = tuple[Observation, ...]
"""A conversation from its first event on, with everything that was refused or ignored."""


def observe(before: AnyState, event: Event, context: Context) -> Observation:
    """Put the event to the machine: to `transition`, or to `begin` where there is `NOTHING` yet. `Pure.`"""
    try:
        if before == NOTHING and isinstance(event, Opened):
            return Observation(before, event, context, begin(event))
        return Observation(before, event, context, transition(before, event, context))
    except Refused as refused:
        return Observation(before, event, context, refused)
