"""The steps of a log as people look at them: what happened, what was asked for, and the state after it.

A log holds events and effects; states are computed again from them, and so is the way that a step took through the
table of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...persistence.errors import Damaged
from ...states.context import Context
from ...states.effects import RequestLlm
from ...states.errors import Refused
from ...states.events import Opened
from ...states.grammar import Junction, Row
from ...states.log import LogEntry
from ...states.machine import branches_for, entry_for
from ...states.projections.transcript import Transcript
from ...states.states import AnyState, Idle
from .replayed_steps import ReplayedStep, replayed_steps
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


class LogPosition:
    """A place in a log, up to which its steps were computed. It moves on with `views`."""

    def __init__(self) -> None:
        self.seq = 0
        self._state: AnyState = Idle()
        self._context = Context()
        self._transcript = Transcript()

    def views(self, entries: Iterable[LogEntry], after: int) -> tuple[StepView, ...]:
        """Move on over the entries that follow this place, and return those behind the step `after`.

        Raises `Damaged` at the first step that does not come out as it was stored: another version of the state machine
        wrote it. The place is of no use then.
        """
        return tuple(self._views(entries, after))

    def _views(self, entries: Iterable[LogEntry], after: int) -> Iterator[StepView]:
        for step in self._checked(replayed_steps(entries, self._state, self._context)):
            self.seq, self._state, self._context = step.entry.seq, step.after, step.context.after(step.entry.event)
            self._transcript.add(step.entry)
            if self.seq > after:
                yield _view(step, self._context, self._transcript)

    def _checked(self, steps: Iterator[ReplayedStep]) -> Iterator[ReplayedStep]:
        try:
            for step in steps:
                if step.after.book.seq != step.entry.seq or step.effects != step.entry.effects:
                    raise _diverging(step.entry.seq)
                yield step
        except Refused:
            raise _diverging(self.seq + 1) from None


def _diverging(seq: int) -> Damaged:
    return Damaged(seq, f"Step {seq} was made by another version of the state machine.")


def _view(step: ReplayedStep, context: Context, transcript: Transcript) -> StepView:
    """Return a step; `context` and `transcript` are those after it."""
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
