"""NEXT_IN_ROUND: run tools, wait for a person to allow one or to settle a doubt, and leave the round in the end."""

from __future__ import annotations

from ..context import Context
from ..effects import ExecuteTool
from ..events import Event
from ..states import AwaitingApproval, InDoubt, State, ToolExecuting
from ..step_builder import StepBuilder
from ..values.value import later
from .guards import may_start_tool


def wait_for_verdict(draft: StepBuilder[State], event: Event, context: Context) -> InDoubt:
    """Nobody knows whether a tool did what it does; nothing new starts until a person has said."""
    since = draft.state.since if isinstance(draft.state, InDoubt) else event.at
    return draft.within_turn(InDoubt, round=draft.open_round, since=since)


def start_tools(draft: StepBuilder[State], event: Event, context: Context) -> ToolExecuting:
    """Start what may start now, in call order."""
    while may_start_tool(draft, event, context):
        call = draft.open_round.next_to_start(context.policy.parallel)
        assert call is not None, "the guard of this loop asks whether there is one"
        effect_id = draft.next_id()
        draft.act(ExecuteTool(effect_id=effect_id, call=call))
        draft.set_round(draft.open_round.start(call, effect_id))
        draft.change_turn(tool_calls=draft.turn.tool_calls + 1)
    return draft.within_turn(ToolExecuting, round=draft.open_round)


def ask_approval(draft: StepBuilder[State], event: Event, context: Context) -> AwaitingApproval:
    """Rest until a person allows the next call, or does not."""
    call = draft.open_round.next_to_approve
    assert call is not None, "the guard of this branch asks whether there is one"
    seconds = context.policy.approval_deadline
    deadline = None if seconds is None else draft.arm(later(event.at, seconds), "deadline_reached")
    return draft.within_turn(AwaitingApproval, call=call, round=draft.open_round, since=event.at, deadline=deadline)


def leave_round(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """Every call has its result, or may not run any more because a limit is reached. A claim beside a call that came
    to no good counts for nothing (case S9)."""
    draft.settle_unrun(context.policy.texts.not_run)
    round_, turn = draft.open_round, draft.turn
    claim = turn.claim if round_.failed else round_.claim or turn.claim
    draft.change_turn(worked=True, claim=claim)
    draft.set_round(None)
