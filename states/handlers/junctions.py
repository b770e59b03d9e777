"""What the branches of the junctions do: ask the model, run tools, stop, rest."""

from __future__ import annotations

from ..context import Context
from ..draft import Draft
from ..effects import Abort, ExecuteTool, RequestLlm
from ..events import Answer, CloseRequested, Event
from ..guards import may_start_tool
from ..messages import Made
from ..states import AwaitingApproval, Busy, Cancelling, Closed, Idle, LlmRequesting, State, ToolExecuting
from ..value import later

# --- ASK_MODEL


def request_model(draft: Draft[State], event: Event, context: Context) -> LlmRequesting:
    """Send the transcript to the model, with the steered messages at its end (case P37)."""
    draft.let_in(message for message in draft.inbox if message.steer)
    limits, models = context.policy.limits, context.policy.models
    turn = draft.turn
    tools_off = limits.last == "answer_now" and turn.requests + 1 >= limits.requests
    draft.change_turn(requests=turn.requests + 1)
    effect_id = draft.next_id()
    draft.act(
        RequestLlm(effect_id=effect_id, model=models[turn.model].name, tool_choice="none" if tools_off else "auto")
    )
    return draft.within_turn(LlmRequesting, effect_id=effect_id, tools_off=tools_off)


def end_at_limit(draft: Draft[State], event: Event, context: Context) -> None:
    """The turn may not ask the model again: it ends with a sentence of ours."""
    ending = Made(text=context.policy.texts.limit)
    draft.say(ending)
    draft.end_turn("incomplete", ending)


# --- NEXT_IN_ROUND


def start_tools(draft: Draft[State], event: Event, context: Context) -> ToolExecuting:
    """Start what may start now, in call order."""
    while may_start_tool(draft, event, context):
        call = draft.open_round.next_to_start(context.policy.parallel)
        assert call is not None, "the guard of this loop asks whether there is one"
        effect_id = draft.next_id()
        draft.act(ExecuteTool(effect_id=effect_id, call=call))
        draft.set_round(draft.open_round.start(call, effect_id))
        draft.change_turn(tool_calls=draft.turn.tool_calls + 1)
    return draft.within_turn(ToolExecuting, round=draft.open_round)


def ask_approval(draft: Draft[State], event: Event, context: Context) -> AwaitingApproval:
    """Rest until a person allows the next call, or does not."""
    call = draft.open_round.next_to_approve
    assert call is not None, "the guard of this branch asks whether there is one"
    seconds = context.policy.approval_deadline
    deadline = None if seconds is None else draft.arm(later(event.at, seconds), "deadline_reached")
    return draft.within_turn(AwaitingApproval, call=call, round=draft.open_round, since=event.at, deadline=deadline)


def leave_round(draft: Draft[State], event: Event, context: Context) -> None:
    """Every call has its result, or may not run any more because a limit is reached."""
    draft.settle_unrun(context.policy.texts.not_run)
    draft.set_round(None)


# --- STOP


def mark_closing(draft: Draft[State], event: CloseRequested, context: Context) -> None:
    """The conversation ends with this turn."""
    draft.closing = True


def abort_tools(draft: Draft[Busy], event: Event, context: Context) -> Cancelling:
    """Tell the running tools to stop, and wait for them, but not for ever."""
    for running in draft.open_round.running:
        draft.act(Abort(effect_id=running.effect_id))
    deadline = draft.arm(later(event.at, context.policy.cancel_deadline), "deadline_reached")
    return draft.within_turn(Cancelling, round=draft.open_round, deadline=deadline, closing=draft.closing)


def wait_for_others(draft: Draft[Cancelling], event: Answer, context: Context) -> Cancelling:
    """Some tools have not acknowledged yet."""
    return draft.same(round=draft.open_round)


def end_cancelled(draft: Draft[Busy], event: Event, context: Context) -> None:
    """The turn is over: every call left gets its result, and what is still in flight is no longer wanted (case P6)."""
    running = set()
    if draft.round is not None:
        running = {call.effect_id for call in draft.round.running}
        for call in draft.round.running:
            draft.settle(call.call_id, Made(text=context.policy.texts.cancelled), error=True)
        draft.settle_unrun(context.policy.texts.skipped)
        draft.set_round(None)
    answered = {event.effect_id} if isinstance(event, Answer) else set()
    for effect_id in sorted(draft.state.awaited().keys() - running - answered):
        draft.act(Abort(effect_id=effect_id))
    draft.end_turn("cancelled")


# --- REST


def rest(draft: Draft[State], event: Event, context: Context) -> Idle:
    """Nothing is left to do until somebody says something."""
    return Idle(book=draft.book)


def open_next_turn(draft: Draft[State], event: Event, context: Context) -> None:
    """The messages that waited begin one turn together (case P17)."""
    draft.open_turn(event.at)
    draft.let_in(draft.inbox)


def close(draft: Draft[State], event: Event, context: Context) -> Closed:
    """Nothing is left to do, ever."""
    draft.withdraw_all()
    return Closed(book=draft.book)
