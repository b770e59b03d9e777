"""The steps that several rows of the table end in: a turn begins, the model is asked, tools run, and the turn ends or
stops.

A junction is a question that many rows share, so its branches are written once, in `choices`; what these branches do is
here, in the order of a turn. BEGIN_TURN and AFTER_PROFILE find a turn its profile and its memory before the model is
asked. ASK_MODEL and FIT_WINDOW are the way to the model: all requests but retries pass there, so the limits, the window
and steered messages are looked at in one place. Where the window is nearly full, old results of tools are cleared
first, and the history is compacted only if that is not enough. NEXT_IN_ROUND runs the tools of a round, waits for a
person where a call needs one, and leaves the round in the end. END_TURN and GIVE_UP say what of a turn is delivered to
the user, and how it is left; STOP and ACKNOWLEDGED, how a turn ends that a person or a program stops, while what runs
must confirm that it stopped.

A handler that ends a turn first calls `StepBuilder.conclude`; the step that leaves the turn then says what was
delivered.

A handler that creates an effect with more fields than an id registers, with `asked_again`, how the same effect is
created for a state that waits for it, because an effect that was in flight when a process died is asked for again,
under the id that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, cast

from .context import Context
from .effects import (
    Abort,
    AwaitedEffect,
    CancelSubAgent,
    CompactHistory,
    ExecuteTool,
    NotifyParent,
    RecallMemory,
    RequestLlm,
    SelectProfile,
    SendToAgent,
    SpawnSubAgent,
    SummarizeTurn,
)
from .events import Answer, Branching, CloseRequested, Event, MessageEdited, UserCancel, waiting
from .guards import call_to_start, is_imported, lacks_answer, limit_reached, may_search
from .policy import Recent, models_of
from .replies import after_empty, left_owed, outstanding, spoken_and_delivered
from .states import (
    AwaitingApproval,
    Busy,
    Cancelling,
    Compacting,
    Failed,
    InDoubt,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    State,
    Summarizing,
    ToolExecuting,
)
from .step_builder import StepBuilder
from .values.messages import Heard, Joined, Made, Outcomes, Reminder, Said
from .values.output import WantedOutput
from .values.turn import Owed, TurnEnded, TurnRecord, Waiting, in_order
from .values.value import later

E = TypeVar("E", bound=AwaitedEffect)

Again: TypeAlias = Callable[[Any, int, datetime, Context], E]
"""Creates the effect with this id again, for a state that waits for it, at this moment."""

_AGAIN: dict[type[AwaitedEffect], Again[Any]] = {}


def asked_again(kind: type[E]) -> Callable[[Again[E]], Again[E]]:
    """Register the function that creates effects of this type again."""

    def register(make: Again[E]) -> Again[E]:
        _AGAIN[kind] = make
        return make

    return register


def again(state: Busy, effect_id: int, kind: type[E], at: datetime, context: Context) -> E:
    """Create the effect of this type again that the state waits for under this id. `Pure.`"""
    if kind in _AGAIN:
        return cast(E, _AGAIN[kind](state, effect_id, at, context))
    make: Callable[..., E] = kind
    return make(effect_id=effect_id)


def begin_turn(step: StepBuilder[State], at: datetime, context: Context) -> None:
    """Begin a turn with the first messages that wait. Those behind them begin turns of their own, even if they were to
    be steered into the turn that is over."""
    profiles = context.policy.profiles
    step.begin_turn(at, step.profile or (profiles[0].name if profiles else ""))
    known = () if step.goes_to is None else step.goes_to.again
    batch = step.take_batch()
    if naming := [one for one in batch if one.output]:
        _take_over_output(step, naming[-1])
    mail = [one for one in batch if one.audience is not None and not one.silent]
    if step.inbox:
        step.inbox = tuple(waiting.replace(steer=False) for waiting in step.inbox)
    if step.owed:
        _take_over_what_is_owed(step, at, context)
    if not mail:
        return
    relay = [one for one in mail if one.audience == "user" and one not in known]  # what is known is owed, or was told
    if relay and context.role == "foreground":
        _owe(step, relay, at, context)
    if context.policy.relay == "prompt_only" or any(one.audience == "agent" for one in mail):
        step.change_turn(internal=True)


def _take_over_output(step: StepBuilder[State], message: Waiting) -> None:
    """Let the answer have the form that this message names, the newest one that names any."""
    step.change_turn(output_from=message.seq, output_failures=0, output_errors=None)


def _take_over_what_is_owed(step: StepBuilder[State], at: datetime, context: Context) -> None:
    """Let the turn pass on what earlier turns did not. The agents whose messages have lapsed are told."""
    deadline = context.policy.relay_deadline
    if any(at < one.since for one in step.owed):  # the clock was set back: their time is counted from now
        step.owed = tuple(one.replace(since=min(one.since, at)) for one in step.owed)
    lapsed = tuple(one for one in step.owed if one.has_lapsed(at, deadline))
    if lapsed:
        return_to_senders(step, lapsed)
        step.owed = tuple(one for one in step.owed if one not in lapsed)
    overdue = tuple(one.said for one in step.owed)
    step.change_turn(relay=overdue, overdue=overdue)


def _owe(step: StepBuilder[State], mail: Iterable[Waiting], at: datetime, context: Context) -> None:
    """Let the turn pass these messages on to the user, and keep them until that is done."""
    owed = tuple(Owed(said=Heard(seq=one.seq), since=at, origin=one.origin) for one in mail)
    step.owed = (*step.owed, *owed)
    step.change_turn(relay=(*step.turn.relay, *(one.said for one in owed)))


def return_to_senders(step: StepBuilder[State], unread: Iterable[Waiting | Owed]) -> None:
    """Tell the agents that wrote these messages that nobody will read them."""
    for one in unread:
        if one.origin:
            said = one.said if isinstance(one, Owed) else Heard(seq=one.seq)
            step.add_effect(
                SendToAgent(effect_id=step.next_id(), target=one.origin, said=said, silent=True, returned=True)
            )


def select_profile(step: StepBuilder[State], event: Event, context: Context) -> ProfileSelecting:
    """The router chooses a profile."""
    effect_id = step.next_id()
    step.add_effect(SelectProfile(effect_id=effect_id))
    return step.within_turn(ProfileSelecting, effect_id=effect_id)


def recall(step: StepBuilder[State], event: Event, context: Context) -> MemoryRecalling:
    """What belongs to the turn is looked up: the last minutes, older conversations, documents."""
    effect_id = step.next_id()
    step.add_effect(_recall_effect(effect_id, step.turn, context))
    return step.within_turn(MemoryRecalling, effect_id=effect_id)


def _recall_effect(effect_id: int, turn: TurnRecord, context: Context) -> RecallMemory:
    """The search that this turn wants. `Pure.`"""
    policy = context.policy
    return RecallMemory(
        effect_id=effect_id,
        profile=turn.profile,
        search=may_search(turn, policy),
        recent=policy.dialogue.seconds if isinstance(policy.dialogue, Recent) else None,
        documents=policy.documents,
    )


@asked_again(RecallMemory)
def _recall_again(state: MemoryRecalling, effect_id: int, at: datetime, context: Context) -> RecallMemory:
    """The search that the turn of this state wants. `Pure.`"""
    return _recall_effect(effect_id, state.turn, context)


def request_model(step: StepBuilder[State], event: Event, context: Context) -> LlmRequesting:
    """The model is asked; steered and silent messages that wait enter the transcript first."""
    if step.inbox:
        _enter_waiting(step, event, context)
    step.take_over_profile()
    if event.at < step.turn.since:
        step.change_turn(since=event.at)  # the clock was set back: the turn's time is counted from now
    step.change_turn(requests=step.turn.requests + 1)
    return send(step, event.at, context, attempt=1)


def clear_results(step: StepBuilder[State], event: Event, context: Context) -> LlmRequesting:
    """Old results of tools are cleared, and the model is asked: no summary is needed yet."""
    clear(step, context)
    return request_model(step, event, context)


def clear(step: StepBuilder[State], context: Context) -> None:
    """Clear old results of tools. What is not shown any more cannot be reused, so the calls that brought it may be made
    again."""
    rules = context.policy.clear_results
    assert rules is not None, "the guard in front of this finds rules"
    step.clear_results(rules.rounds)
    step.change_turn(cleared=True, earlier_calls=())


def _enter_waiting(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Let the steered and silent messages that wait enter the transcript. Steering is human input."""
    entering = tuple(message for message in step.inbox if message.steer or message.silent)
    step.enter_transcript(entering)
    if naming := [one for one in entering if one.output]:
        _take_over_output(step, naming[-1])
    if any(message.steer for message in entering):
        take_human_input(step, event.at, context)
        step.change_turn(internal=False)


