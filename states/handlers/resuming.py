"""Taken up after a crash: what the world was asked for is asked for again.

The machine asks for effects under the ids that they had, so an answer that was on its way is still known. Tools are
left out: whether one may run again is decided call by call, when its interruption is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ..context import Context
from ..effects import (
    CancelSubAgent,
    Effect,
    ReconcileTool,
    SelectProfile,
    SpawnSubAgent,
    StartTimer,
    SummarizeTurn,
)
from ..events import Resumed
from ..states import (
    AwaitingPerson,
    AwaitingSubAgents,
    Busy,
    Cancelling,
    Compacting,
    Failed,
    InRound,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    RetryWaiting,
    Summarizing,
    Timer,
    Verifying,
)
from ..step_builder import StepBuilder
from ..values.round import Round
from .asking import compact_effect, llm_request
from .beginning import recall_effect
from .ending import rest_failed
from .stopping import abort_all, close_round
from .verifying import verify_effect


def take_up(draft: StepBuilder[Busy], event: Resumed, context: Context) -> Busy:
    """Go on where the process died. A wait for a person is no attempt: it only gets its timer back."""
    for effect in in_flight(draft.state, event.at, context):
        draft.act(effect)
    return draft.same(resumes=draft.state.resumes + (1 if draft.state.works else 0))


def give_up(draft: StepBuilder[Busy], event: Resumed, context: Context) -> Failed:
    """Each process that took this up died of it, or so it seems: a person has to look at it."""
    texts = context.policy.texts
    abort_all(draft)
    close_round(draft, context, running=texts.in_doubt, unrun=texts.interrupted)
    draft.fail("interrupted", texts.died_too_often)
    return rest_failed(draft, event, context)


def in_flight(state: Busy, at: datetime, context: Context) -> Sequence[Effect]:
    """What this state waits for, as effects to start again; tools are left out. `Pure.`"""
    return next(again(state, at, context) for kind, again in _AGAIN.items() if isinstance(state, kind))


def _timer(timer: Timer | None, wakes: Literal["retry_due", "deadline_reached"]) -> list[Effect]:
    return [] if timer is None else [StartTimer(effect_id=timer.effect_id, due=timer.due, wakes=wakes)]


def _at_work(round_: Round) -> list[Effect]:
    """The sub-agents that work, and the tools that are asked about a call."""
    children = [SpawnSubAgent(effect_id=child.effect_id, task=child.task) for child in round_.unfinished]
    asked = [
        ReconcileTool(effect_id=one.reconciling, call=round_.named(one.call_id), started_as=one.effect_id)
        for one in round_.running
        if one.reconciling is not None
    ]
    return [*children, *asked]


def _stops(round_: Round) -> list[Effect]:
    """The sub-agents that work are told again to stop: nobody answers for that, so it may have been lost."""
    return [CancelSubAgent(effect_id=child.effect_id) for child in round_.unfinished]


Again: TypeAlias = Callable[[Any, datetime, Context], Sequence[Effect]]

_AGAIN: dict[type[Busy], Again] = {
    ProfileSelecting: lambda state, at, context: [SelectProfile(effect_id=state.effect_id)],
    MemoryRecalling: lambda state, at, context: [recall_effect(state.effect_id, state.turn, context)],
    LlmRequesting: lambda state, at, context: [llm_request(state.effect_id, state.turn, at, context)],
    RetryWaiting: lambda state, at, context: _timer(state.timer, "retry_due"),
    AwaitingPerson: lambda state, at, context: _timer(state.deadline, "deadline_reached"),
    AwaitingSubAgents: lambda state, at, context: [
        *_at_work(state.round),
        *_timer(state.deadline, "deadline_reached"),
    ],
    Verifying: lambda state, at, context: [verify_effect(state.effect_id, state.turn, context)],
    Summarizing: lambda state, at, context: [SummarizeTurn(effect_id=state.effect_id)],
    Compacting: lambda state, at, context: [compact_effect(state.effect_id, state.up_to, state.turn)],
    Cancelling: lambda state, at, context: [
        *_at_work(state.round),
        *_stops(state.round),
        *_timer(state.deadline, "deadline_reached"),
    ],
    InRound: lambda state, at, context: _at_work(state.round),
}
