"""Rows for `Resumed`: a process takes the conversation over, and what was in flight is asked for again.

Effects are asked for again under the ids that they had, so an answer that is already on its way is still accepted.
Tools are left out: whether a call may run again is decided when its interruption is reported. What the report does not
name is left out, too: it has been begun since.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..context import Context
from ..effects import TOOL_RUNS, CancelSubAgent, Effect, SpawnSubAgent, StartTimer
from ..events import Resumed
from ..guards.turns import counts_as_resume, left_in_flight
from ..junctions.again import again, asked_again
from ..junctions.rounds import close_round
from ..junctions.stopping import abort_all
from ..state import Busy, InFlight
from ..states import Cancelling, RetryWaiting
from ..step_builder import StepBuilder
from ..values.revision import WAITS_AS_AGREED


def take_up(step: StepBuilder[Busy], event: Resumed, context: Context) -> Busy:
    """The effects in flight are asked for again. A wait for a person does not count as a resume: only its timer is
    started again."""
    state, right = step.state, _moments_set_right(step.state, event.at, context)
    for effect in effects_again(state.replace(**right), left_in_flight(state, event, context), event.at, context):
        step.add_effect(effect)
    return step.same(resumes=state.resumes + counts_as_resume(state, event, context), **right)


def give_up(step: StepBuilder[Busy], event: Resumed, context: Context) -> None:
    """Too many processes have died in this turn, or it was under way elsewhere, so a person has to look at it."""
    texts = context.policy.texts
    abort_all(step)
    close_round(step, context, running=texts.in_doubt, unrun=texts.did_not_run if event.imported else texts.interrupted)
    step.fail("interrupted", texts.imported if event.imported else texts.died_too_often)


def effects_again(state: Busy, in_flight: InFlight, at: datetime, context: Context) -> Sequence[Effect]:
    """These effects in flight, to be started again, timers last; tools are left out. `Pure.`

    Sub-agents that were told to stop are told again, since nothing confirms that they were told.
    """
    started: list[Effect] = [
        again(state, effect_id, kind, at, context) for effect_id, kind in in_flight.items() if kind not in TOOL_RUNS
    ]
    if isinstance(state, Cancelling):
        started += [CancelSubAgent(effect_id=each) for each, kind in in_flight.items() if kind is SpawnSubAgent]
    return sorted(started, key=lambda effect: type(effect) is StartTimer)


def _moments_set_right(state: Busy, at: datetime, context: Context) -> dict[str, Any]:
    """The fields that change because a clock that ran ahead has set a moment which this state waits for: it comes no
    later than agreed, counted from now. `Pure.`"""
    if context.revision < WAITS_AS_AGREED:
        return {}
    fields = state.__dict__
    wait = state.agreed_wait(context.policy)
    right: dict[str, Any] = {
        name: timer.set_right(at, wait) for name in ("timer", "deadline") if (timer := fields.get(name)) is not None
    }
    if (turn := fields.get("turn")) is not None and at < turn.since:
        right["turn"] = turn.replace(since=at)
    if (round_ := fields.get("round")) is not None and round_.children:
        right["round"] = round_.replace(children=tuple(child.set_right(at) for child in round_.children))
    return right


@asked_again(StartTimer)
def _start_timer_again(state: Any, effect_id: int, at: datetime, context: Context) -> StartTimer:
    """The timer that the state waits for. `Pure.`"""
    if isinstance(state, RetryWaiting):
        return StartTimer(effect_id=effect_id, due=state.timer.due, wakes="retry_due")
    return StartTimer(effect_id=effect_id, due=state.deadline.due, wakes="deadline_reached")
