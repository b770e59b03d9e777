"""Out of `LlmRequesting`: the model answered, or its request failed."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, LlmFailed, LlmResponse
from ..guards.budgets import is_full
from ..junctions.asking import conclude_with, condense_up_to, send
from ..replies.nudges import due_nudge
from ..replies.reply_text import text_of_reply
from ..states import Compacting, LlmRequesting, RetryWaiting
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.repeats import fingerprint, is_repeated, remember
from ..values.round import Round, RoundCall
from ..values.value import later


def take_response(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """What the model said enters the transcript, what it cost is counted, and what it was told in passing is past."""
    step.window_used = event.usage.tokens
    step.spend(event.usage)
    changes: dict[str, object] = {"nudge": None, "plain": False, "only_thought": False}
    changes["cut_off"] = event.finish_reason == "length"
    changes["condensed"] = step.turn.condensed and is_full(step, context, step.window_used)
    has_text = bool(text_of_reply(event.content, context.policy).strip())
    if has_text:
        changes["final"] = step.heard()
    if has_text or event.tool_calls:
        changes["empties"] = 0
    if window := context.policy.repeats.window:
        changes["earlier_calls"] = remember(step.turn.earlier_calls, (), window)
    step.change_turn(**changes)
    step.say(step.heard())
    if event.tool_calls:
        step.set_round(Round(calls=tuple(RoundCall.of(call, step.seq) for call in event.tool_calls)))


# --- calls


def take_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """A round of tools begins. A call with a fault never runs: the fault is its result. Neither does one that was made
    before."""
    seen = [one for earlier in step.turn.earlier_calls for one in earlier]
    take_response(step, event, context)
    window = context.policy.repeats.window
    made: list[str] = []
    for index, call in enumerate(event.tool_calls, start=1):
        if call.fault is not None:
            step.settle(call.call_id, step.heard(index), error=True)
        elif window and is_repeated(call, (*seen, *made)):
            step.settle(call.call_id, Made(text=context.policy.texts.repeated))
        elif window:
            made.append(fingerprint(call))
    if window:
        step.change_turn(earlier_calls=remember(step.turn.earlier_calls[:-1], made, window))


def refuse_cut_off_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of a response that was cut off runs: the last one is incomplete, and nobody knows which came last."""
    refuse_calls(step, event, context, context.policy.texts.cut_off)


def refuse_question_beside_others(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of this response runs; the model is told to ask alone."""
    refuse_calls(step, event, context, context.policy.texts.question_not_alone)


def refuse_late_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The turn ends at its limit with what the model said beside its calls, if it said anything."""
    refuse_calls(step, event, context, context.policy.texts.not_run)
    if text_of_reply(event.content, context.policy).strip():
        step.conclude("incomplete", step.heard())
    else:
        conclude_with(step, context.policy.texts.limit)


def condense_first(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> Compacting:
    """The window is full: what came before this response is condensed before anything else runs."""
    refuse_calls(step, event, context, context.policy.texts.no_room)
    return condense_up_to(step, step.seq - 1)


def give_up_for_lack_of_room(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """Condensed as it is, the history still fills the window."""
    refuse_calls(step, event, context, context.policy.texts.no_room)
    step.fail("context_window", context.policy.texts.full)


def refuse_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context, text: str) -> None:
    """None of the calls runs, and this is the result of each."""
    take_response(step, event, context)
    step.settle_unrun(text)
    step.set_round(None)


# --- text, or none


def take_text(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """A text after the work was claimed: whether the claim holds decides what follows."""
    take_response(step, event, context)


def end_with_text(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The text is the answer, unless the rules want a claim of completed work that never came. There may be none where
    it would be no more than a thought."""
    take_response(step, event, context)
    is_answer = context.policy.ends_on == "text"
    has_text = bool(text_of_reply(event.content, context.policy).strip())
    step.conclude("completed" if is_answer else "incomplete", step.heard() if has_text else None)


def nudge(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model is reminded of what the rules ask for."""
    text = due_nudge(step.turn, context, text=event.content)
    assert text is not None, "the guard of this row asks whether there is something to remind of"
    take_response(step, event, context)
    step.tell(Made(text=text))
    step.change_turn(nudges=step.turn.nudges + 1)


def keep_thinking(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """What it thought is kept, and it is asked once more."""
    take_response(step, event, context)
    step.change_turn(only_thought=True)


def take_empty(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model said nothing, or nothing for people."""
    take_response(step, event, context)
    step.change_turn(empties=step.turn.empties + 1)


# --- failures


def back_off(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> RetryWaiting:
    """Wait before the same request is sent again: longer each time, and never shorter than the provider asks."""
    state = step.state
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    wait = context.policy.retry.wait(state.attempt, retry_after)
    assert wait is not None, "the guard of this row asks whether there is a wait"
    timer = step.arm(later(event.at, wait), "retry_due")
    return step.within_turn(RetryWaiting, timer=timer, attempt=state.attempt + 1)


def ask_next_model(
    step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context
) -> LlmRequesting:
    """The same request goes to the next model of the policy, which is kept to the end of the turn."""
    step.change_turn(model=step.turn.model + 1)
    return send(step, event.at, context, attempt=1)


def give_up(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> None:
    """No attempt and no model is left, or another attempt could not fare better."""
    attempt = step.state.attempt
    step.fail(event.kind, event.sentence if attempt == 1 else f"Failed after {attempt} attempts: {event.sentence}")
