"""The promises that every conversation keeps, each as a function that finds where one is broken.

A law looks at a `History`, that is, at the newest event and all that an onlooker knows by then, and raises
`LawBroken` with a sentence. `check_laws` holds a whole trace to all of them. Numbers that are missing belong to what a
conversation does not have yet (deliveries, children) and to the table, which its own tests hold to its law.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from ..states.context import Context
from ..states.effects import AnyEffect, Effect, ExecuteTool, RequestLlm, StartTimer
from ..states.errors import Refused
from ..states.events import (
    DEADLINE_TIMER,
    MODEL_ANSWERS,
    RETRY_TIMER,
    TOOL_ANSWERS,
    Answer,
    AnyEvent,
    CloseRequested,
    DeadlineReached,
    Event,
    Request,
    ToolAborted,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..states.machine import next_events
from ..states.messages import Message, Usage
from ..states.policy import Limits
from ..states.questions import Answers
from ..states.states import (
    AnyState,
    AwaitingPerson,
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Closed,
    Failed,
    Idle,
    State,
    pending,
)
from ..states.value import Value
from .history import History, Observation, Spent, histories, observe
from .report import tell

Law: TypeAlias = Callable[[History], None]


class LawBroken(AssertionError):
    """A conversation did what none may do."""


def check_laws(trace: Iterable[Observation], *laws: Law) -> None:
    """Hold each step of a trace to the laws given, or to all. The trace begins with the first event.

    Raises `LawBroken` at the first step that breaks one, with a note that tells the trace as a program.
    """
    history = History()
    for history in histories(trace):
        check_newest(history, *laws)
    if not laws:
        check_newest(history, is_replayed_by_its_log)


def check_newest(history: History, *laws: Law) -> None:
    """Hold the newest step to the laws given, or to all.

    Raises `LawBroken`, with a note that tells the trace as a program. What a law of your own raises gets that note too.
    """
    for law in laws or LAWS:
        try:
            law(history)
        except Exception as broken:
            tell(broken, history.observations, law)
            raise


def _require(holds: bool, sentence: str, history: History) -> None:
    if not holds:
        newest = history.newest
        raise LawBroken(f"{newest.event.type} in {newest.before.type}, step {len(history.observations)}: {sentence}")


# --- 1 and 2: a function


def is_taken_or_refused(history: History) -> None:
    """Law 1: every event gives a step, is ignored, or is refused with one sentence; nothing that came in is changed."""
    newest = history.newest
    given = (newest.before, newest.event, newest.context)
    copies = tuple(value.model_copy(deep=True) for value in given)
    observe(*given)
    _require(copies == given, "what came in was changed", history)
    if isinstance(newest.outcome, Refused):
        _require(isinstance(newest.event, Request), "only a request may be refused", history)
        _require(bool(newest.outcome.sentence), "a refusal says why in a sentence", history)


def is_deterministic(history: History) -> None:
    """Law 2: the same again gives the same, and all of it survives being written as JSON and read back."""
    newest = history.newest
    again = observe(newest.before, newest.event, newest.context)
    _require(_comparable(again) == _comparable(newest), "the same again gave something else", history)
    for family, value in _written(newest):
        _require(family.validate_json(value.to_json()) == value, f"a {value!r:.40} is not exact in JSON", history)


def is_replayed_by_its_log(history: History) -> None:
    """Law 2, for the whole: the events that were taken, alone, lead to the same state and the same transcript."""
    replayed = History()
    for entry in history.log:
        replayed.take(entry.event)
    _require(replayed.state == history.state, "the log leads to another state", history)
    _require(replayed.transcript == history.transcript, "the log tells of other words", history)


def _comparable(observation: Observation) -> object:
    outcome = observation.outcome
    return (outcome.code, outcome.subject) if isinstance(outcome, Refused) else outcome


def _written(observation: Observation) -> Iterator[tuple[TypeAdapter[Any], Value]]:
    yield _adapter(AnyState), observation.after
    yield _adapter(AnyEvent), observation.event
    yield _adapter(Context), observation.context
    for effect in observation.effects:
        yield _adapter(AnyEffect), effect
    if observation.step is not None and observation.step.ended is not None:
        yield _adapter(type(observation.step.ended)), observation.step.ended


@cache
def _adapter(family: Any) -> TypeAdapter[Any]:
    return TypeAdapter(family)


# --- 3 and 5: what does not count


def changes_nothing_unless_taken(history: History) -> None:
    """Law 3: what is refused or ignored leaves the state equal and emits nothing; each step goes on from the last."""
    newest = history.newest
    if len(history.observations) > 1:
        _require(newest.before == history.observations[-2].after, "it does not go on from the step before", history)
    if newest.step is None:
        _require(newest.after == newest.before, "nothing happened, and yet the state changed", history)
        _require(newest.effects == (), "nothing happened, and yet something is wanted", history)
        honest = isinstance(newest.outcome, Refused) or not (newest.outcome.ended or newest.outcome.withdrawn)
        _require(honest, "nothing happened, and yet a turn ended or a message is gone", history)
    else:
        _require(newest.after.book.seq == newest.before.book.seq + 1, "a step is counted once", history)


def takes_answers_by_their_effect(history: History) -> None:
    """Law 5: an answer is taken if its effect is in flight, once, and otherwise changes nothing; none is refused."""
    newest = history.newest
    if not isinstance(newest.event, Answer):
        return
    _require(not isinstance(newest.outcome, Refused), "an answer was refused", history)
    if newest.step is not None:
        answered = history.answered
        _require(answered is not None, "an answer was taken whose effect is not in flight", history)
        _require(type(newest.event) in _answers_to(answered), "an answer was taken that is none to its effect", history)
    else:
        awaited = newest.before.awaited().get(newest.event.effect_id, ())
        _require(type(newest.event) not in awaited, "an answer that is waited for was ignored", history)


def _answers_to(effect: Effect | None) -> tuple[type[Answer], ...]:
    match effect:
        case RequestLlm():
            return MODEL_ANSWERS
        case ExecuteTool():
            return TOOL_ANSWERS
        case StartTimer(wakes="retry_due"):
            return RETRY_TIMER
        case _:
            return DEADLINE_TIMER


# --- 4: calls and results


def pairs_calls_with_results(history: History) -> None:
    """Law 4: in every model request and at rest, each call has one result, in call order, directly behind its
    message."""
    newest = history.newest
    asks = any(isinstance(effect, RequestLlm) for effect in newest.effects)
    if asks or isinstance(newest.after, Idle | Failed | Closed):
        fault = unpaired(history.transcript)
        _require(fault is None, f"{fault} in what the model is sent", history)


def unpaired(transcript: Iterable[Message]) -> str | None:
    """What is wrong with the pairing of calls and results, or None. `Pure.`"""
    expected: list[str] = []
    for message in transcript:
        if message.role == "tool":
            if not expected or message.tool_call_id != expected.pop(0):
                return f"the result of the call {message.tool_call_id} is not where it belongs"
        elif expected:
            return f"the call {expected[0]} has no result"
        else:
            expected = [call.call_id for call in message.tool_calls]
    return f"the call {expected[0]} has no result" if expected else None


# --- 6 and 7: what is in flight


def runs_no_more_than_allowed(history: History) -> None:
    """Law 6: one model request at a time, no more tools than the policy says, an exclusive call alone, and nothing
    that a person must allow and did not."""
    requests = [effect for effect in history.in_flight.values() if isinstance(effect, RequestLlm)]
    tools = [effect.call for effect in history.in_flight.values() if isinstance(effect, ExecuteTool)]
    _require(len(requests) <= 1, "two model requests are in flight", history)
    _require(not (requests and tools), "a model request is in flight beside tools", history)
    _require(len(tools) <= history.context.policy.parallel, "more tools run than the policy allows", history)
    _require(len(tools) <= 1 or not any(call.exclusive for call in tools), "an exclusive call has company", history)
    unasked = [call.call_id for call in tools if call.approval and call.call_id not in history.allowed]
    _require(unasked == [], "a call runs that nobody allowed", history)


def waits_for_something(history: History) -> None:
    """Law 7: what a state waits for is what is in flight, and only a person is waited for without a timer."""
    state = history.state
    _require(history.faults == [], "; ".join(history.faults), history)
    _require(pending(state) == history.in_flight.keys(), "it waits for something else than is in flight", history)
    _require(all(effect_id < state.book.next_effect for effect_id in history.started), "an id is free again", history)
    if isinstance(state, AwaitingPerson):
        policy = history.context.policy
        seconds = policy.questions.deadline if isinstance(state, AwaitingUserResponse) else policy.approval_deadline
        armed = state.deadline is not None
        _require(armed == (seconds is not None), "the deadline is not what the policy says", history)
    elif isinstance(state, Busy):
        _require(bool(history.in_flight), "it is busy and waits for nothing", history)


# --- 8, 9 and 10: ways out


def can_be_stopped(history: History) -> None:
    """Law 8: a cancel ends the turn in a few steps, whether the tools acknowledge or only time passes; where nothing
    runs it does nothing, and it never reaches another turn than it names."""
    event, before = history.newest.event, history.newest.before
    if isinstance(event, UserCancel):
        acts = history.newest.step is not None
        _require(acts == _has_object(event, before), "a cancel acts where there is something", history)
    if isinstance(history.state, Busy):
        for patient in (True, False):
            after = _stop(history, UserCancel, patient=patient)
            goes_on = bool(history.state.inbox) and after.book.turn == history.state.book.turn + 1
            _require(isinstance(after, Idle | Closed) or goes_on, "a cancelled turn goes on", history)


def _has_object(cancel: UserCancel, state: State) -> bool:
    """Whether what a person wants to stop is there to be stopped."""
    if isinstance(state, Idle | Failed | Closed | Cancelling) or cancel.turn not in (None, state.book.turn):
        return False
    return cancel.call_id is None or (isinstance(state, AwaitingPerson) and cancel.call_id == state.call.call_id)


def can_be_left(history: History) -> None:
    """Law 9: from every state but Closed a person finds a way out: to go on, and to close for good."""
    state = history.state
    if isinstance(state, Closed):
        return
    at = history.newest.event.at
    moves = {UserMessage, UserQuestionResponse, ToolApproval, UserCancel, CloseRequested}
    _require(not moves.isdisjoint(next_events(state)), "a person has no way on", history)
    closed = _stop(history, CloseRequested, patient=True) if isinstance(state, Busy) else _close(history)
    _require(isinstance(closed, Closed), "closing does not close", history)
    if isinstance(state, AwaitingPerson):
        response = _what_is_asked_for(state, at)
        _require(observe(state, response, history.context).step is not None, "no answer is accepted", history)


def _what_is_asked_for(state: AwaitingPerson, at: datetime) -> Request:
    if not isinstance(state, AwaitingUserResponse):
        return ToolApproval(event_id="way out", at=at, call_id=state.call.call_id, allowed=True)
    answers: Answers = {question.question: question.options[0].label for question in state.questions}
    return UserQuestionResponse(event_id="way out", at=at, answers=answers)


def _close(history: History) -> State:
    close = CloseRequested(event_id="way out", at=history.newest.event.at)
    return observe(history.state, close, history.context).after


def stays_closed(history: History) -> None:
    """Law 10: nothing leads out of Closed."""
    if isinstance(history.newest.before, Closed):
        _require(history.newest.step is None, "something happened after the end", history)


def _stop(history: History, kind: type[UserCancel | CloseRequested], *, patient: bool) -> State:
    """Where the turn rests that a person wants to end, while the world only acknowledges (or is `patient` and lets
    the deadline pass)."""
    state, context, at = history.state, history.context, history.newest.event.at
    turn = state.book.turn
    wishes = [] if isinstance(state, Cancelling) and (kind is UserCancel or state.closing) else [kind]
    if kind is UserCancel and isinstance(state, AwaitingUserResponse):
        wishes.append(kind)  # a cancelled question may let the turn go on; then it takes a second cancel
    for _ in range(3 + context.policy.parallel):
        event = wishes.pop()(event_id="way out", at=at) if wishes else _acknowledgement(state, at, patient)
        step = None if event is None else observe(state, event, context).step
        if step is None:
            break
        if step.ended is not None:
            _require(step.ended.turn == turn, "another turn ended", history)
            return step.state
        state = step.state
    raise LawBroken(f"{state.type} cannot be stopped")


def _acknowledgement(state: State, at: datetime, patient: bool) -> Event | None:
    if not isinstance(state, Cancelling):
        return None
    if patient:
        return DeadlineReached(effect_id=state.deadline.effect_id, at=at)
    return ToolAborted(effect_id=min(pending(state) - {state.deadline.effect_id}), at=at)


# --- 12: what a turn comes to, and what it may use up


def ends_each_turn_once(history: History) -> None:
    """Every turn ends once: the step that leaves it, and no other, says so, and what all of the turn cost."""
    newest = history.newest
    if newest.step is None:
        return
    ended, before, after = newest.step.ended, newest.before, newest.after
    open_turns = isinstance(before, Busy) + after.book.turn - before.book.turn
    ends = open_turns - isinstance(after, Busy)
    _require(ends == (ended is not None), "a turn ended without a word, or a word without an end", history)
    if ended is not None:
        _require(ended.turn == (before if isinstance(before, Busy) else after).book.turn, "another turn ended", history)
        _require((ended.status == "failed") == isinstance(after, Failed), "a failure rests in Failed", history)
        cost = history.costs.get(ended.turn, Usage())
        _require(ended.usage == cost, "the cost is not what the requests cost", history)


def keeps_within_limits(history: History) -> None:
    """Law 12: requests and calls never exceed their limit, and nothing new is started once the rest is spent. Both
    count anew with whatever a person does; a request that is sent again is the same request."""
    spent, limits = history.spent, history.newest.context.policy.limits
    effects = history.newest.effects
    requests = [effect for effect in effects if isinstance(effect, RequestLlm)]
    tools = [effect for effect in effects if isinstance(effect, ExecuteTool)]
    if tools and limits.tool_calls is not None:
        _require(spent.tool_calls <= limits.tool_calls, "more calls than the limit", history)
    if requests:
        _require(spent.requests <= limits.requests, "more requests than the limit", history)
        last = limits.last == "answer_now" and spent.requests == limits.requests
        _require((requests[0].tool_choice == "none") == last, "the last request is not what the limit says", history)
    if (requests or tools) and not history.sends_again:
        _require(not _is_used_up(spent, limits, history.newest.event.at), "started although all is spent", history)


def _is_used_up(spent: Spent, limits: Limits, at: datetime) -> bool:
    return (
        (limits.tokens is not None and spent.usage.tokens >= limits.tokens)
        or (limits.cost is not None and (spent.usage.cost or 0.0) >= limits.cost)
        or (limits.seconds is not None and (at - spent.since).total_seconds() >= limits.seconds)
    )


# --- 13: what was said meanwhile


def loses_no_message(history: History) -> None:
    """Law 13: what a person said entered the transcript, was withdrawn or still waits, and only one of these, once."""
    waiting = [message.seq for message in getattr(history.state, "inbox", ())]
    for seq, event_id in history.messages.items():
        places = history.entered[seq] + history.withdrawn[event_id] + waiting.count(seq)
        _require(places == 1, f"the message of step {seq} is in {places} places", history)
    _require(waiting == sorted(waiting), "what waits is out of order", history)


# --- 16: answers of people


def hands_on_answers_exactly(history: History) -> None:
    """Law 16: what a person answered, in any script, reaches the model as valid JSON that reads back equal."""
    newest = history.newest
    if not isinstance(newest.event, UserQuestionResponse) or newest.step is None:
        return
    assert isinstance(newest.before, AwaitingUserResponse)
    if newest.context.policy.questions.answer != "json":
        return
    asked = newest.before.call.call_id
    result = next(message for message in reversed(history.transcript) if message.tool_call_id == asked)
    sent = {text: list(a) if isinstance(a, tuple) else a for text, a in newest.event.answers.items()}
    _require(json.loads(result.text)["answers"] == sent, "the model reads other answers than were given", history)


LAWS: tuple[Law, ...] = (
    is_taken_or_refused,
    is_deterministic,
    changes_nothing_unless_taken,
    pairs_calls_with_results,
    takes_answers_by_their_effect,
    runs_no_more_than_allowed,
    waits_for_something,
    can_be_stopped,
    can_be_left,
    stays_closed,
    ends_each_turn_once,
    keeps_within_limits,
    loses_no_message,
    hands_on_answers_exactly,
)
"""All laws, in the order of their numbers."""
