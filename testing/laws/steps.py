"""Laws 1, 2, 3 and 5: a step is a function of its input, and what is refused or ignored changes nothing."""

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
    """Law 1: every event gives a step, is ignored, or is refused with one sentence; no input is changed."""
    newest = history.newest
    given = (newest.before, newest.event, newest.context)
    copies = tuple(value.model_copy(deep=True) for value in given)
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


def is_replayed_by_its_log(history: History) -> None:
    """Law 2, for a whole log: the events that were taken lead to the same state and the same transcript."""
    replayed = History()
    for entry in history.log:
        replayed.take(entry.event)
    require(replayed.state == history.state, "the log leads to another state", history)
    require(replayed.transcript == history.transcript, "the log leads to another transcript", history)


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