def send(step: StepBuilder[State], at: datetime, context: Context, *, attempt: int) -> LlmRequesting:
    """Send the request that the turn wants. A further attempt counts as the same request."""
    effect_id = step.next_id()
    step.add_effect(llm_request(effect_id, step.turn, at, context))
    return step.within_turn(LlmRequesting, effect_id=effect_id, attempt=attempt)


def llm_request(effect_id: int, turn: TurnRecord, at: datetime, context: Context) -> RequestLlm:
    """The request that this turn wants now. The last one of its budget goes out without tools, if the policy says so. A
    plain request reminds the model of nothing. `Pure.`"""
    policy, profile, is_plain = context.policy, turn.profile, turn.plain
    limits = policy.limits
    is_last = turn.requests >= limits.requests and limits.last == "answer_now"
    return RequestLlm(
        effect_id=effect_id,
        model=asked_model(turn, context),
        profile=profile,
        memory=turn.memory,
        nudge=None if is_plain else _nudge_of(turn, context),
        plain=is_plain,
        tool_choice="none" if is_last or is_plain else "auto",
        output=WantedOutput(seq=turn.output_from) if context.wants_output(turn) else None,
        at=at,
    )


def asked_model(turn: TurnRecord, context: Context) -> str:
    """The name of the model that this turn asks now. `Pure.`"""
    return models_of(context.policy, turn.profile)[turn.model].name


