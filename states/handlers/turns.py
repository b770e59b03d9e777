"""How a turn begins, what comes in during it, and how the conversation rests when it is over.

The junction REST, and the rows of the states without work for a model or a tool: a message, a retry or a wake-up begins
a turn, a profile and memory are found for it, messages enter and leave the inbox, and a turn that has already ended is
left, with a summary or without.

A change of the tools of later turns, of the title and the metadata, of the profile or of the schedule is a step of its
own in which nothing else changes. `Context.after` takes the change over, except for the profile, which stands in the
state because tools can change it too.
"""

from __future__ import annotations

from typing import Any

from ..context import Context
from ..effects import Abort
from ..errors import Refused
from ..events import (
    AgentMessage,
    Branching,
    CloseRequested,
    CompactionRequested,
    DetailsChanged,
    EffectFailed,
    Event,
    MemoryRecalled,
    MessageWithdrawn,
    PolicyChanged,
    ProfileSelected,
    ProfileTransferred,
    RetryRequested,
    ScheduleChanged,
    ToolsChanged,
    TurnSummarized,
    UserCancel,
    UserMessage,
    WakeUp,
    waiting,
)
from ..guards import is_leaving
from ..junctions import (
    begin_turn,
    compact_up_to,
    go_to_branch,
    leave_turn,
    mark_branch,
    return_to_senders,
)
from ..states import Busy, Closed, Compacting, Failed, Idle, MemoryRecalling, ProfileSelecting, State, Summarizing
from ..step_builder import StepBuilder
from ..values.turn import in_order


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
    _take_in(step, event, context)
    begin_turn(step, event.at, context)


def retry_turn(step: StepBuilder[Failed], event: RetryRequested, context: Context) -> None:
    """The failed turn is tried again as a turn of its own; its message is already in the transcript."""
    waiting, step.inbox = step.inbox, ()
    begin_turn(step, event.at, context)
    step.change_turn(tries_again=step.state.tried_again or step.state.turn, overdue=())
    if step.state.output_from is not None:
        step.change_turn(output_from=step.state.output_from)
    step.inbox = waiting


def change_branch(step: StepBuilder[State], event: Branching, context: Context) -> None:
    """The conversation goes to another branch at once, since nothing is under way."""
    mark_branch(step, event, context)
    go_to_branch(step, event, context)


