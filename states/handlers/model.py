"""What follows from a model's response or failure: tools start, the turn ends, or the model is asked again.

Rows out of `LlmRequesting`, where the model responds or its request fails, out of `Cancelling`, where it is stopped,
and out of `RetryWaiting`, where the wait before another attempt is over; the junction CHECK_WORK with the rows out of
`Verifying`, where it turns out whether the work is as complete as the model claims; and rows out of `Compacting`, where
the history is compacted for a request, or cannot be.
"""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import Abort, VerifyWork, WithholdContent
from ..events import (
    Branching,
    CloseRequested,
    EffectFailed,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    RetryDue,
    UserCancel,
    UserMessage,
    WorkVerified,
)
from ..guards import first_suspect, is_full, is_nudge_due, lacks_answer, may_compact_for, may_fail_again, uses_up_budget
from ..junctions import (
    asked_again,
    asked_model,
    clear,
    compact_effect,
    compact_up_to,
    conclude_with,
    end_cancelled,
    limit_sentence,
    name_limit,
    send,
)
from ..outputs import is_valid_output, misses_output, output_errors
from ..replies import deliverable, due_nudge, text_of_reply
from ..states import Cancelling, Compacting, LlmRequesting, RetryWaiting, State, Verifying
from ..step_builder import StepBuilder
from ..values.messages import Made, Suspect
from ..values.round import RoundCall, fingerprint, is_repeated, remember
from ..values.turn import Failure, TurnRecord
from ..values.value import later, shortened
from . import turns


def take_response(step: StepBuilder[LlmRequesting | Cancelling], event: LlmResponse, context: Context) -> None:
    """Take over what every response brings: its text enters the transcript, its cost is counted, and the nudge of its
    request is used up."""
    usage, calls, policy, said = event.usage, event.tool_calls, context.policy, step.heard()
    step.window_used, step.clearable = usage.tokens, event.clearable
    step.spend(usage)
    changes: dict[str, object] = {"nudge": None, "plain": False, "only_thought": False}
    changes["cut_off"] = event.finish_reason == "length"
    changes["condensed"] = step.turn.condensed and is_full(step, context, step.window_used)
    if event.speaks != step.turn.speaks:
        changes["speaks"] = event.speaks
    has_text = bool(text_of_reply(event.content, policy).strip())
    if has_text:
        changes["final"] = said
    if has_text or calls:
        changes["empties"] = 0
    if step.turn.withheld or step.turn.cleared:
        changes |= {"withheld": (), "cleared": False}
    if window := policy.repeats.window:
        changes["earlier_calls"] = remember(step.turn.earlier_calls, (), window)
    if misses_output(step.turn, event, context):
        changes["output_failures"] = step.turn.output_failures + 1
    step.change_turn(**changes)
    step.persist(said)
    if calls:
        step.begin_round(RoundCall.of(call, step.seq) for call in calls)


# --- calls


def take_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """A round of tools begins. A call with a fault does not run, and neither does one that was made before: each has
    its result at once."""
    window = context.policy.repeats.window
    seen = [one for earlier in step.turn.earlier_calls for one in earlier] if window else []
    take_response(step, event, context)
    made: list[str] = []
    output = _given_output(step, event, context)
    for index, call in enumerate(event.tool_calls, start=1):
        if call.fault is not None:
            step.settle(call.call_id, step.heard(index), error=True)
        elif output is not None and index - 1 in output:
            step.settle(call.call_id, Made(text=context.policy.texts.output_noted))
        elif window and is_repeated(call, (*seen, *made)):
            step.settle(call.call_id, Made(text=context.policy.texts.repeated))
        elif window:
            made.append(fingerprint(call))
    if window:
        step.change_turn(earlier_calls=remember(step.turn.earlier_calls[:-1], made, window))


def _given_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> tuple[int, ...] | None:
    """Note a valid typed answer that was given beside other calls, and return the places of the calls that gave it;
    None if there is no such answer."""
    if event.output is None or not event.output.calls:
        return None
    if not (context.wants_output(step.turn) and is_valid_output(event)):
        return None
    _note_output(step, event, context)
    return event.output.calls


