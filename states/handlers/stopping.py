"""STOP: a person or a host ends the turn; what runs must acknowledge before it is over."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort, CancelSubAgent, SpawnSubAgent
from ..events import Answer, CloseRequested, Event
from ..states import Cancelling, State
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.value import later
from .awaiting_sub_agents import settle_children
from .ending import leave_turn


def mark_closing(draft: StepBuilder[State], event: CloseRequested, context: Context) -> None:
    """The conversation ends with this turn."""
    draft.closing = True


def abort_work(draft: StepBuilder[State], event: Event, context: Context) -> Cancelling:
    """Tell what runs to stop, and wait for it, but not for ever."""
    abort_all(draft)
    deadline = draft.arm(later(event.at, context.policy.cancel_deadline), "deadline_reached")
    return draft.within_turn(Cancelling, round=draft.open_round, deadline=deadline, closing=draft.closing)


def abort_all(draft: StepBuilder[State], spared: frozenset[int] = frozenset()) -> None:
    """Nothing that is in flight is wanted any more, but for what is spared."""
    in_flight = draft.state.in_flight()
    for effect_id in sorted(in_flight.keys() - spared):
        stop = CancelSubAgent if in_flight[effect_id] is SpawnSubAgent else Abort
        draft.act(stop(effect_id=effect_id))


def wait_for_others(draft: StepBuilder[Cancelling], event: Event, context: Context) -> Cancelling:
    """Something has not acknowledged yet."""
    return draft.same(turn=draft.turn, round=draft.open_round, resumes=draft.resumes)


def end_cancelled(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn is over: every call left gets its result, and what is still in flight is no longer wanted (case P6)."""
    told = draft.state.round.effect_ids if isinstance(draft.state, Cancelling) else frozenset()
    answered = {event.effect_id} if isinstance(event, Answer) else set()
    abort_all(draft, told.union(answered))
    texts = context.policy.texts
    close_round(draft, context, running=texts.cancelled, unrun=texts.skipped)
    draft.conclude("cancelled")
    leave_turn(draft, context)


def close_round(draft: StepBuilder[State], context: Context, *, running: str, unrun: str) -> None:
    """Every call without a result gets one: what ran, what a crash left in doubt, what never began."""
    if draft.round is None:
        return
    texts = context.policy.texts
    for call in draft.round.running:
        text = running if call.reconciling is None else texts.in_doubt
        draft.settle(call.call_id, Made(text=text), error=True)
    draft.refuse_calls([draft.round.named(call_id) for call_id in draft.round.doubtful], texts.in_doubt)
    settle_children(draft, context, texts.child_cancelled)
    draft.settle_unrun(unrun)
    draft.set_round(None)
