"""STOP and ACKNOWLEDGED: a person or a program ends the turn, and what runs must confirm that it stopped."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort, CancelSubAgent, SpawnSubAgent
from ..events import Answer, CloseRequested, Event
from ..guards.crashes import is_imported
from ..state import State
from ..states import Cancelling
from ..step_builder import StepBuilder
from ..values.value import later
from .ending import leave_turn
from .rounds import close_round


def mark_closing(step: StepBuilder[State], event: CloseRequested, context: Context) -> None:
    """The conversation ends with this turn."""
    step.closing = True


def abort_work(step: StepBuilder[State], event: Event, context: Context) -> Cancelling:
    """What runs is told to stop and must confirm that before a deadline."""
    abort_all(step)
    deadline = step.start_timer(later(event.at, context.policy.cancel_deadline), "deadline_reached")
    return step.within_turn(Cancelling, round=step.round, deadline=deadline, closing=step.closing)


def abort_all(step: StepBuilder[State], spared: frozenset[int] = frozenset()) -> None:
    """Stop everything in flight, except for the effects in `spared`."""
    in_flight = step.state.in_flight()
    for effect_id in sorted(in_flight.keys() - spared):
        stop = CancelSubAgent if in_flight[effect_id] is SpawnSubAgent else Abort
        step.add_effect(stop(effect_id=effect_id))


def wait_for_others(step: StepBuilder[Cancelling], event: Event, context: Context) -> Cancelling:
    """Something has not confirmed yet that it stopped."""
    return step.same(turn=step.turn, round=step.round, resumes=step.resumes)


def end_cancelled(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn is over: every call that is left gets its result, and nothing in flight is awaited any longer."""
    stopping = step.state.round.effect_ids if isinstance(step.state, Cancelling) else frozenset()
    answered = {event.effect_id} if isinstance(event, Answer) else set()
    abort_all(step, stopping.union(answered))
    texts = context.policy.texts
    running = texts.in_doubt if is_imported(step, event, context) else texts.cancelled
    close_round(step, context, running=running, unrun=texts.skipped)
    step.conclude("cancelled")
    leave_turn(step, context)