def refuse_cut_off_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of a response that was cut off runs, since the last one is incomplete and the order is not known."""
    refuse_calls(step, event, context, context.policy.texts.cut_off)


def refuse_question_beside_others(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of this response runs, and the model is told to ask its question alone."""
    refuse_calls(step, event, context, context.policy.texts.question_not_alone)


def refuse_late_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No call of this response runs, and the turn ends at its limit, with the text of the response if there is one."""
    refuse_calls(step, event, context, context.policy.texts.not_run)
    name_limit(step, event, context)
    if text_of_reply(event.content, context.policy).strip():
        step.conclude("incomplete", step.heard())
    else:
        conclude_with(step, limit_sentence(context))


def compact_first(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> Compacting:
    """The window is full: what came before this response is compacted before a tool runs."""
    refuse_calls(step, event, context, context.policy.texts.no_room)
    return compact_up_to(step, step.seq - 1)


def give_up_for_lack_of_room(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The history still fills the window, although it was compacted."""
    refuse_calls(step, event, context, context.policy.texts.no_room)
    step.fail("context_window", context.policy.texts.full)


def refuse_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context, text: str) -> None:
    """Take the response, and give each of its calls this text as an error result."""
    take_response(step, event, context)
    step.settle_queued(text)
    step.end_round()


# --- typed answers


def take_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The typed answer is that of the turn."""
    take_response(step, event, context)
    _note_output(step, event, context)
    _settle_output_calls(step, event, context)


def _note_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """Note the typed answer, and what is displayed of it: what the user is to receive, or the JSON if that says
    nothing. There is nothing to display if a marker takes all of it away."""
    place = event.output_index
    shown = (step.heard(index) for index in (place + 1, place) if _says_something(event, index, context))
    step.change_turn(output=step.heard(place), output_errors=None, final=next(shown, None), empties=0)


def _says_something(event: LlmResponse, index: int, context: Context) -> bool:
    return bool(text_of_reply(event.texts[index], context.policy).strip())


def _settle_output_calls(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """Give each call by which a typed answer was given its result: that it was taken, or what is wrong with it."""
    if not event.tool_calls:
        return
    texts = context.policy.texts
    for index, call in enumerate(event.tool_calls, start=1):
        if call.fault is not None:
            step.settle(call.call_id, step.heard(index), error=True)
        elif is_valid_output(event):
            step.settle(call.call_id, Made(text=texts.output_taken))
        else:
            step.settle(call.call_id, Made(text=texts.output_missing), error=True)
    step.end_round()


def send_output_back(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model is asked once more, and told what is wrong: by the result of its call, or by a reminder."""
    take_response(step, event, context)
    _settle_output_calls(step, event, context)
    if event.tool_calls:
        return
    errors = output_errors(event, step.seq)
    step.change_turn(output_errors=errors)
    if errors is None:
        step.set_nudge(Made(text=context.policy.texts.output_missing))


def give_up_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """No answer of the form that is wanted has come, and none is waited for any more. No other call of the response
    runs."""
    take_response(step, event, context)
    if event.tool_calls:
        given = () if event.output is None else event.output.calls
        for index, call in enumerate(event.tool_calls, start=1):
            if index - 1 in given and call.fault is not None:
                step.settle(call.call_id, step.heard(index), error=True)
        step.settle_queued(context.policy.texts.not_run)
        step.end_round()
    errors = "" if event.output is None else event.output.errors
    step.fail("output", shortened(f"{context.policy.texts.output_failed} {errors}".strip()))


def verify_output(step: StepBuilder[State], event: Event, context: Context) -> Verifying:
    """The typed answer is the claim that the work is complete, and is checked against what the user receives."""
    step.change_turn(claim=step.turn.final)
    return verify(step, event, context)


# --- text, or none


