"""NEXT_IN_ROUND: run the tools of a round, wait for a person where a call needs one, and leave the round in the end."""

from __future__ import annotations

from ..context import Context
from ..effects import ExecuteTool
from ..events import Event
from ..guards.rounds import call_to_start
from ..state import State
from ..states import AwaitingApproval, InDoubt, ToolExecuting
from ..step_builder import StepBuilder
from ..values.messages import Heard, Joined, Made, Outcomes
from ..values.part import make_part
from ..values.revision import AGENTS
from ..values.value import later


def wait_for_verdict(step: StepBuilder[State], event: Event, context: Context) -> InDoubt:
    """It is unknown whether a tool did its work; nothing new starts until a person has decided."""
    since = step.state.since if isinstance(step.state, InDoubt) else event.at
    return step.within_turn(InDoubt, round=step.round, since=since)


def start_tools(step: StepBuilder[State], event: Event, context: Context) -> ToolExecuting:
    """The calls that may run now start, in call order."""
    while (call := call_to_start(step, event, context)) is not None:
        effect_id = step.next_id()
        step.add_effect(make_part(ExecuteTool, {"effect_id": effect_id, "call": call}))
        step.round = step.round.start(call, effect_id)
        step.change_turn(tool_calls=step.turn.tool_calls + 1)
    return step.within_turn(ToolExecuting, round=step.round)


def ask_approval(step: StepBuilder[State], event: Event, context: Context) -> AwaitingApproval:
    """The conversation rests until a person allows or denies the next call."""
    call = step.round.next_to_approve
    assert call is not None, "the guard of this branch finds one"
    seconds = context.policy.approval_deadline
    deadline = None if seconds is None else step.start_timer(later(event.at, seconds), "deadline_reached")
    return step.within_turn(AwaitingApproval, call=call, round=step.round, since=event.at, deadline=deadline)


def leave_round(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Every call has its result, or may not run because a limit is reached. A claim beside a call that failed does not
    count."""
    step.settle_queued(context.policy.texts.not_run)
    round_, turn = step.round, step.turn
    claim = turn.claim if round_.failed else round_.claim or turn.claim
    step.change_turn(worked=True, claim=claim)
    step.end_round()


def settle_children(step: StepBuilder[State], context: Context, unfinished: str) -> None:
    """Give the call that started the sub-agents its result. Sub-agents that still work count with the text
    `unfinished`."""
    children = step.round.children
    if not children:
        return
    statuses = tuple(child.status or "cancelled" for child in children)
    texts = tuple(child.outcome or Made(text=unfinished) for child in children)
    failed = any(status != "completed" for status in statuses)
    step.settle(children[0].call_id, _result_of(statuses, texts, context), error=failed)
    step.round = step.round.replace(children=())


def _result_of(statuses: tuple[str, ...], texts: tuple[Heard | Made, ...], context: Context) -> Joined | Outcomes:
    """The result of a call whose sub-agents ended like this, with these texts."""
    if context.revision >= AGENTS:
        return Outcomes(statuses=statuses, parts=texts)
    headed: list[Heard | Made] = []
    for number, (status, text) in enumerate(zip(statuses, texts, strict=True), start=1):
        headed += [Made(text=f"{context.policy.texts.child} {number} ({status}):"), text]
    return Joined(parts=tuple(headed))


def close_round(step: StepBuilder[State], context: Context, *, running: str, unrun: str) -> None:
    """Give every call a result that has none: those that ran, those that a crash left in doubt, and those that never
    started."""
    if not step.in_round:
        return
    texts = context.policy.texts
    for call in step.round.running:
        text = running if call.reconciling is None else texts.in_doubt
        step.settle(call.call_id, Made(text=text), error=True)
    step.refuse_calls([step.round.named(call_id) for call_id in step.round.doubtful], texts.in_doubt)
    settle_children(step, context, texts.child_cancelled)
    step.settle_queued(unrun)
    step.end_round()
