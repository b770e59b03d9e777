"""Laws 1 to 7 and 16: a step is a function of its input, and what comes of the calls of a response.

What is refused or ignored changes nothing. What is asked for is in flight, and is answered once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from pydantic import TypeAdapter

from ...states.context import Context
from ...states.effects import (
    TOOL_RUNS,
    AnswerSubAgent,
    AnyEffect,
    ExecuteTool,
    ReconcileTool,
    RequestLlm,
    ResumeTool,
    SpawnSubAgent,
    StartTimer,
)
from ...states.errors import Refused
from ...states.events import Answer, AnyEvent, Report, Request, UserQuestionResponse
from ...states.policy import Policy
from ...states.states import (
    AnyState,
    AwaitingPerson,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Closed,
    Failed,
    Idle,
    InDoubt,
    State,
)
from ...states.values.messages import Message
from ...states.values.value import Record, Value, adapter_of, later
from ..history import History, Observation, observe, require

# --- 4: calls and results


def is_taken_or_refused(history: History) -> None:
    """Law 1: every event gives a step, is ignored, or is refused with one sentence; no input is changed."""
    newest = history.newest
    given = (newest.before, newest.event, newest.context)
    copies = tuple(deepcopy(value) for value in given)
    observe(*given)
    require(copies == given, "an input was changed", history)
    if isinstance(newest.outcome, Refused):
        require(isinstance(newest.event, Request), "an event was refused that is not a request", history)
        require(bool(newest.outcome.sentence), "a refusal has no sentence", history)


def is_deterministic(history: History) -> None:
    """Law 2: the same input gives the same outcome, and everything survives being written as JSON and read back."""
    newest = history.newest
    again = observe(newest.before, newest.event, newest.context)
    require(_comparable(again) == _comparable(newest), "the same input gave another outcome", history)
    for family, value in _written(newest):
        read = family.validate_json(value.to_json())
        require(read == value, f"a {value!r:.40} is not read from JSON as it was written", history)
        require(read.to_json() == value.to_json(), f"a {value!r:.40} is written differently after it was read", history)


def _comparable(observation: Observation) -> object:
    outcome = observation.outcome
    return (outcome.code, outcome.subject) if isinstance(outcome, Refused) else outcome


def _written(observation: Observation) -> Iterator[tuple[TypeAdapter[Any], Value | Record]]:
    yield adapter_of(AnyState), observation.after
    yield adapter_of(AnyEvent), observation.event
    yield adapter_of(Context), observation.context
    for effect in observation.effects:
        yield adapter_of(AnyEffect), effect
    if observation.step is not None and observation.step.ended is not None:
        yield adapter_of(type(observation.step.ended)), observation.step.ended


def is_replayed_by_its_log(history: History) -> None:
    """Law 2, for a whole log: the events that were taken lead to the same state and the same transcript."""
    replayed = History()
    for entry in history.log:
        replayed.take(entry.event)
    require(replayed.state == history.state, "the log leads to another state", history)
    require(replayed.transcript == history.transcript, "the log leads to another transcript", history)


def changes_nothing_unless_taken(history: History) -> None:
    """Law 3: what is refused or ignored leaves the state equal and emits nothing; no step is skipped."""
    newest = history.newest
    if len(history.observations) > 1:
        require(
            newest.before == history.observations[-2].after, "the step does not start from the state before", history
        )
    if newest.step is None:
        require(newest.after == newest.before, "a refused or ignored event changed the state", history)
        require(newest.effects == (), "a refused or ignored event has effects", history)
        honest = isinstance(newest.outcome, Refused) or not (newest.outcome.ended or newest.outcome.withdrawn)
        require(honest, "an ignored event ended a turn or withdrew a message", history)
    else:
        require(newest.after.book.seq == newest.before.book.seq + 1, "a step is not counted once", history)


def pairs_calls_with_results(history: History) -> None:
    """Law 4: in every model request and at rest, each call has one result, in call order, directly after its message:
    in the whole transcript, and in what is left of it when it is condensed."""
    newest = history.newest
    asks = any(isinstance(effect, RequestLlm) for effect in newest.effects)
    if asks or isinstance(newest.after, Idle | Failed | Closed):
        for messages in (history.transcript, history.current):
            fault = unpaired(messages)
            require(fault is None, f"{fault} in what the model is sent", history)


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


def takes_answers_by_their_effect(history: History) -> None:
    """Law 5: an answer is taken once, if its effect is in flight, and otherwise changes nothing. Answers and reports
    are never refused."""
    newest = history.newest
    if isinstance(newest.event, Answer | Report):
        require(not isinstance(newest.outcome, Refused), "an answer or a report was refused", history)
    if not isinstance(newest.event, Answer):
        return
    if newest.step is not None:
        answered = history.effects.answered
        require(answered is not None, "an answer was taken whose effect is not in flight", history)
        answers = () if answered is None else answered.answers
        require(type(newest.event) in answers, "an answer was taken whose type does not fit its effect", history)
    else:
        awaited = newest.before.awaited().get(newest.event.effect_id, ())
        require(type(newest.event) not in awaited, "an awaited answer was ignored", history)


def runs_no_more_than_allowed(history: History) -> None:
    """Law 6: one model request at a time, no more tools than the policy allows, an exclusive call alone, and no call
    that a person must allow and has not allowed."""
    flying = history.in_flight.values()
    requests = [effect for effect in flying if isinstance(effect, RequestLlm)]
    running = [effect for effect in flying if isinstance(effect, ExecuteTool | ResumeTool | ReconcileTool)]
    tools = [effect.call for effect in running]
    children = [effect for effect in flying if isinstance(effect, SpawnSubAgent)]
    require(len(requests) <= 1, "two model requests are in flight", history)
    require(not (requests and tools), "a model request is in flight beside tools", history)
    require(not (children and (requests or tools)), "sub-agents work beside a model request or tools", history)
    require(len(tools) <= history.context.policy.parallel, "more tools run than the policy allows", history)
    require(
        len(tools) <= 1 or not any(call.exclusive for call in tools), "an exclusive call runs beside another", history
    )
    # A tool that is only asked whether its call ran does not run it.
    runs = [one for one in running if isinstance(one, TOOL_RUNS)]
    asking = [one for one in runs if one.call.approval and one.call.call_id not in history.allowed]
    unasked = {one.effect_id for one in asking} - history.effects.begun_unasked
    require(not unasked, "a call runs that nobody allowed", history)


def waits_for_something(history: History) -> None:
    """Law 7: a state waits for exactly the effects in flight, also after a crash. Only a wait for a person may have no
    timer, and it lasts no longer than the policy says."""
    state, effects = history.state, history.effects
    require(effects.faults == [], "; ".join(effects.faults), history)
    flying = {effect_id: type(effect) for effect_id, effect in effects.in_flight.items()}
    require(state.in_flight() == flying, "the state does not wait for the effects in flight", history)
    require(
        all(effect_id < state.book.next_effect for effect_id in effects.started),
        "an effect id may be given out twice",
        history,
    )
    waiting = [state.call] if isinstance(state, AwaitingUserResponse) and state.suspends else []
    require(list(effects.suspended) == [call.call_id for call in waiting], "a call waits for nobody", history)
    require(all(call.exclusive for call in waiting), "a call that is not exclusive waits for a person", history)
    if isinstance(state, AwaitingPerson | AwaitingSubAgents | Cancelling):
        _require_deadline(history, state)
    if isinstance(state, Busy) and not isinstance(state, AwaitingPerson | InDoubt):
        require(bool(effects.in_flight), "the state is busy and waits for nothing", history)


def _require_deadline(history: History, state: AwaitingPerson | AwaitingSubAgents | Cancelling) -> None:
    seconds = seconds_to_wait(state, history.context.policy)
    require((state.deadline is not None) == (seconds is not None), "the deadline is not what the policy says", history)
    if state.deadline is not None and seconds is not None:
        effect_id = state.deadline.effect_id
        due = later(history.effects.waits_from[effect_id], seconds)
        timer = StartTimer(effect_id=effect_id, due=due, wakes="deadline_reached")
        require(history.in_flight.get(effect_id) == timer, "the deadline is not when the policy says", history)


def seconds_to_wait(state: State, policy: Policy) -> float | None:
    """The longest time that this state waits, in seconds; None if there is no limit. `Pure.`"""
    if isinstance(state, Cancelling):
        return policy.cancel_deadline
    if isinstance(state, AwaitingSubAgents):
        return policy.sub_agent_deadline
    return policy.questions.deadline if isinstance(state, AwaitingUserResponse) else policy.approval_deadline


def hands_on_answers_exactly(history: History) -> None:
    """Law 16: the answers of a person, in any script, reach the model, or the call or sub-agent that waits for them, as
    valid JSON that reads back equal."""
    newest = history.newest
    if not isinstance(newest.event, UserQuestionResponse) or newest.step is None:
        return
    before = newest.before
    assert isinstance(before, AwaitingUserResponse | AwaitingSubAgents)
    goes_on = isinstance(before, AwaitingSubAgents) or before.suspends
    if newest.context.policy.questions.answer != "json" and not goes_on:
        return
    sent = {text: list(a) if isinstance(a, tuple) else a for text, a in newest.event.answers.items()}
    passed_on = _passed_on(history) if goes_on else _result_of(history, before.call.call_id)
    require(json.loads(passed_on)["answers"] == sent, "other answers are passed on than were given", history)


def _passed_on(history: History) -> str:
    """The text that the call gets that is resumed, or the sub-agent that asked."""
    (said,) = [effect.said for effect in history.newest.effects if isinstance(effect, ResumeTool | AnswerSubAgent)]
    return "" if said is None else history.said.words(said)


def _result_of(history: History, call_id: str) -> str:
    return next(message.text for message in reversed(history.transcript) if message.tool_call_id == call_id)
