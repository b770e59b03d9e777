"""Out of `LlmRequesting`: the model answered, or its request failed."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, LlmFailed, LlmResponse
from ..policy.nudges import due_nudge
from ..projections.reply_text import text_of_reply
from ..states import Compacting, LlmRequesting, RetryWaiting
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.repeats import fingerprint, is_repeated, remember
from ..values.round import Round, RoundCall
from ..values.value import later
from .asking import conclude_with, condense_up_to, send
from .guards import is_full


def take_response(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """What the model said enters the transcript, what it cost is counted, and what it was told in passing is past."""
    draft.window_used = event.usage.tokens
    draft.spend(event.usage)
    changes: dict[str, object] = {"nudge": None, "plain": False, "only_thought": False}
    changes["cut_off"] = event.finish_reason == "length"
    changes["condensed"] = draft.turn.condensed and is_full(draft, context, draft.window_used)
    has_text = bool(text_of_reply(event.content, context.policy).strip())
    if has_text:
        changes["final"] = draft.heard()
    if has_text or event.tool_calls:
        changes["empties"] = 0
    if window := context.policy.repeats.window:
        changes["earlier_calls"] = remember(draft.turn.earlier_calls, (), window)
    draft.change_turn(**changes)
    draft.say(draft.heard())
    if event.tool_calls:
        draft.set_round(Round(calls=tuple(RoundCall.of(call, draft.seq) for call in event.tool_calls)))


# --- calls


def take_calls(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """A round of tools begins. A call with a fault never runs: the fault is its result (case P5). Neither does one that
    was made before (case J8)."""
    seen = [one for earlier in draft.turn.earlier_calls for one in earlier]
    take_response(draft, event, context)
    window = context.policy.repeats.window
    made: list[str] = []
    for index, call in enumerate(event.tool_calls, start=1):
        if call.fault is not None:
            draft.settle(call.call_id, draft.heard(index), error=True)
        elif window and is_repeated(call, (*seen, *made)):
            draft.settle(call.call_id, Made(text=context.policy.texts.repeated))
        elif window:
            made.append(fingerprint(call))
    if window:
        draft.change_turn(earlier_calls=remember(draft.turn.earlier_calls[:-1], made, window))


def refuse_cut_off_calls(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of a response that was cut off runs: the last one is incomplete, and nobody knows which came last."""
    refuse_calls(draft, event, context, context.policy.texts.cut_off)


def refuse_question_beside_others(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of this response runs; the model is told to ask alone (case P13)."""
    refuse_calls(draft, event, context, context.policy.texts.question_not_alone)


def refuse_late_calls(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The turn ends at its limit with what the model said beside its calls, if it said anything (case J12)."""
    refuse_calls(draft, event, context, context.policy.texts.not_run)
    if text_of_reply(event.content, context.policy).strip():
        draft.conclude("incomplete", draft.heard())
    else:
        conclude_with(draft, context.policy.texts.limit)


def condense_first(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> Compacting:
    """The window is full: what came before this response is condensed before anything else runs (case P21)."""
    refuse_calls(draft, event, context, context.policy.texts.no_room)
    return condense_up_to(draft, draft.seq - 1)


def give_up_for_lack_of_room(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """Condensed as it is, the history still fills the window (case P21)."""
    refuse_calls(draft, event, context, context.policy.texts.no_room)
    draft.fail("context_window", context.policy.texts.full)


def refuse_calls(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context, text: str) -> None:
    """None of the calls runs, and this is the result of each."""
    take_response(draft, event, context)
    draft.settle_unrun(text)
    draft.set_round(None)


# --- text, or none


def take_text(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """A text after the work was claimed: whether the claim holds decides what follows."""
    take_response(draft, event, context)


def end_with_text(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The text is the answer, unless the rules want a claim of completed work that never came (case S10). There may be
    none where it would be no more than a thought."""
    take_response(draft, event, context)
    is_answer = context.policy.ends_on == "text"
    has_text = bool(text_of_reply(event.content, context.policy).strip())
    draft.conclude("completed" if is_answer else "incomplete", draft.heard() if has_text else None)


def nudge(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model is reminded of what the rules ask for."""
    text = due_nudge(draft.turn, context, text=event.content)
    assert text is not None, "the guard of this row asks whether there is something to remind of"
    take_response(draft, event, context)
    draft.tell(Made(text=text))
    draft.change_turn(nudges=draft.turn.nudges + 1)


def keep_thinking(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """What it thought is kept, and it is asked once more."""
    take_response(draft, event, context)
    draft.change_turn(only_thought=True)


def take_empty(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model said nothing, or nothing for people (case J13)."""
    take_response(draft, event, context)
    draft.change_turn(empties=draft.turn.empties + 1)


# --- failures


def back_off(draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> RetryWaiting:
    """Wait before the same request is sent again: longer each time, and never shorter than the provider asks."""
    state = draft.state
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    wait = context.policy.retry.wait(state.attempt, retry_after)
    assert wait is not None, "the guard of this row asks whether there is a wait"
    timer = draft.arm(later(event.at, wait), "retry_due")
    return draft.within_turn(RetryWaiting, timer=timer, attempt=state.attempt + 1)


def ask_next_model(
    draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context
) -> LlmRequesting:
    """The same request goes to the next model of the policy, which is kept to the end of the turn."""
    draft.change_turn(model=draft.turn.model + 1)
    return send(draft, event.at, context, attempt=1)


def give_up(draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> None:
    """No attempt and no model is left, or another attempt could not fare better (case P11)."""
    attempt = draft.state.attempt
    draft.fail(event.kind, event.sentence if attempt == 1 else f"Failed after {attempt} attempts: {event.sentence}")
