"""BEGIN_TURN and AFTER_PROFILE: how a turn finds its profile and its memory before the model is asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ..context import Context
from ..effects import RecallMemory, SelectProfile, SendToAgent
from ..events import Event
from ..guards.turns import may_search
from ..policy.policy import Recent
from ..state import State
from ..states import MemoryRecalling, ProfileSelecting
from ..step_builder import StepBuilder
from ..values.inbox import Owed, Waiting
from ..values.messages import Heard
from ..values.revision import AGENTS, ANSWERS_OR_SAYS_WHY, KEEPS_RELAYS
from ..values.turn import TurnRecord
from .again import asked_again


def begin_turn(step: StepBuilder[State], at: datetime, context: Context) -> None:
    """Begin a turn with the first messages that wait. Those behind them begin turns of their own, even if they were to
    be steered into the turn that is over."""
    profiles = context.policy.profiles
    step.begin_turn(at, step.profile or (profiles[0].name if profiles else ""))
    mail = [one for one in step.take_batch() if one.audience is not None and not one.silent]
    if step.inbox:
        step.inbox = tuple(waiting.replace(steer=False) for waiting in step.inbox)
    if step.owed:
        _take_over_what_is_owed(step, at, context)
    if not mail:
        return
    relay = [one for one in mail if one.audience == "user"]
    if relay and context.role == "foreground":
        _owe(step, relay, at, context)
    owes_nothing = context.policy.relay == "prompt_only" and context.revision >= ANSWERS_OR_SAYS_WHY
    if context.revision >= AGENTS and (owes_nothing or any(one.audience == "agent" for one in mail)):
        step.change_turn(internal=True)


def _take_over_what_is_owed(step: StepBuilder[State], at: datetime, context: Context) -> None:
    """Let the turn pass on what earlier turns did not. The agents whose messages have lapsed are told."""
    deadline = context.policy.relay_deadline
    if any(at < one.since for one in step.owed):  # the clock was set back: their time is counted from now
        step.owed = tuple(one.replace(since=min(one.since, at)) for one in step.owed)
    lapsed = tuple(one for one in step.owed if one.has_lapsed(at, deadline))
    if lapsed:
        return_to_senders(step, lapsed)
        step.owed = tuple(one for one in step.owed if one not in lapsed)
    overdue = tuple(one.said for one in step.owed)
    step.change_turn(relay=overdue, overdue=overdue)


def _owe(step: StepBuilder[State], mail: Iterable[Waiting], at: datetime, context: Context) -> None:
    """Let the turn pass these messages on to the user, and keep them until that is done."""
    owed = tuple(Owed(said=Heard(seq=one.seq), since=at, origin=one.origin) for one in mail)
    if context.revision >= KEEPS_RELAYS:
        step.owed = (*step.owed, *owed)
    step.change_turn(relay=(*step.turn.relay, *(one.said for one in owed)))


def return_to_senders(step: StepBuilder[State], unread: Iterable[Waiting | Owed]) -> None:
    """Tell the agents that wrote these messages that nobody will read them."""
    for one in unread:
        if one.origin:
            said = one.said if isinstance(one, Owed) else Heard(seq=one.seq)
            step.add_effect(
                SendToAgent(effect_id=step.next_id(), target=one.origin, said=said, silent=True, returned=True)
            )


def select_profile(step: StepBuilder[State], event: Event, context: Context) -> ProfileSelecting:
    """The router chooses a profile."""
    effect_id = step.next_id()
    step.add_effect(SelectProfile(effect_id=effect_id))
    return step.within_turn(ProfileSelecting, effect_id=effect_id)


def recall(step: StepBuilder[State], event: Event, context: Context) -> MemoryRecalling:
    """What belongs to the turn is looked up: the last minutes, older conversations, documents."""
    effect_id = step.next_id()
    step.add_effect(recall_effect(effect_id, step.turn, context))
    return step.within_turn(MemoryRecalling, effect_id=effect_id)


def recall_effect(effect_id: int, turn: TurnRecord, context: Context) -> RecallMemory:
    """The search that this turn wants. `Pure.`"""
    policy = context.policy
    return RecallMemory(
        effect_id=effect_id,
        profile=turn.profile,
        search=may_search(turn, policy),
        recent=policy.dialogue.seconds if isinstance(policy.dialogue, Recent) else None,
        documents=policy.documents,
    )


@asked_again(RecallMemory)
def _recall_again(state: MemoryRecalling, effect_id: int, at: datetime, context: Context) -> RecallMemory:
    """The search that the turn of this state wants. `Pure.`"""
    return recall_effect(effect_id, state.turn, context)
