"""The promises that every conversation keeps, each as a function that finds where one is broken.

A law looks at a `History`, that is, at the newest event and all that an onlooker knows by then, and raises
`LawBroken` with a sentence. `check_laws` holds a whole trace to all of them. The numbers are those of the list of laws
in docs/machine.md; a law about things that a conversation does not have yet is not here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from ..states.context import Context
from ..states.effects import AnyEffect, ExecuteTool, RequestLlm
from ..states.errors import Refused
from ..states.events import (
    REQUESTS,
    Answer,
    AnyEvent,
    CloseRequested,
    DeadlineReached,
    Event,
    Request,
    ToolAborted,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..states.machine import next_events
from ..states.messages import Message
from ..states.policy import Limits
from ..states.states import (
    AnyState,
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Closed,
    Failed,
    Idle,
    LlmRequesting,
    RetryWaiting,
    State,
    ToolExecuting,
    pending,
)
from ..states.step import Step
from ..states.value import Value
from .history import History, Observation, Spent, histories, observe

Law: TypeAlias = Callable[[History], None]


class LawBroken(AssertionError):
    """A conversation did what none may do."""


def check_laws(trace: Iterable[Observation], *laws: Law) -> None:
    """Hold each step of a trace to the laws given, or to all. The trace begins with the first event.

    Raises `LawBroken` at the first step that breaks one.
    """
    for history in histories(trace):
        check_newest(history, *laws)


def check_newest(history: History, *laws: Law) -> None:
    """Hold the newest step to the laws given, or to all. Raises `LawBroken`."""
    for law in laws or LAWS:
        law(history)


def _require(holds: bool, sentence: str, history: History) -> None:
    if not holds:
        newest = history.newest
        raise LawBroken(f"{newest.event.type} in {newest.before.type}, step {len(history.observations)}: {sentence}")


# --- 1 and 2: a function


def is_taken_or_refused(history: History) -> None:
    """Law 1: every event gives a step, is ignored, or is refused with one sentence; and nothing that came in changed."""
    newest = history.newest
    copies = [newest.before, newest.event, newest.context]
    copies = [value.model_copy(deep=True) for value in copies]
    observe(newest.before, newest.event, newest.context)
    _require(copies == [newest.before, newest.event, newest.context], "what came in was changed", history)
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
        ended = None if isinstance(newest.outcome, Refused) else newest.outcome.ended
        _require(ended is None, "nothing happened, and yet a turn ended", history)
    else:
        _require(newest.after.book.seq == newest.before.book.seq + 1, "a step is counted once", history)


def takes_answers_by_their_effect(history: History) -> None:
    """Law 5: an answer is taken if its effect is in flight, once, and otherwise changes nothing; none is refused."""
    newest = history.newest
    if not isinstance(newest.event, Answer):
        return
    _require(not isinstance(newest.outcome, Refused), "an answer was refused", history)
    if newest.step is not None:
        _require(history.answered is not None, "an answer was taken whose effect is not in flight", history)
    else:
        awaited = newest.before.awaited().get(newest.event.effect_id, ())
        _require(type(newest.event) not in awaited, "an answer that is waited for was ignored", history)


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
    """Law 6: one model request at a time, no more tools than the policy says, and an exclusive call alone."""
    requests = [effect for effect in history.in_flight.values() if isinstance(effect, RequestLlm)]
    tools = [effect.call for effect in history.in_flight.values() if isinstance(effect, ExecuteTool)]
    _require(len(requests) <= 1, "two model requests are in flight", history)
    _require(not (requests and tools), "a model request is in flight beside tools", history)
    _require(len(tools) <= history.context.policy.parallel, "more tools run than the policy allows", history)
    _require(len(tools) <= 1 or not any(call.exclusive for call in tools), "an exclusive call has company", history)


def waits_for_something(history: History) -> None:
    """Law 7: what a state waits for is what is in flight, and only a person is waited for without a timer."""
    state = history.state
    _require(history.faults == [], "; ".join(history.faults), history)
    _require(pending(state) == history.in_flight.keys(), "it waits for something else than is in flight", history)
    _require(all(effect_id < state.book.next_effect for effect_id in history.started), "an id is free again", history)
    if isinstance(state, AwaitingUserResponse):
        wanted = history.context.policy.questions.deadline is not None
        _require((state.deadline is not None) == wanted, "the deadline is not what the policy says", history)
    elif isinstance(state, Busy):
        _require(bool(history.in_flight), "it is busy and waits for nothing", history)


# --- 8, 9 and 10: ways out


def can_be_stopped(history: History) -> None:
    """Law 8: a cancel ends the turn in a few steps, whether the tools acknowledge or only time passes; where nothing
    runs it does nothing, and it never reaches another turn than it names."""
    newest = history.newest
    if isinstance(newest.event, UserCancel):
        late = newest.event.turn is not None and newest.event.turn != newest.before.book.turn
        idle = isinstance(newest.before, Idle | Failed | Closed | Cancelling)
        if late or idle:
            _require(newest.step is None, "a cancel with nothing to act on did something", history)
        else:
            _require(newest.step is not None, "a cancel was ignored", history)
    if isinstance(history.state, Busy):
        for patient in (True, False):
            rest = _stop(history, UserCancel, patient=patient)
            _require(isinstance(rest, Idle | Closed), "a cancelled turn does not end at rest", history)


def can_be_left(history: History) -> None:
    """Law 9: from every state but Closed a person finds a way out: to go on, and to close for good."""
    state = history.state
    if isinstance(state, Closed):
        return
    context, at = history.context, history.newest.event.at
    moves = {UserMessage, UserQuestionResponse, UserCancel, CloseRequested}
    _require(not moves.isdisjoint(next_events(state)), "a person has no way on", history)
    close = CloseRequested(event_id="way out", at=at)
    closed = _stop(history, CloseRequested, patient=True) if isinstance(state, Busy) else observe(state, close, context).after
    _require(isinstance(closed, Closed), "closing does not close", history)
    if isinstance(state, AwaitingUserResponse):
        answers = {question.question: question.options[0].label for question in state.questions}
        response = UserQuestionResponse(event_id="way out", at=at, answers=answers)
        _require(observe(state, response, context).step is not None, "no answer is accepted", history)


def stays_closed(history: History) -> None:
    """Law 10: nothing leads out of Closed."""
    if isinstance(history.newest.before, Closed):
        _require(history.newest.step is None, "something happened after the end", history)


def _stop(history: History, kind: type[UserCancel | CloseRequested], *, patient: bool) -> State:
    """Where the turn rests that a person wants to end, while the world only acknowledges (or is `patient` and lets
    the deadline pass)."""
    state, context, at = history.state, history.context, history.newest.event.at
    turn = state.book.turn
    # A cancelled question may let the turn go on, so that it takes a second cancel; each tool takes one step more.
    for _ in range(3 + context.policy.parallel):
        event = kind(event_id="way out", at=at) if _takes(state, kind) else _acknowledgement(state, at, patient)
        step = observe(state, event, context).step
        if step is None:
            break
        if step.ended is not None:
            _require(step.ended.turn == turn, "another turn ended", history)
            return step.state
        state = step.state
    raise LawBroken(f"{state.type} cannot be stopped")


def _takes(state: State, kind: type[UserCancel | CloseRequested]) -> bool:
    """Whether it is up to the person, and not to the world, to move on."""
    return not isinstance(state, Cancelling) or (kind is CloseRequested and not state.closing)


def _acknowledgement(state: State, at: datetime, patient: bool) -> Event:
    assert isinstance(state, Cancelling)
    if patient:
        return DeadlineReached(effect_id=state.deadline.effect_id, at=at)
    return ToolAborted(effect_id=min(pending(state) - {state.deadline.effect_id}), at=at)


# --- 11 and 12: what a turn comes to


def ends_each_turn_once(history: History) -> None:
    """Law 11: the step that leaves a turn, and no other, says that it ended, how, and what all of it cost."""
    newest = history.newest
    if newest.step is None:
        return
    ended = newest.step.ended
    begins = newest.after.book.turn > newest.before.book.turn
    leaves = (begins or isinstance(newest.before, Busy)) and not isinstance(newest.after, Busy)
    _require((ended is not None) == leaves, "a turn ended without a word, or a word without an end", history)
    if ended is not None:
        _require(ended.turn == newest.after.book.turn, "another turn ended", history)
        _require((ended.status == "failed") == isinstance(newest.after, Failed), "a failure rests in Failed", history)
        _require(ended.usage == history.cost_of_turn, "the cost is not what the requests cost", history)


def keeps_within_limits(history: History) -> None:
    """Law 12: requests and calls never exceed their limit, and nothing new is started once the rest is spent. Both
    count anew with whatever a person does; a request that is sent again is the same request."""
    spent, limits = history.spent, history.newest.context.policy.limits
    effects = history.newest.effects
    requests = [effect for effect in effects if isinstance(effect, RequestLlm)]
    tools = [effect for effect in effects if isinstance(effect, ExecuteTool)]
    if spent is None or not (requests or tools):
        return
    if tools and limits.tool_calls is not None:
        _require(spent.tool_calls <= limits.tool_calls, "more calls than the limit", history)
    if requests:
        _require(spent.requests <= limits.requests, "more requests than the limit", history)
        last = limits.last == "answer_now" and spent.requests == limits.requests
        _require((requests[0].tool_choice == "none") == last, "the last request is not what the limit says", history)
    if not history.sends_again:
        _require(not _is_used_up(spent, limits, history.newest.event.at), "started although all is spent", history)


def _is_used_up(spent: Spent, limits: Limits, at: datetime) -> bool:
    return (
        (limits.tokens is not None and spent.usage.tokens >= limits.tokens)
        or (limits.cost is not None and (spent.usage.cost or 0.0) >= limits.cost)
        or (limits.seconds is not None and (at - spent.since).total_seconds() >= limits.seconds)
    )


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
    hands_on_answers_exactly,
)
"""All laws, in the order of their numbers."""