def take_text(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The text comes after the work was claimed to be complete; what follows depends on whether the claim holds."""
    take_response(step, event, context)


def end_with_text(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The text is the answer, unless the policy wants a claim of completed work and none came. There may be no text
    where the policy takes text for a thought."""
    take_response(step, event, context)
    if is_nudge_due(step.turn, event, context):
        name_limit(step, event, context)
    policy = context.policy
    has_text = bool(text_of_reply(event.content, policy).strip())
    step.conclude("completed" if policy.ends_on == "text" else "incomplete", step.heard() if has_text else None)


def nudge(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The model is reminded of what the policy asks for."""
    text = due_nudge(step.turn, context, text=event.content)
    assert text is not None, "the guard of this row finds a nudge"
    take_response(step, event, context)
    step.set_nudge(Made(text=text))
    step.change_turn(nudges=step.turn.nudges + 1)


def keep_thinking(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The thinking is kept, and the model is asked once more."""
    take_response(step, event, context)
    step.change_turn(only_thought=True)


def take_empty(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> None:
    """The response has no text for people. It may be one of several that hold only thinking."""
    take_response(step, event, context)
    only_thought = context.policy.empty.until_limit and bool(event.thinking.strip()) and not event.content.strip()
    step.change_turn(empties=step.turn.empties + 1, only_thought=only_thought)


# --- a response that was stopped


def keep_stopped(step: StepBuilder[LlmRequesting | Cancelling], event: LlmStopped, context: Context) -> None:
    """What the model had written for people enters the transcript; thinking alone leaves nothing behind."""
    if event.content.strip():
        said = step.heard()
        step.change_turn(final=said, speaks=event.speaks)
        step.persist(said)


def end_with_last_response(step: StepBuilder[Cancelling], event: LlmResponse, context: Context) -> None:
    """The response was complete before the model could be stopped: the turn is over, and none of its calls runs."""
    take_response(step, event, context)
    end_cancelled(step, event, context)


# --- failures


def back_off(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> RetryWaiting:
    """The same request is sent again after a wait, which grows with each attempt and is never shorter than the provider
    asks."""
    state = step.state
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    wait = context.policy.retry.wait(state.attempt, retry_after)
    assert wait is not None, "the guard of this row finds a wait"
    timer = step.start_timer(later(event.at, wait), "retry_due")
    return step.within_turn(RetryWaiting, timer=timer, attempt=state.attempt + 1)


def ask_next_model(
    step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context
) -> LlmRequesting:
    """The same request goes to the next model of the policy, which is used until the turn ends."""
    step.change_turn(model=step.turn.model + 1)
    return send(step, event.at, context, attempt=1)


def ask_without_suspect(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> LlmRequesting:
    """The model refused the content of the request. The same request is sent with a note in place of what it probably
    refused."""
    suspect = _withhold_suspect(step, event, context)
    step.change_turn(withheld=(*step.turn.withheld, suspect))
    if suspect == "memory":
        step.change_turn(memory=None)
    return send(step, event.at, context, attempt=1)


def ask_without_old_results(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> LlmRequesting:
    """The request did not fit the window. The same request is sent without old results of tools."""
    clear(step, context)
    return send(step, event.at, context, attempt=1)


def give_up_words(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> None:
    """The model refused what people said in this turn, and there is nothing to ask without it. The turn fails, and the
    next one shows a note in its place."""
    _withhold_suspect(step, event, context)
    texts = context.policy.texts
    reasons = [event.sentence, texts.words_withheld]
    if "instructions" in event.held:
        reasons.append(texts.instructions_refused)
    step.fail(event.kind, " ".join(filter(None, reasons)))


def _withhold_suspect(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> Suspect:
    suspect = first_suspect(step.turn, event)
    assert suspect is not None, "the guard of this row finds a suspect"
    model = asked_model(step.turn, context)
    step.withhold(WithholdContent(suspect=suspect, kind=event.kind, model=model))
    return suspect


def give_up(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> None:
    """No attempt and no model is left, or another attempt could not succeed."""
    attempt = step.state.attempt
    if may_compact_for(step, event, context) or uses_up_budget(step, event, context):
        name_limit(step, event, context)
    sentence = event.sentence if attempt == 1 else f"Failed after {attempt} attempts: {event.sentence}"
    if type(event) is LlmFailed and "instructions" in event.held:
        sentence = f"{sentence} {context.policy.texts.instructions_refused}".rstrip()
    step.fail(event.kind, sentence)


def ask_again(step: StepBuilder[RetryWaiting], event: RetryDue, context: Context) -> LlmRequesting:
    """The next attempt is sent to the same model."""
    return send(step, event.at, context, attempt=step.state.attempt)


def ask_for_answer(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is claimed to be complete, but nothing was said to the user: the model is asked once for its answer."""
    step.set_nudge(Made(text=context.policy.texts.answer_missing))
    step.change_turn(asked_to_speak=True)


def verify(step: StepBuilder[State], event: Event, context: Context) -> Verifying:
    """The claim is checked against what the user receives."""
    effect_id = step.next_id()
    step.add_effect(_verify_effect(effect_id, step.turn, context))
    return step.within_turn(Verifying, effect_id=effect_id)


def _verify_effect(effect_id: int, turn: TurnRecord, context: Context) -> VerifyWork:
    """The check that this turn wants. `Pure.`"""
    assert turn.claim is not None, "only a claim is checked"
    return VerifyWork(effect_id=effect_id, claim=turn.claim, deliverable=deliverable(turn, context))


@asked_again(VerifyWork)
def _verify_again(state: Verifying, effect_id: int, at: datetime, context: Context) -> VerifyWork:
    """The check that the turn of this state wants. `Pure.`"""
    return _verify_effect(effect_id, state.turn, context)


def end_verified(step: StepBuilder[Verifying], event: WorkVerified, context: Context) -> None:
    """The claim holds, and the turn ends with what was checked."""
    step.spend(event.usage)
    turn = step.turn
    if turn.output is None and lacks_answer(turn, context):
        name_limit(step, event, context)
    step.conclude("completed", turn.final or turn.claim, output=turn.output)


def send_back(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> None:
    """The claim does not hold. The model is told why and what is missing, in each request until it claims again."""
    reject(step, event)
    step.change_turn(claim=None, rejection=step.heard())
    if step.turn.output is not None:
        step.change_turn(output=None)


def end_unverified(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> None:
    """The claim failed too often: the turn ends as incomplete, with the reason, and what was said is delivered."""
    reject(step, event)
    if may_fail_again(step.turn.rejections, event, context):
        name_limit(step, event, context)
    sentence = event.reason if isinstance(event, WorkVerified) else event.sentence
    failure = Failure(kind="unverified", sentence=sentence)
    step.conclude("incomplete", step.turn.final or step.turn.claim, failure=failure)


def reject(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed) -> None:
    """Count the failed check. A check that could not be made counts as failed."""
    if isinstance(event, WorkVerified):
        step.spend(event.usage)
    step.change_turn(rejections=step.turn.rejections + 1)


def go_on(step: StepBuilder[Compacting], event: HistoryCompacted, context: Context) -> None:
    """The window has room again. Results that were compacted cannot be reused, so the calls that brought them may be
    made again."""
    step.window_used = step.clearable = 0
    if step.in_turn:
        step.spend(event.usage)
        step.change_turn(condensed=True, earlier_calls=())


def try_again(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> Compacting:
    """The failure is transient, so the compaction is tried again."""
    state, effect_id = step.state, step.next_id()
    step.add_effect(compact_effect(effect_id, state.up_to, state.turn))
    return step.same(effect_id=effect_id, attempt=state.attempt + 1, resumes=0)


def give_up_compaction(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> None:
    """The request does not fit and cannot be made to fit."""
    step.fail(event.kind, event.sentence)


def stop(step: StepBuilder[Compacting], event: Event, context: Context) -> None:
    """The compaction is stopped, and the history stays as it is."""
    step.add_effect(Abort(effect_id=step.state.effect_id))


def leave(step: StepBuilder[Compacting], event: Branching, context: Context) -> None:
    """The compaction is stopped, and the conversation goes to another branch."""
    stop(step, event, context)
    turns.change_branch(step, event, context)


def cancel(step: StepBuilder[Compacting], event: UserCancel, context: Context) -> None:
    """The compaction is stopped, and what the user has not heard of the newest turn is cut."""
    step.note_heard(event)
    stop(step, event, context)


def interrupt(step: StepBuilder[Compacting], event: UserMessage, context: Context) -> None:
    """The compaction is stopped, and the message begins a turn."""
    turns.interrupt(step, event, context)
    stop(step, event, context)


def close(step: StepBuilder[Compacting], event: CloseRequested, context: Context) -> None:
    """The compaction is stopped, and the conversation ends."""
    stop(step, event, context)
    step.closing = True
