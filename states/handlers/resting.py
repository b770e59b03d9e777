"""The junction REST, and rows out of `Idle` and `Failed`: a turn begins, the rules change, or nothing is left to do."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..events import AgentMessage, CompactionRequested, Event, PolicyChanged, RetryRequested, UserMessage
from ..junctions.asking import compact_up_to
from ..junctions.beginning import begin_turn, return_to_senders
from ..state import State
from ..states import Closed, Compacting, Failed, Idle
from ..step_builder import StepBuilder
from .busy import waiting_for


def rest(step: StepBuilder[State], event: Event, context: Context) -> Idle:
    """Nothing is left to do; the silent messages that waited enter the transcript."""
    step.enter_transcript(step.inbox)
    return Idle(book=step.book)


def stay_failed(step: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The failed turn can still be tried again; the silent messages that waited enter the transcript."""
    failed = step.state.failed if isinstance(step.state, Compacting) else None
    assert failed is not None, "the guard of this branch finds a failed turn"
    step.enter_transcript(waiting for waiting in step.inbox if waiting.silent)
    return failed.replace(book=step.book, inbox=step.inbox)


def keep_waiting(step: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The messages that waited elsewhere begin no turn by themselves: they wait for a retry or for the next message."""
    step.enter_transcript(waiting for waiting in step.inbox if waiting.silent)
    sentence = context.policy.texts.imported
    return Failed(kind="interrupted", sentence=sentence, turn=step.turns, inbox=step.inbox, book=step.book)


def open_next_turn(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The messages that waited begin the next turn."""
    begin_turn(step, event.at, context)


def open_turn(step: StepBuilder[Idle | Failed], event: UserMessage | AgentMessage, context: Context) -> None:
    """The message begins a turn, together with the messages that wait since a turn failed."""
    step.inbox = (*step.inbox, waiting_for(step, event, context))
    begin_turn_from_rest(step, event.at, context)


def begin_turn_from_rest(step: StepBuilder[Idle | Failed], at: datetime, context: Context) -> None:
    """Begin a turn with what waits. In logs that began before revision 6 it also has to pass on what a failed turn did
    not; later ones keep that in the book."""
    begin_turn(step, at, context)
    take_over_relay(step)


def retry_turn(step: StepBuilder[Failed], event: RetryRequested, context: Context) -> None:
    """The failed turn is tried again as a turn of its own; its message is already in the transcript."""
    waiting, step.inbox = step.inbox, ()
    begin_turn(step, event.at, context)
    step.change_turn(tries_again=step.state.tried_again or step.state.turn, overdue=())
    step.inbox = waiting
    take_over_relay(step)


def take_over_relay(step: StepBuilder[Idle | Failed]) -> None:
    """Let this turn pass on the messages that the failed turn was to pass on to the user."""
    state = step.state
    if type(state) is Failed and state.relay:
        step.change_turn(relay=(*state.relay, *step.turn.relay))


def enter_silent_message(step: StepBuilder[Idle | Failed], event: AgentMessage, context: Context) -> Idle | Failed:
    """The message enters the transcript, and the next turn will see it."""
    step.persist(step.heard())
    return step.same()


def change_policy(step: StepBuilder[Idle | Failed], event: PolicyChanged, context: Context) -> Idle | Failed:
    """Other rules hold from now on: `Context.after` takes them over. If they do not have the profile that the
    conversation was handed to, it is handed to none."""
    if not event.policy.has_profile(step.profile):
        step.profile = ""
    return step.same()


def compact(step: StepBuilder[Idle | Failed], event: CompactionRequested, context: Context) -> Compacting:
    """Everything said so far is compacted, outside of any turn."""
    compacting = compact_up_to(step, step.seq)
    return compacting.replace(failed=step.state) if isinstance(step.state, Failed) else compacting


def close(step: StepBuilder[State], event: Event, context: Context) -> Closed:
    """The conversation ends. The messages that wait will never be answered, and those that are owed to the user never
    passed on; the agents that wrote some of them are told."""
    return_to_senders(step, (*step.owed, *step.inbox))
    step.owed = ()
    step.withdraw_inbox()
    step.wake = None
    return Closed(book=step.book)
