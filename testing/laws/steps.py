"""Laws 1, 2, 3 and 5: a step is a function of what came in, and what does not count changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ...states.context import Context
from ...states.effects import AnyEffect
from ...states.errors import Refused
from ...states.events import Answer, AnyEvent, Report, Request
from ...states.states import AnyState
from ...states.values.value import Value
from ..history import History
from ..law import require
from ..observation import Observation, observe


def is_taken_or_refused(history: History) -> None:
    """Law 1: every event gives a step, is ignored, or is refused with one sentence; nothing that came in is changed."""
    newest = history.newest
    given = (newest.before, newest.event, newest.context)
    copies = tuple(value.model_copy(deep=True) for value in given)
    observe(*given)
    require(copies == given, "what came in was changed", history)
    if isinstance(newest.outcome, Refused):
        require(isinstance(newest.event, Request), "only a request may be refused", history)
        require(bool(newest.outcome.sentence), "a refusal says why in a sentence", history)


def is_deterministic(history: History) -> None:
    """Law 2: the same again gives the same, and all of it survives being written as JSON and read back."""
    newest = history.newest
    again = observe(newest.before, newest.event, newest.context)
    require(_comparable(again) == _comparable(newest), "the same again gave something else", history)
    for family, value in _written(newest):
        read = family.validate_json(value.to_json())
        require(read == value, f"a {value!r:.40} is not exact in JSON", history)
        require(read.to_json() == value.to_json(), f"a {value!r:.40} is written in another way once read", history)


def is_replayed_by_its_log(history: History) -> None:
    """Law 2, for the whole: the events that were taken, alone, lead to the same state and the same transcript."""
    replayed = History()
    for entry in history.log:
        replayed.take(entry.event)
    require(replayed.state == history.state, "the log leads to another state", history)
    require(replayed.transcript == history.transcript, "the log tells of other words", history)


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


def changes_nothing_unless_taken(history: History) -> None:
    """Law 3: what is refused or ignored leaves the state equal and emits nothing; each step goes on from the last."""
    newest = history.newest
    if len(history.observations) > 1:
        require(newest.before == history.observations[-2].after, "it does not go on from the step before", history)
    if newest.step is None:
        require(newest.after == newest.before, "nothing happened, and yet the state changed", history)
        require(newest.effects == (), "nothing happened, and yet something is wanted", history)
        honest = isinstance(newest.outcome, Refused) or not (newest.outcome.ended or newest.outcome.withdrawn)
        require(honest, "nothing happened, and yet a turn ended or a message is gone", history)
    else:
        require(newest.after.book.seq == newest.before.book.seq + 1, "a step is counted once", history)


def takes_answers_by_their_effect(history: History) -> None:
    """Law 5: an answer is taken if its effect is in flight, once, and otherwise changes nothing; none is refused, and
    neither is a report."""
    newest = history.newest
    if isinstance(newest.event, Answer | Report):
        require(not isinstance(newest.outcome, Refused), "an answer was refused", history)
    if not isinstance(newest.event, Answer):
        return
    if newest.step is not None:
        answered = history.effects.answered
        require(answered is not None, "an answer was taken whose effect is not in flight", history)
        answers = () if answered is None else answered.answers
        require(type(newest.event) in answers, "an answer was taken that is none to its effect", history)
    else:
        awaited = newest.before.awaited().get(newest.event.effect_id, ())
        require(type(newest.event) not in awaited, "an answer that is waited for was ignored", history)