def begin_elsewhere(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The messages of the branch begin a turn there. Those that wait begin turns of their own behind it."""
    assert step.goes_to is not None, "the guard of this branch has found where the conversation goes"
    waiting = tuple(one.replace(steer=False) for one in step.inbox)
    step.inbox = step.goes_to.messages
    begin_turn(step, event.at, context)
    step.inbox = in_order((*step.inbox, *waiting))


def why_branch_stays(step: StepBuilder[State], event: Branching, context: Context) -> Refused:
    """The reason why the conversation does not go to another branch. `Pure.`"""
    if context.has_one_task:
        return Refused("no_branches")
    return Refused("busy" if is_leaving(step.state) else "moved_on")


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


def note_heard(step: StepBuilder[State], event: UserCancel, context: Context) -> State:
    """The turn is over, or stopping already; what of it the user has not heard is cut."""
    step.note_heard(event)
    return step.same()


def interrupt(step: StepBuilder[Busy], event: UserMessage, context: Context) -> None:
    """The message waits until the turn has been stopped, and then begins the next one."""
    _take_in(step, event, context)


def keep_message(step: StepBuilder[Busy], event: UserMessage | AgentMessage, context: Context) -> Busy:
    """The message waits in the inbox: for the next turn, or, steered, for the next request of this turn."""
    _take_in(step, event, context)
    return step.same(inbox=step.inbox)


def _take_in(step: StepBuilder[Any], event: UserMessage | AgentMessage, context: Context) -> None:
    """The message waits in the inbox, and what it says of what the user has heard is noted."""
    if type(event) is UserMessage and event.heard is not None:
        step.note_heard(event)
    step.inbox = (*step.inbox, waiting(event, step.seq, context.policy.when_busy))


def withdraw_message(step: StepBuilder[Busy | Failed], event: MessageWithdrawn, context: Context) -> Busy | Failed:
    """The message leaves the inbox and will not be answered."""
    step.withdrawn = (event.message_id,)
    return step.same(inbox=tuple(waiting for waiting in step.inbox if waiting.event_id != event.message_id))


def change_schedule(step: StepBuilder[State], event: ScheduleChanged, context: Context) -> State:
    """The conversation wakes up at other moments, or no longer. A wake-up that waits in the inbox stays there."""
    step.wake = event.next_wake
    return step.same()


def wake_up(step: StepBuilder[Idle | Failed], event: WakeUp, context: Context) -> None:
    """The task of the schedule begins a turn, together with the messages that wait since a turn failed."""
    _enter_inbox(step, event, context)
    begin_turn(step, event.at, context)


def keep_wake_up(step: StepBuilder[Busy], event: WakeUp, context: Context) -> Busy:
    """The task waits in the inbox for a turn of its own."""
    _enter_inbox(step, event, context)
    return step.same(inbox=step.inbox)


def _enter_inbox(step: StepBuilder[State], event: WakeUp, context: Context) -> None:
    """At most one wake-up waits: the task does not become more urgent because the conversation has had no time for
    it."""
    step.wake = event.next_wake
    if not step.has_wake_up:
        step.inbox = (*step.inbox, waiting(event, step.seq, context.policy.when_busy))


def take_profile(step: StepBuilder[ProfileSelecting], event: ProfileSelected | EffectFailed, context: Context) -> None:
    """The turn goes on with the chosen profile, or with the first one if the policy does not know the choice."""
    if isinstance(event, ProfileSelected):
        step.spend(event.usage)
        if context.policy.has_profile(event.profile):
            step.change_turn(profile=event.profile)


def take_memory(step: StepBuilder[MemoryRecalling], event: MemoryRecalled | EffectFailed, context: Context) -> None:
    """The turn goes on with what was found, or without it."""
    if isinstance(event, MemoryRecalled):
        step.spend(event.usage)
        step.change_turn(memory=step.heard())


def change_tools(step: StepBuilder[State], event: ToolsChanged, context: Context) -> State:
    """Other tools are offered from the next turn on."""
    return step.same()


def change_details(step: StepBuilder[State], event: DetailsChanged, context: Context) -> State:
    """The conversation has another title, other metadata, or another system prompt."""
    return step.same()


def transfer(step: StepBuilder[State], event: ProfileTransferred, context: Context) -> State:
    """The conversation goes on under another profile from its next model request on."""
    step.profile = event.profile
    return step.same()


def unknown_profile(step: StepBuilder[State], event: ProfileTransferred, context: Context) -> Refused:
    """The refusal of a profile that the policy does not have. `Pure.`"""
    return Refused("unknown_profile", event.profile)


def take_summary(step: StepBuilder[Summarizing], event: TurnSummarized | EffectFailed, context: Context) -> None:
    """The summary, if it holds text, is displayed for the turn. It changes neither what was said to the user nor what a
    sub-agent answers."""
    step.ending = step.state.ending
    if isinstance(event, TurnSummarized):
        step.spend(event.usage)
    leave_turn(step, context)
    if isinstance(event, TurnSummarized) and event.summary.strip():
        step.show_summary(step.heard())


def stop(step: StepBuilder[Summarizing], event: Event, context: Context) -> None:
    """Only the summary is stopped, since the turn had already ended."""
    step.add_effect(Abort(effect_id=step.state.effect_id))
    step.ending = step.state.ending
    leave_turn(step, context)


def leave_summary(step: StepBuilder[Summarizing], event: Branching, context: Context) -> None:
    """The summary is stopped, and the conversation goes to another branch."""
    stop(step, event, context)
    change_branch(step, event, context)


def cancel_summary(step: StepBuilder[Summarizing], event: UserCancel, context: Context) -> None:
    """Only the summary is stopped, and what the user has not heard of the turn is cut."""
    step.note_heard(event)
    stop(step, event, context)


def interrupt_summary(step: StepBuilder[Summarizing], event: UserMessage, context: Context) -> None:
    """Only the summary is stopped, and the message begins the next turn."""
    interrupt(step, event, context)
    stop(step, event, context)


def close_summary(step: StepBuilder[Summarizing], event: CloseRequested, context: Context) -> None:
    """The summary is stopped, and the conversation ends."""
    stop(step, event, context)
    step.closing = True