@asked_again(RequestLlm)
def _request_again(state: LlmRequesting, effect_id: int, at: datetime, context: Context) -> RequestLlm:
    """The request that the turn of this state wants, at this moment. `Pure.`"""
    return llm_request(effect_id, state.turn, at, context)


def _nudge_of(turn: TurnRecord, context: Context) -> Reminder | None:
    """What the model is reminded of in the next request: the messages for the user that earlier turns left, until
    something was said, why its newest claim was rejected, what is wrong with its newest typed answer, and the nudge."""
    rejection, nudge, errors = turn.rejection, turn.nudge, turn.output_errors
    others: tuple[Heard | Made, ...] = ()
    if turn.overdue and not (turn.said or turn.deliveries):
        others = (Made(text=context.policy.texts.overdue), *turn.overdue)
    if errors is not None:
        others = (*others, Made(text=context.policy.texts.output_invalid), errors)
    if not others and (rejection is None or nudge is None):
        return rejection or nudge
    return Joined(parts=(*others, *(one for one in (rejection, nudge) if one is not None)))


def compact(step: StepBuilder[State], event: Event, context: Context) -> Compacting:
    """The history does not fit: all of it is compacted, except for what people said in this turn."""
    return compact_up_to(step, step.seq)


def compact_up_to(step: StepBuilder[State], up_to: int) -> Compacting:
    """Compact what entered up to this step."""
    effect_id = step.next_id()
    turn = step.turn if step.in_turn else None
    step.add_effect(compact_effect(effect_id, up_to, turn))
    return Compacting(
        book=step.book, turn=turn, inbox=step.inbox, resumes=step.resumes, effect_id=effect_id, up_to=up_to
    )


