"""REST, and out of `Idle` and `Failed`: a turn begins, the rules change, or nothing is left to do."""

from __future__ import annotations

from ..context import Context
from ..events import AgentMessage, CompactionRequested, Event, PolicyChanged, RetryRequested, UserMessage
from ..states import Closed, Compacting, Failed, Idle, State
from ..step_builder import StepBuilder
from .asking import condense_up_to
from .beginning import begin_turn
from .busy import waiting_for


def rest(draft: StepBuilder[State], event: Event, context: Context) -> Idle:
    """Nothing is left to do until somebody says something; what wakes nobody enters now (case D6)."""
    draft.let_in(draft.inbox)
    return Idle(book=draft.book)


def stay_failed(draft: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The failed turn can still be tried again, and what woke nobody before wakes nobody now."""
    failed = draft.state.failed if isinstance(draft.state, Compacting) else None
    assert failed is not None, "the guard of this branch asks whether a turn had failed"
    draft.let_in(waiting for waiting in draft.inbox if waiting.silent)
    return failed.replace(book=draft.book, inbox=draft.inbox)


def open_next_turn(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """What waited begins the next turn."""
    begin_turn(draft, event.at, context)


def open_turn(draft: StepBuilder[Idle | Failed], event: UserMessage | AgentMessage, context: Context) -> None:
    """A message begins a turn; what waits since a turn that failed begins it together with this one."""
    draft.inbox = (*draft.inbox, waiting_for(draft, event, context))
    begin_turn(draft, event.at, context)
    take_over_relay(draft)


def retry_turn(draft: StepBuilder[Failed], event: RetryRequested, context: Context) -> None:
    """What failed is tried again, as a turn of its own: its message already stands in the transcript."""
    waiting, draft.inbox = draft.inbox, ()
    begin_turn(draft, event.at, context)
    draft.change_turn(tries_again=draft.state.tried_again or draft.state.turn)
    draft.inbox = waiting
    take_over_relay(draft)


def take_over_relay(draft: StepBuilder[Idle | Failed]) -> None:
    """What the failed turn was to pass on to the user, this one must."""
    if isinstance(draft.state, Failed) and draft.state.relay:
        draft.change_turn(relay=(*draft.state.relay, *draft.turn.relay))


def hear_silently(draft: StepBuilder[Idle | Failed], event: AgentMessage, context: Context) -> Idle | Failed:
    """The message enters, and the next turn will see it; nobody is woken (case D6)."""
    draft.say(draft.heard())
    return draft.same()


def change_policy(draft: StepBuilder[Idle | Failed], event: PolicyChanged, context: Context) -> Idle | Failed:
    """Other rules hold from here on; `Context.after` is where they enter."""
    return draft.same()


def condense(draft: StepBuilder[Idle | Failed], event: CompactionRequested, context: Context) -> Compacting:
    """Everything said so far is condensed, outside of any turn."""
    compacting = condense_up_to(draft, draft.seq)
    return compacting.replace(failed=draft.state) if isinstance(draft.state, Failed) else compacting


def close(draft: StepBuilder[State], event: Event, context: Context) -> Closed:
    """Nothing is left to do, ever; what waits will never be answered."""
    draft.withdraw_all()
    return Closed(book=draft.book)
