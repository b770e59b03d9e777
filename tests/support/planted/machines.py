"""Machines with one fault each, to see that it is found: `transition`, mended for the worse.

Each is told as the mistake of a programmer, and made of public names, so that it stays the same mistake while the
machine itself grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from turnwise.states import (
    Answer,
    Context,
    Effect,
    Event,
    PersistToolResults,
    State,
    Step,
    ToolAborted,
    ToolExecuting,
    transition,
)
from turnwise.testing import history

Transition = Callable[[State, Event, Context], Step]


def forgets_a_result(state: State, event: Event, context: Context) -> Step:
    """A handler forgets a result: of several that a step brings, the last is lost."""
    step = transition(state, event, context)
    return replace(step, effects=tuple(_without_the_last(effect) for effect in step.effects))


def _without_the_last(effect: Effect) -> Effect:
    if isinstance(effect, PersistToolResults) and len(effect.results) > 1:
        return effect.model_copy(update={"results": effect.results[:-1]})
    return effect


def runs_one_too_many(state: State, event: Event, context: Context) -> Step:
    """A guard is wrong by one: it lets a tool start beside as many as may run."""
    policy = context.policy.model_copy(update={"parallel": context.policy.parallel + 1})
    return transition(state, event, context.model_copy(update={"policy": policy}))


def takes_answers_by_their_type(state: State, event: Event, context: Context) -> Step:
    """An answer is accepted by its type instead of by its id, so one that is late ends what began after it."""
    fitting = [effect_id for effect_id, kinds in state.awaited().items() if type(event) in kinds]
    if isinstance(event, Answer) and fitting:
        event = event.model_copy(update={"effect_id": fitting[0]})
    return transition(state, event, context)


def crashes(state: State, event: Event, context: Context) -> Step:
    """A handler does not know that a tool may stop by itself."""
    if isinstance(state, ToolExecuting) and isinstance(event, ToolAborted) and event.effect_id in state.awaited():
        raise KeyError(event.effect_id)
    return transition(state, event, context)


def plant(monkeypatch: pytest.MonkeyPatch, fault: Transition) -> None:
    """Let all conversations of the kit go by this machine, for the length of a test."""
    monkeypatch.setattr(history, "transition", fault)