def compact_effect(effect_id: int, up_to: int, turn: TurnRecord | None) -> CompactHistory:
    """The compaction for this turn, or, without one, at rest. `Pure.`"""
    since = None if turn is None else turn.tries_again or turn.number
    return CompactHistory(effect_id=effect_id, up_to=up_to, turn=since)


@asked_again(CompactHistory)
def _compact_again(state: Compacting, effect_id: int, at: datetime, context: Context) -> CompactHistory:
    """The compaction that this state waits for. `Pure.`"""
    return compact_effect(effect_id, state.up_to, state.turn)


def stop_at_limit(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn may not ask the model again and ends with the policy's sentence for that."""
    name_limit(step, event, context)
    conclude_with(step, limit_sentence(context))


def limit_sentence(context: Context) -> str:
    """The policy's sentence for a turn that ends at its limit; without one, that for a turn without an answer.
    `Pure.`"""
    texts = context.policy.texts
    return texts.limit if texts.limit.strip() else texts.ending


def name_limit(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Note the limit because of which the turn ends although the model should be asked again. The cost of the event
    must have been counted."""
    step.change_turn(limit=limit_reached(context.policy.limits, step.turn, event, step.turn.spent))


def conclude_with(step: StepBuilder[State], text: str) -> None:
    """End the turn as incomplete with this sentence, or, if it is empty, without any text."""
    if text.strip():
        step.persist(Made(text=text))
        step.conclude("incomplete", Made(text=text))
    else:
        step.conclude("incomplete")


def prompt_again(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The response was empty; the next request asks in other words."""
    again = after_empty(step.turn, context)
    assert again is not None, "the guard of this branch finds a way to ask again"
    step.change_turn(**again)


def wait_for_verdict(step: StepBuilder[State], event: Event, context: Context) -> InDoubt:
    """It is unknown whether a tool did its work; nothing new starts until a person has decided."""
    since = step.state.since if isinstance(step.state, InDoubt) else event.at
    return step.within_turn(InDoubt, round=step.round, since=since)


def start_tools(step: StepBuilder[State], event: Event, context: Context) -> ToolExecuting:
    """The calls that may run now start, in call order."""
    while (call := call_to_start(step, event, context)) is not None:
        effect_id = step.next_id()
        step.add_effect(ExecuteTool(effect_id=effect_id, call=call))
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
    if turn.output is not None:
        step.change_turn(output=None)
    step.end_round()


def leave_round_with_output(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Every call of the round has succeeded, and the typed answer that was given beside them is that of the turn."""
    output = step.turn.output
    leave_round(step, event, context)
    step.change_turn(output=output)


def settle_children(step: StepBuilder[State], context: Context, unfinished: str) -> None:
    """Give the call that started the sub-agents its result. Sub-agents that still work count with the text
    `unfinished`."""
    children = step.round.children
    if not children:
        return
    statuses = tuple(child.status or "cancelled" for child in children)
    texts = tuple(child.outcome or Made(text=unfinished) for child in children)
    typed = tuple(place for place, child in enumerate(children) if child.is_json)
    failed = any(status != "completed" for status in statuses)
    step.settle(children[0].call_id, Outcomes(statuses=statuses, parts=texts, typed=typed), error=failed)
    step.round = step.round.replace(children=())


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


def summarize(step: StepBuilder[State], event: Event, context: Context) -> Summarizing:
    """What is due to the user is delivered, and a summary for display is written before the turn is left."""
    deliver(step, context)
    effect_id = step.next_id()
    step.add_effect(SummarizeTurn(effect_id=effect_id))
    return step.within_turn(Summarizing, effect_id=effect_id, ending=step.ending)


def end_turn(step: StepBuilder[State], event: Event, context: Context) -> None:
    """What is due to the user is delivered, and the turn is over."""
    deliver(step, context)
    leave_turn(step, context)


def end_empty(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The model said nothing. The turn ends with the policy's sentence for that, or for the limit because of which the
    model is not asked again, unless it is empty or the user receives something else: speech, or a message that is
    passed on."""
    sentence = context.policy.texts.ending
    if after_empty(step.turn, context) is not None:
        name_limit(step, event, context)
        sentence = limit_sentence(context)
    receives = step.turn.deliveries or outstanding(step.turn, None, context)
    conclude_with(step, "" if receives else sentence)


def end_with_output(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn has its typed answer. What is displayed, and delivered where the policy delivers text, is what the user
    is to receive of it."""
    final: Said | None = step.turn.final
    if final is None:  # every line of it is a part of the model's tool protocol
        final = Made(text=context.policy.texts.ending)
        step.persist(final)
    step.conclude("completed", final, output=step.turn.output)


def end_complete(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is done. What is displayed is the model's text, or else the summary in its claim."""
    if lacks_answer(step.turn, context):
        name_limit(step, event, context)
    step.conclude("completed", step.turn.final or step.turn.claim)


def reply_with_error(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn ends with a reply that says why there is no other."""
    failure = step.failure
    assert failure is not None, "a handler that gives up has called `fail`"
    texts = context.policy.texts
    reply = f"{texts.error} {failure.sentence}".strip() or texts.ending.strip()
    if reply:
        step.persist(Made(text=reply))
        step.conclude("failed", Made(text=reply), failure=failure)
    else:
        step.conclude("failed", failure=failure)


def rest_failed(step: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The turn failed and nothing goes on by itself. Silent messages enter the transcript; in an imported conversation
    others wait for a retry or for the next message."""
    failure = step.failure
    assert failure is not None, "a handler that gives up has called `fail`"
    fail_turn(step, event, context)
    step.enter_transcript(waiting for waiting in step.inbox if waiting.silent)
    return Failed(
        kind=failure.kind,
        sentence=failure.sentence,
        turn=step.turn.number,
        tried_again=step.turn.tries_again,
        output_from=step.turn.output_from,
        inbox=step.inbox,
        book=step.book,
    )


def fail_and_go_on(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn failed and is over, and the messages that waited begin the next one, as they would a moment later."""
    fail_turn(step, event, context)
    begin_turn(step, event.at, context)


def fail_turn(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn failed and is over."""
    step.conclude("failed", failure=step.failure)
    leave_turn(step, context)


def leave_turn(step: StepBuilder[State], context: Context) -> None:
    """The turn is over: record its outcome, in the log of a sub-agent also for its parent."""
    ending = step.ending
    assert ending is not None, "a handler that ends a turn has called `conclude`"
    turn, deliveries = step.turn, step.turn.deliveries
    step.owed = left_owed(step.owed, turn, ending.status)
    step.ended = ending.replace(
        usage=turn.usage,
        deliveries=deliveries,
        user_response=spoken_and_delivered(turn),
        silent=not deliveries,
        profile=turn.profile,
    )
    if context.role == "sub_agent":
        notify_parent(step, ending)


def notify_parent(step: StepBuilder[State], ending: TurnEnded) -> None:
    """The last text of a sub-agent is its result. Without such a text it failed, and a sentence of the policy may say
    why."""
    said, status = ending.final_content, ending.status
    if status in ("completed", "incomplete"):
        said = step.turn.final or step.turn.claim or said
        status = status if isinstance(said, Heard) else "failed"
    if ending.output is not None:
        step.add_effect(NotifyParent(effect_id=step.next_id(), status=status, said=ending.output, is_json=True))
    else:
        step.add_effect(NotifyParent(effect_id=step.next_id(), status=status, said=said))


def deliver(step: StepBuilder[State], context: Context) -> None:
    """Deliver what the turn has not delivered yet."""
    ending = step.ending
    assert ending is not None, "a handler that ends a turn has called `conclude`"
    failed = ending.status == "failed"
    for said, relayed in outstanding(step.turn, ending.final_content, context, failed=failed):
        step.deliver(said, relayed=relayed)


def take_cancel(step: StepBuilder[State], event: UserCancel, context: Context) -> None:
    """A person stops the turn, and may tell what they have heard of it."""
    step.note_heard(event)


def mark_closing(step: StepBuilder[State], event: CloseRequested, context: Context) -> None:
    """The conversation ends with this turn."""
    step.closing = True


def mark_branch(step: StepBuilder[State], event: Branching, context: Context) -> None:
    """The conversation goes to another branch once the turn has stopped. A new message begins a turn there."""
    step.goes_to = event.point
    if isinstance(event, MessageEdited):
        step.goes_to = event.point.replace(said=waiting(event, step.seq))


def go_to_branch(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Nothing is under way: the conversation goes to the other branch, if it is to. It stays if it ends instead, or was
    imported, since nothing goes on by itself then; a new message waits, or is withdrawn with those that do."""
    if (to := step.goes_to) is None:
        return
    if not (step.closing or is_imported(step, event, context)):
        step.switch_branch(to)
    elif to.said is not None:
        step.inbox = in_order((*step.inbox, to.said))


def abort_work(step: StepBuilder[State], event: Event, context: Context) -> Cancelling:
    """What runs is told to stop and must confirm that before a deadline."""
    abort_all(step)
    deadline = step.start_timer(later(event.at, context.policy.cancel_deadline), "deadline_reached")
    closing, goes_to = step.closing, step.goes_to
    return step.within_turn(Cancelling, round=step.round, deadline=deadline, closing=closing, goes_to=goes_to)


def stop_answer(step: StepBuilder[State], event: Event, context: Context) -> Cancelling:
    """The model is told to stop, and must hand over what it has written before a deadline."""
    assert isinstance(step.state, LlmRequesting), "the guard of this branch finds that the model is asked"
    step.begin_round(())
    return abort_work(step, event, context).replace(answering=step.state.effect_id)


def abort_all(step: StepBuilder[State], spared: Set[int | None] = frozenset()) -> None:
    """Stop everything in flight, except for the effects in `spared`."""
    in_flight = step.state.in_flight()
    for effect_id in sorted(in_flight.keys() - spared):
        stop = CancelSubAgent if in_flight[effect_id] is SpawnSubAgent else Abort
        step.add_effect(stop(effect_id=effect_id))


def wait_for_others(step: StepBuilder[State], event: Event, context: Context) -> Cancelling:
    """Something has not confirmed yet that it stopped."""
    state = step.state
    assert isinstance(state, Cancelling), "nothing else is at work beside a model that is asked"
    return state.replace(book=step.book, turn=step.turn, round=step.round, resumes=step.resumes)


def end_cancelled(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn is over: every call that is left gets its result, and nothing in flight is awaited any longer. What the
    model had written when it was stopped is what is displayed of the turn."""
    told = {step.state.answering, *step.state.round.effect_ids} if isinstance(step.state, Cancelling) else set()
    answered = {event.effect_id} if isinstance(event, Answer) else set()
    abort_all(step, told | answered)
    texts = context.policy.texts
    running = texts.in_doubt if is_imported(step, event, context) else texts.cancelled
    close_round(step, context, running=running, unrun=texts.skipped)
    kept = step.turn.final
    step.conclude("cancelled", kept if kept is not None and kept.seq == step.seq else None)
    leave_turn(step, context)
    go_to_branch(step, event, context)


def take_human_input(
    step: StepBuilder[State], at: datetime, context: Context, waited_since: datetime | None = None
) -> None:
    """Count the limits of the turn anew, because a person acted.

    Those of a sub-agent are its share of its parent's, so they go on; only the time since `waited_since`, in which it
    waited for the person, does not count.
    """
    if not context.has_one_task:
        step.reset_limits(at)
    elif waited_since is not None:
        leave_out_wait(step, waited_since, at)


def leave_out_wait(step: StepBuilder[State], since: datetime, at: datetime) -> None:
    """Do not count the time from `since` to `at`, in which a person was waited for, against the turn's limit."""
    waited = max(0.0, (at - since).total_seconds())
    step.change_turn(since=later(step.turn.since, waited))
