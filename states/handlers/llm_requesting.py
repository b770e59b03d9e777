"""Out of `LlmRequesting`: the model answered, or its request failed."""

from __future__ import annotations

from ..context import Context
from ..draft import Draft
from ..effects import RequestLlm
from ..events import EffectFailed, LlmFailed, LlmResponse
from ..messages import Made
from ..round import Round, RoundCall
from ..states import Failed, LlmRequesting, RetryWaiting
from ..turn import Failure
from ..value import later


def take_response(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """What the model said enters the transcript, and what it cost is counted."""
    draft.window_used = event.usage.tokens
    turn = draft.turn
    draft.change_turn(spent=turn.spent + event.usage, usage=turn.usage + event.usage, only_thought=False)
    draft.say(draft.heard())
    if event.tool_calls:
        draft.set_round(Round(calls=tuple(RoundCall.of(call, draft.seq) for call in event.tool_calls)))


def take_calls(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """A round of tools begins. A call with a fault never runs: the fault is its result (case P5)."""
    take_response(draft, event, context)
    for index, call in enumerate(event.tool_calls, start=1):
        if call.fault is not None:
            draft.settle(call.call_id, draft.heard(index), error=True)


def keep_thinking(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """What it thought is kept, and it is asked once more."""
    take_response(draft, event, context)
    draft.change_turn(only_thought=True)


def refuse_cut_off_calls(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of a response that was cut off runs: the last one is incomplete, and nobody knows which came last."""
    take_response(draft, event, context)
    draft.settle_unrun(context.policy.texts.cut_off)


def refuse_question_beside_others(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of this response runs; the model is told to ask alone (case P13)."""
    take_response(draft, event, context)
    draft.settle_unrun(context.policy.texts.question_not_alone)


def refuse_late_calls(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The turn ends at its limit with what the model said beside its calls, if it said anything."""
    take_response(draft, event, context)
    texts = context.policy.texts
    draft.settle_unrun(texts.not_run)
    if event.content.strip():
        draft.end_turn("incomplete", draft.heard())
    else:
        draft.say(Made(text=texts.limit))
        draft.end_turn("incomplete", Made(text=texts.limit))


def end_empty(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model said nothing: the turn ends with a sentence of ours, so a person is never left with silence."""
    take_response(draft, event, context)
    ending = Made(text=context.policy.texts.empty)
    draft.say(ending)
    draft.end_turn("incomplete", ending, truncated=event.finish_reason == "length")


def end_with_text(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """Text without calls is the answer."""
    take_response(draft, event, context)
    draft.end_turn("completed", draft.heard(), truncated=event.finish_reason == "length")


def back_off(draft: Draft[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> RetryWaiting:
    """Wait before the same request is sent again: longer each time, and never shorter than the provider asks."""
    state = draft.state
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    wait = context.policy.retry.wait(state.attempt, retry_after)
    assert wait is not None, "the guard of this row asks whether there is a wait"
    timer = draft.arm(later(event.at, wait), "retry_due")
    return draft.within_turn(RetryWaiting, timer=timer, attempt=state.attempt + 1, tools_off=state.tools_off)


def ask_next_model(draft: Draft[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> LlmRequesting:
    """The same request goes to the next model of the policy, which is kept to the end of the turn."""
    draft.change_turn(model=draft.turn.model + 1)
    return resend(draft, context, attempt=1)


def resend(draft: Draft[LlmRequesting] | Draft[RetryWaiting], context: Context, *, attempt: int) -> LlmRequesting:
    """Send the request of this state once more; it counts as the same request."""
    tools_off = draft.state.tools_off
    effect_id = draft.next_id()
    draft.act(
        RequestLlm(
            effect_id=effect_id,
            model=context.policy.models[draft.turn.model].name,
            tool_choice="none" if tools_off else "auto",
        )
    )
    return draft.within_turn(LlmRequesting, effect_id=effect_id, attempt=attempt, tools_off=tools_off)


def give_up(draft: Draft[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> Failed:
    """No attempt and no model is left, or another attempt could not fare better (case P11)."""
    attempt = draft.state.attempt
    sentence = event.sentence if attempt == 1 else f"Failed after {attempt} attempts: {event.sentence}"
    draft.end_turn("failed", failure=Failure(kind=event.kind, sentence=sentence))
    return Failed(kind=event.kind, sentence=sentence, turn=draft.turn.number, inbox=draft.inbox, book=draft.book)
