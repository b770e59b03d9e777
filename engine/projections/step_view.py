"""The steps of a log as people look at them: what happened, what was asked for, and the state after it.

A log holds events and effects; states are computed again from them, and so is the way that a step took through the
table of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...states.context import Context
from ...states.effects import RequestLlm
from ...states.events import Opened
from ...states.grammar import Junction, Row
from ...states.machine import branches_for, entry_for
from ...states.transcript import Transcript
from .replayed_steps import ReplayedStep
from .updates.state_view import StateView, view_of


@dataclass(frozen=True, kw_only=True)
class StepView:
    """The step `seq` of a log: the `event` that came in at the moment `at`, the `effects` that it led to, and the
    `state` in which the conversation rested then.

    `event` and `effects` are JSON objects as an export has them, each with its `type`. `turn` is the newest turn after
    the step. `passed` are the names of the junctions of the table that the step went through, in order. `requests` are
    the ids of the effects that ask a model for the next answer.
    """

    seq: int
    at: datetime
    turn: int
    event: dict[str, Any]
    effects: tuple[dict[str, Any], ...]
    state: StateView
    passed: tuple[str, ...] = ()
    requests: tuple[int, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON; the state as in an update `state_change`."""
        return {
            "seq": self.seq,
            "at": self.at.isoformat(),
            "turn": self.turn,
            "event": self.event,
            "effects": list(self.effects),
            "state": self.state.data,
            "passed": list(self.passed),
            "requests": list(self.requests),
        }


def step_view(step: ReplayedStep, context: Context, transcript: Transcript) -> StepView:
    """Return what people see of a step; `context` and `transcript` are those after it. `Pure.`"""
    entry = step.entry
    return StepView(
        seq=entry.seq,
        at=entry.event.at,
        turn=entry.turn,
        event=entry.event.model_dump(mode="json", exclude_defaults=True),
        effects=tuple(effect.model_dump(mode="json", exclude_defaults=True) for effect in entry.effects),
        state=view_of(step.after, transcript, context.policy),
        passed=tuple(_passed(step)),
        requests=tuple(effect.effect_id for effect in entry.effects if isinstance(effect, RequestLlm)),
    )


def _passed(step: ReplayedStep) -> Iterator[str]:
    """Yield the names of the junctions that the step went through."""
    event = step.entry.event
    if isinstance(event, Opened):
        return
    row = entry_for(step.before, event, step.context)
    if isinstance(row, Row):
        targets = (row.to, *(branch.to for branch in branches_for(step.before, event, step.context)))
        yield from (target.name for target in targets if isinstance(target, Junction))
