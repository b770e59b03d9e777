"""Laws 8, 9 and 10: a turn can be stopped, a person can leave every state, and nothing leaves a closed conversation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import get_args

from ...states.events import (
    Answer,
    CloseRequested,
    DeadlineReached,
    DoubtResolved,
    Event,
    Request,
    RetryRequested,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ...states.states import (
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Closed,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    State,
)
from ...states.values.questions import Answers
from ..history import History
from ..law import LawBroken, require
from ..observation import observe

# --- 8: a turn can be stopped


def can_be_stopped(history: History) -> None:
    """Law 8: a cancel ends what is under way in a few steps, whether it is acknowledged or only time passes. Where
    nothing runs it does nothing, and it never affects another turn than it names."""
    event, before = history.newest.event, history.newest.before
    if isinstance(event, UserCancel):
        acts = history.newest.step is not None
        require(
            acts == _has_object(event, before),
            "a cancel was not taken exactly where something is under way",
            history,
        )
    if isinstance(history.state, Busy):
        for patient in (True, False):
            after = _stop(history, UserCancel, patient=patient)
            goes_on = bool(history.state.inbox) and after.book.turn == history.state.book.turn + 1
            waits = isinstance(history.state, Compacting) and history.state.failed is not None
            rests = isinstance(after, Closed | Failed if waits else Closed | Idle)
            require(rests or goes_on, "a cancelled turn goes on", history)


def _has_object(cancel: UserCancel, state: State) -> bool:
    """Whether what a person wants to stop is under way."""
    if isinstance(state, Idle | Failed | Closed | Cancelling) or cancel.turn not in (None, state.book.turn):
        return False
    return cancel.call_id in (None, state.waiting_call_id)


def _stop(history: History, kind: type[UserCancel | CloseRequested], *, patient: bool) -> State:
    """The state once what is under way has ended because a person stops it. Effects are acknowledged, or with `patient`
    the deadline passes instead."""
    state, context, at = history.state, history.context, history.newest.event.at
    turn = history.spending.turn
    wishes = _wishes(state, kind)
    for _ in range(4 + len(history.in_flight) + context.policy.parallel):
        wants = wishes and not (kind is UserCancel and isinstance(state, Cancelling))
        event = wishes.pop()(event_id="way out", at=at) if wants else _acknowledgement(state, at, patient)
        step = None if event is None else observe(state, event, context).step
        if step is None:
            break
        state = step.state
        if step.ended is not None:
            require(step.ended.turn == turn, "another turn ended", history)
        if step.ended is not None or turn is None:
            return state
    raise LawBroken(f"{state.type} cannot be stopped")


def _wishes(state: State, kind: type[UserCancel | CloseRequested]) -> list[type[UserCancel | CloseRequested]]:
    """The requests that a person has to make: none where it is stopping already; two cancels where a question is asked,
    since the turn may go on when a question is cancelled."""
    if isinstance(state, Cancelling) and (kind is UserCancel or state.closing):
        return []
    return [kind] * 2 if kind is UserCancel and isinstance(state, AwaitingUserResponse) else [kind]


def _acknowledgement(state: State, at: datetime, patient: bool) -> Event | None:
    if not isinstance(state, Cancelling):
        return None
    if patient:
        return DeadlineReached(effect_id=state.deadline.effect_id, at=at)
    return next(_acknowledgements(state, at), None)


def _acknowledgements(state: Cancelling, at: datetime) -> Iterator[Answer]:
    for effect_id, kind in state.in_flight().items():
        acknowledgement = kind.acknowledgement(effect_id, at)
        if acknowledgement is not None:
            yield acknowledgement


# --- 9: a person finds a way out


def can_be_left(history: History) -> None:
    """Law 9: in every state but Closed a person can go on, stop, and close for good."""
    state = history.state
    if isinstance(state, Closed):
        return
    for moves in _ways_on(state, history.newest.event.at):
        taken = [observe(state, move, history.context).step is not None for move in moves]
        require(all(taken), "what a person can do here is not taken", history)
    closed = _stop(history, CloseRequested, patient=True) if isinstance(state, Busy) else _close(history)
    require(isinstance(closed, Closed), "the conversation cannot be closed", history)


def _ways_on(state: State, at: datetime) -> Iterator[list[Request]]:
    """What a person must be able to do in a state."""
    if isinstance(state, Idle | Failed):
        yield [UserMessage(event_id="way out", at=at, text="Go on")]
    if isinstance(state, Failed):
        yield [RetryRequested(event_id="way out", at=at)]
    if state.waiting_call_id is not None:
        yield [_what_is_asked_for(state, at, state.waiting_call_id)]
    if isinstance(state, InDoubt):
        yield [_verdict(state, at, verdict) for verdict in get_args(DoubtResolved.model_fields["verdict"].annotation)]
    if isinstance(state, Busy) and not isinstance(state, Cancelling):
        yield [UserCancel(event_id="way out", at=at)]


def _what_is_asked_for(state: State, at: datetime, call_id: str) -> Request:
    asked = state.open_question
    if asked is None:
        return ToolApproval(event_id="way out", at=at, call_id=call_id, allowed=True)
    answers: Answers = {one.question: one.options[0].label if one.options else "Any" for one in asked.questions}
    return UserQuestionResponse(event_id="way out", at=at, answers=answers)


def _verdict(state: InDoubt, at: datetime, verdict: str) -> Request:
    given = {"event_id": "way out", "at": at, "call_id": state.call.call_id, "verdict": verdict}
    return DoubtResolved.model_validate(given)


def _close(history: History) -> State:
    close = CloseRequested(event_id="way out", at=history.newest.event.at)
    return observe(history.state, close, history.context).after


# --- 10: the end


def stays_closed(history: History) -> None:
    """Law 10: nothing leads out of Closed."""
    if isinstance(history.newest.before, Closed):
        require(history.newest.step is None, "an event was taken after the conversation was closed", history)
