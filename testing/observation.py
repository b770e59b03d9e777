"""One thing that happened to a conversation: an event that met a state, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..states.context import Context
from ..states.effects import Effect
from ..states.errors import Refused
from ..states.events import Event, Opened
from ..states.machine import begin, transition
from ..states.states import Idle, State
from ..states.step import Step

NOTHING = Idle()
"""Where a conversation rests that has not begun: at step 0, which no conversation reaches again."""


@dataclass(frozen=True, repr=False)
class Observation:
    """One event that met a state, and what became of it. Its repr is short: a failing test shows a trace."""

    before: State
    event: Event
    context: Context
    outcome: Step | Refused

    @property
    def step(self) -> Step | None:
        """The step that was taken: None if the event was refused or ignored."""
        return None if isinstance(self.outcome, Refused) or self.outcome.ignored else self.outcome

    @property
    def after(self) -> State:
        """The state in which the conversation rests now."""
        return self.before if isinstance(self.outcome, Refused) else self.outcome.state

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was wanted."""
        return () if isinstance(self.outcome, Refused) else self.outcome.effects

    def __repr__(self) -> str:
        became = "refused" if isinstance(self.outcome, Refused) else "ignored" if self.step is None else self.after.type
        return f"<{self.before.type}, {self.event.to_json()} -> {became}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis would print all fields of a dataclass.
        printer.text(repr(self))


Trace = tuple[Observation, ...]
"""A conversation from its first event on, with all that was refused or ignored."""


def observe(before: State, event: Event, context: Context) -> Observation:
    """Let the event happen: by `transition`, or where there is `NOTHING` yet by `begin`. `Pure.`"""
    try:
        if before == NOTHING and isinstance(event, Opened):
            return Observation(before, event, context, begin(event))
        return Observation(before, event, context, transition(before, event, context))
    except Refused as refused:
        return Observation(before, event, context, refused)
