"""Laws 8 to 13: a turn can be stopped and left; how it ends, what it delivers, what it may use up, and what it hears.

A person can leave every state, and nothing leads out of a closed conversation. No message that arrives meanwhile is
lost, and what a model has refused is not shown to it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import get_args

from ...states.context import Context
from ...states.effects import (
    DeliverToUser,
    ExecuteTool,
    NotifyParent,
    RequestLlm,
    SelectProfile,
    SendToAgent,
    VerifyWork,
    WithholdContent,
)
from ...states.events import (
    Answer,
    CloseRequested,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    Request,
    Resumed,
    RetryRequested,
    ToolApproval,
    ToolInterrupted,
    ToolReconciled,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ...states.guards import ORDER_OF_SUSPICION
from ...states.policy import Limits
from ...states.replies import may_show_text, owes_answer, text_of_delivery
from ...states.states import (
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Closed,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    InTurn,
    LlmRequesting,
    State,
    Summarizing,
)
from ...states.values.messages import Heard, Made, Message, Said, Usage
from ...states.values.questions import Answers
from ...states.values.turn import BranchPoint, Delivered, LimitKind, TurnEnded, TurnRecord
from ...states.values.value import REFUSED_CONTENT
from ..history import History, LawBroken, observe, require
from ..ledgers import Spent, TurnSpeech

# --- every turn ends once


def can_be_stopped(history: History) -> None:
    """Law 8: a cancel ends what is under way in a few steps, whether it is acknowledged or only time passes. Where
    nothing runs it does nothing, and it never affects another turn than it names."""
    event, before = history.newest.event, history.newest.before
    if isinstance(event, UserCancel):
        acts = history.newest.step is not None
        require(
            acts == _has_object(event, before),
            "a cancel was not taken exactly where something is under way",
            history,
        )
    if isinstance(history.state, Busy):
        for patient in (True, False):
            after = _stop(history, UserCancel, patient=patient)
            goes_on = (
                bool(history.state.inbox) or _begins_elsewhere(history.state)
            ) and after.book.turn == history.state.book.turn + 1
            waits = isinstance(history.state, Compacting) and history.state.failed is not None
            rests = isinstance(after, Closed | Failed if waits else Closed | Idle)
            require(rests or goes_on, "a cancelled turn goes on", history)


def _begins_elsewhere(state: State) -> bool:
    """Whether a turn begins in another branch once this one has stopped."""
    to = _leaves_for(state)
    return to is not None and bool(to.messages)


def _leaves_for(state: State) -> BranchPoint | None:
    """The point in another branch to which the conversation goes once its turn has stopped. If it closes then, it
    stays where it is."""
    return state.goes_to if isinstance(state, Cancelling) and not state.closing else None


def _has_object(cancel: UserCancel, state: State) -> bool:
    """Whether what a person wants to stop is under way, or what they have heard of it is told."""
    if cancel.turn not in (None, state.book.turn):
        return False
    if isinstance(state, Idle | Failed | Closed | Cancelling):
        tells = cancel.heard is not None and state.book.turn > 0 and cancel.call_id is None
        return tells and not isinstance(state, Closed)
    return cancel.call_id in (None, state.waiting_call_id)


def _stop(history: History, kind: type[UserCancel | CloseRequested], *, patient: bool) -> State:
    """The state once what is under way has ended because a person stops it. Effects are acknowledged, or with `patient`
    the deadline passes instead."""
    state, context, at = history.state, history.context, history.newest.event.at
    turn = history.spending.turn
    wishes = _wishes(state, kind)
    for _ in range(4 + len(history.in_flight) + context.policy.parallel):
        wants = wishes and not (kind is UserCancel and isinstance(state, Cancelling))
        event = wishes.pop()(event_id="way out", at=at) if wants else _acknowledgement(state, at, patient)
        step = None if event is None else observe(state, event, context).step
        if step is None:
            break
        state = step.state
        if step.ended is not None:
            require(step.ended.turn == turn, "another turn ended", history)
        if step.ended is not None or turn is None:
            return state
    raise LawBroken(f"{state.type} cannot be stopped")


def _wishes(state: State, kind: type[UserCancel | CloseRequested]) -> list[type[UserCancel | CloseRequested]]:
    """The requests that a person has to make: none where it is stopping already; two cancels where a question is asked,
    since the turn may go on when a question is cancelled."""
    if isinstance(state, Cancelling) and (kind is UserCancel or state.closing):
        return []
    return [kind] * 2 if kind is UserCancel and isinstance(state, AwaitingUserResponse) else [kind]


def _acknowledgement(state: State, at: datetime, patient: bool) -> Event | None:
    if not isinstance(state, Cancelling):
        return None
    if patient:
        return DeadlineReached(effect_id=state.deadline.effect_id, at=at)
    return next(_acknowledgements(state, at), None)


def _acknowledgements(state: Cancelling, at: datetime) -> Iterator[Answer]:
    for effect_id, kind in state.in_flight().items():
        acknowledgement = kind.acknowledgement(effect_id, at)
        if acknowledgement is not None:
            yield acknowledgement


def keeps_what_was_stopped(history: History) -> None:
    """Law 8: what a model had written for people when it was stopped is in the transcript, as it came, marked, and
    without calls, unless its turn is hidden; it is the text of the turn, which is over. A model that had written
    nothing leaves nothing."""
    newest = history.newest
    if newest.step is None or not isinstance(newest.event, LlmStopped):
        return
    ended, seq = newest.step.ended, newest.after.book.seq
    require(ended is not None and ended.status == "cancelled", "a turn goes on whose model was stopped", history)
    kept = [message for message in history.transcript if message.seq == seq and message.role == "assistant"]
    content = newest.event.content
    final = Heard(seq=seq) if content.strip() else None
    is_kept = final is not None and _leaves_for(newest.before) is None
    wanted = [("cancelled", (), newest.event.spoken)] if is_kept else []
    facts = [(message.stopped, message.tool_calls, message.spoken) for message in kept]
    require(facts == wanted, "the transcript does not hold what the model had written", history)
    for message in kept:
        is_cut = message.heard is not None and content.startswith(message.text)
        require(message.text == content or is_cut, "the transcript holds other words than were written", history)
    require(ended is not None and ended.final_content == final, "the turn has another text than was written", history)


def can_be_left(history: History) -> None:
    """Law 9: in every state but Closed a person can go on, stop, and close for good."""
    state = history.state
    if isinstance(state, Closed):
        return
    for moves in _ways_on(state, history.newest.event.at):
        taken = [observe(state, move, history.context).step is not None for move in moves]
        require(all(taken), "what a person can do here is not taken", history)
    closed = _stop(history, CloseRequested, patient=True) if isinstance(state, Busy) else _close(history)
    require(isinstance(closed, Closed), "the conversation cannot be closed", history)


def _ways_on(state: State, at: datetime) -> Iterator[list[Request]]:
    """What a person must be able to do in a state."""
    if isinstance(state, Idle | Failed):
        yield [UserMessage(event_id="way out", at=at, text="Go on")]
    if isinstance(state, Failed):
        yield [RetryRequested(event_id="way out", at=at)]
    if state.waiting_call_id is not None:
        yield [_what_is_asked_for(state, at, state.waiting_call_id)]
    if isinstance(state, InDoubt):
        yield [_verdict(state, at, verdict) for verdict in get_args(DoubtResolved.model_fields["verdict"].annotation)]
    if isinstance(state, Busy) and not isinstance(state, Cancelling):
        yield [UserCancel(event_id="way out", at=at)]


def _what_is_asked_for(state: State, at: datetime, call_id: str) -> Request:
    asked = state.open_question
    if asked is None:
        return ToolApproval(event_id="way out", at=at, call_id=call_id, allowed=True)
    answers: Answers = {one.question: one.options[0].label if one.options else "Any" for one in asked.questions}
    return UserQuestionResponse(event_id="way out", at=at, answers=answers)


def _verdict(state: InDoubt, at: datetime, verdict: str) -> Request:
    given = {"event_id": "way out", "at": at, "call_id": state.call.call_id, "verdict": verdict}
    return DoubtResolved.model_validate(given)


def _close(history: History) -> State:
    close = CloseRequested(event_id="way out", at=history.newest.event.at)
    return observe(history.state, close, history.context).after


def stays_closed(history: History) -> None:
    """Law 10: nothing leads out of Closed."""
    if isinstance(history.newest.before, Closed):
        require(history.newest.step is None, "an event was taken after the conversation was closed", history)


def ends_each_turn_once(history: History) -> None:
    """Every turn ends once: the step that leaves it, and no other, says so, and what the turn has cost. The parent of a
    sub-agent is told in that step, and in no other, and the sub-agent closes with it."""
    newest = history.newest
    if newest.step is None:
        return
    ended, before, after = newest.step.ended, newest.before, newest.after
    ends = _is_in_turn(before) + after.book.turn - before.book.turn - _is_in_turn(after)
    require(ends == (ended is not None), "a turn ended without a record, or has a record without having ended", history)
    notified = sum(isinstance(effect, NotifyParent) for effect in newest.effects)
    is_child = newest.context.role == "sub_agent"
    require(notified == (ended is not None and is_child), "the parent is not notified once of each end", history)
    if ended is not None and newest.context.has_one_task:
        require(isinstance(after, Closed), "a sub-agent goes on after its task", history)
    if ended is not None:
        _require_true_ending(history, ended)


def _is_in_turn(state: State) -> bool:
    return isinstance(state, InTurn) or (isinstance(state, Compacting) and state.turn is not None)


def _require_true_ending(history: History, ended: TurnEnded) -> None:
    newest = history.newest
    replies = newest.context.policy.on_failure == "reply"
    rests_failed = isinstance(newest.after, Failed)
    failed = ended.status == "failed"
    require(ended.turn == newest.before.book.turn, "another turn ended", history)
    goes_on = newest.after.book.turn > ended.turn
    is_imported = isinstance(newest.event, Resumed) and newest.event.imported
    keeps_waiting = is_imported and any(not waiting.silent for waiting in getattr(newest.after, "inbox", ()))
    require(
        failed or keeps_waiting if rests_failed else not failed or replies or goes_on or newest.context.has_one_task,
        "the state and the record of the turn disagree about a failure",
        history,
    )
    cost = history.spending.costs.get(ended.turn, Usage())
    require(ended.usage == cost, "the cost is not what the requests cost", history)
    turn = getattr(newest.before, "turn", None)
    profile = "" if turn is None else turn.profile
    require(ended.profile == profile, "the record names another profile than the turn had", history)


Wanted = tuple[Said, bool]
"""A text to deliver, and whether another agent wrote it."""


def delivers_what_was_chosen(history: History) -> None:
    """Law 11: a speech for now is delivered when it is made, and what the policy chooses of the other speeches is
    delivered at the end of the turn: each once, in the order of the calls. The record of the turn agrees."""
    newest = history.newest
    if newest.step is None:
        return
    here = [effect for effect in newest.effects if isinstance(effect, DeliverToUser)]
    turn = history.speech.turns[newest.before.book.turn]
    counted = [effect.ordinal for effect in turn.delivered] == list(range(1, len(turn.delivered) + 1))
    require(counted and all(one in turn.delivered for one in here), "deliveries are not numbered by turn", history)
    before = [(one.said, one.relayed) for one in turn.delivered[: len(turn.delivered) - len(here)]]
    wanted: list[Wanted] = [(spoken.said, False) for spoken in history.speech.said_now if spoken.now]
    ending = _ending(history)
    if ending is not None:
        wanted += _chosen_at_the_end(turn, ending, history.context, (*before, *wanted))
    require([(one.said, one.relayed) for one in here] == wanted, "other deliveries than the policy chooses", history)
    if newest.step.ended is not None:
        _require_told(history, turn, newest.step.ended)


def _ending(history: History) -> TurnEnded | None:
    """How the turn ends, if it ends with this step."""
    newest = history.newest
    if isinstance(newest.before, Summarizing):
        return None
    if isinstance(newest.after, Summarizing):
        return newest.after.ending
    return None if newest.step is None else newest.step.ended


def _chosen_at_the_end(
    turn: TurnSpeech, ending: TurnEnded, context: Context, earlier: Sequence[Wanted]
) -> list[Wanted]:
    """What the end of a turn delivers: its speeches, its text if the policy shows it and there is a user, and the
    messages to relay, unless the turn has delivered words of its own agent."""
    text, policy = ending.final_content, context.policy
    failed = ending.status == "failed"
    if ending.status == "cancelled" or (text is None and failed):
        return []
    waiting = [(spoken.said, False) for spoken in turn.spoken if not spoken.now and not failed]
    chosen: list[Wanted] = list(waiting[-1:] if policy.speech.keep == "last" else waiting)
    is_silent = not (earlier or chosen)
    rule = ("fallback" if turn.speaks else "reply") if policy.text == "auto" else policy.text
    falls_back = is_silent and "fallback" in (rule, policy.silent)
    if text is not None and context.role == "foreground" and (failed or rule == "reply" or falls_back):
        chosen.append((text, False))
    is_told = any(isinstance(said, Heard) for said, _ in (*earlier, *chosen))
    passes_on = not is_told and context.role == "foreground" and policy.relay == "nudge_then_deliver"
    return [*chosen, *((said, True) for said in turn.relay if passes_on)]


def _require_told(history: History, turn: TurnSpeech, ended: TurnEnded) -> None:
    """The record of a turn names the deliveries that were made."""
    delivered = tuple(Delivered(effect_id=one.effect_id, said=one.said, relayed=one.relayed) for one in turn.delivered)
    require(ended.deliveries == delivered, "the record of the turn names other deliveries", history)
    speeches = [spoken.said for spoken in turn.spoken]
    heard = tuple(one.said for one in delivered if one.said in speeches)
    require(ended.user_response == heard, "the record of the turn names other speeches", history)
    require(ended.silent == (not delivered), "the record says wrongly whether the turn was silent", history)


def delivers_no_blank_text(history: History) -> None:
    """Law 11: what is delivered says something. Only a speech may be blank, where the policy delivers such a speech. A
    turn that a user waits for, and whose text they may see, does not end without any delivery, unless a person or a
    failure has ended it, or the policy has no sentence for its end."""
    newest, policy = history.newest, history.newest.context.policy
    if newest.step is None:
        return
    blank_speech = policy.speech.empty == "deliver"
    spoken = {one.said for turn in history.speech.turns.values() for one in turn.spoken} if blank_speech else set()
    for effect in (one for one in newest.effects if isinstance(one, DeliverToUser) and one.said not in spoken):
        text = text_of_delivery(history.said.words(effect.said), policy, relayed=effect.relayed)
        require(bool(text.strip()), "a blank text is delivered", history)
    turn, ended = getattr(newest.before, "turn", None), newest.step.ended
    if isinstance(turn, TurnRecord) and ended is not None and ended.status in ("completed", "incomplete"):
        says_why = bool(policy.texts.ending.strip())
        waits = owes_answer(turn, newest.context) and may_show_text(policy)
        require(not (waits and says_why and ended.silent), "a turn ended without a word to who waits for it", history)


def keeps_what_it_owes(history: History) -> None:
    """Law 13: a message for the user that a turn took up is kept, in every state, until a turn has passed it on, it has
    lapsed, or the conversation has closed; then the agent that wrote it is told."""
    newest = history.newest
    if newest.step is None:
        return
    owed = [(one.said, one.since) for one in newest.after.book.owed]
    wanted = list(history.speech.owed.items())
    require(owed == wanted, "the state owes the user other messages than were not passed on", history)
    returned = [one.said for one in newest.effects if isinstance(one, SendToAgent) and one.returned]
    told = all(said in returned for said in history.speech.given_up)
    require(told, "an agent is not told that its message never reached the user", history)


def checks_what_is_delivered(history: History) -> None:
    """Law 11: a claim that the work is complete is checked against what the user has received when the turn ends with
    this claim. Of an agent without a user its result is checked, too."""
    check, ending = history.effects.answered, _ending(history)
    if not isinstance(check, VerifyWork) or ending is None:
        return
    delivered = tuple(effect.said for effect in history.speech.turns[ending.turn].delivered)
    result = (ending.final_content,) if history.context.role != "foreground" else ()
    require(check.deliverable == (*delivered, *result), "the check did not see what was delivered", history)


def keeps_within_limits(history: History) -> None:
    """Law 12: requests and calls never exceed their limit, and nothing new is started once another limit is reached.
    All count anew when a person acts, except for those of a sub-agent. A request that is sent again and a call that
    runs again count once."""
    spending, effects = history.spending, history.effects
    spent, limits, newest = spending.spent, history.newest.context.policy.limits, history.newest
    requests = [effect for effect in newest.effects if isinstance(effect, RequestLlm)]
    again = isinstance(newest.event, ToolInterrupted | ToolReconciled)
    tools = [effect for effect in newest.effects if isinstance(effect, ExecuteTool)]
    if tools and limits.tool_calls is not None:
        require(spent.tool_calls <= limits.tool_calls, "more calls than the limit", history)
    if requests:
        require(spent.requests <= limits.requests, "more requests than the limit", history)
        last = limits.last == "answer_now" and spent.requests == limits.requests
        bare = last or requests[0].plain
        require((requests[0].tool_choice == "none") == bare, "the last request does not follow the limit", history)
    begins = isinstance(effects.answered, SelectProfile)  # a turn may always ask once
    if ((requests and not begins) or (tools and not again)) and not spending.sends_again:
        require(
            not _is_used_up(spent, limits, newest.event.at),
            "a request or call was started although a limit is reached",
            history,
        )


def _is_used_up(spent: Spent, limits: Limits, at: datetime) -> bool:
    return (
        (limits.tokens is not None and spent.usage.tokens >= limits.tokens)
        or (limits.cost is not None and (spent.usage.cost or 0.0) >= limits.cost)
        or (limits.seconds is not None and (at - spent.since).total_seconds() >= limits.seconds)
    )


def names_limits_truly(history: History) -> None:
    """Law 12: an end of a turn names a limit of the policy that is reached, and names one if the turn ends with the
    policy's sentence for that."""
    newest, ending = history.newest, _ending(history)
    if ending is None:
        return
    texts, limits = newest.context.policy.texts, newest.context.policy.limits
    if ending.limit is not None:
        spending = history.spending
        spent = spending.spent if newest.step is None or newest.step.ended is None else spending.at_end
        reached = _reached(ending.limit, spent, limits, newest.event.at)
        require(reached, "a turn names a limit that is not reached", history)
    elif texts.limit.strip() and texts.limit not in (texts.ending, texts.error):
        said_so = ending.status == "incomplete" and ending.final_content == Made(text=texts.limit)
        require(not said_so, "a turn was ended by a limit and does not name it", history)


def _reached(limit: LimitKind, spent: Spent, limits: Limits, at: datetime) -> bool:
    if limit == "requests":
        return spent.requests >= limits.requests
    alone = Limits.model_validate({limit: getattr(limits, limit)})
    return _is_used_up(spent, alone, at)


def loses_no_message(history: History) -> None:
    """Law 13: every message of people and agents has entered the transcript, was withdrawn or still waits: exactly one
    of these, once, and in order. One that is answered again in another branch enters once more."""
    messages, state = history.messages, history.state
    waiting = [message.seq for message in getattr(state, "inbox", ())]
    said = state.goes_to.said if isinstance(state, Cancelling) and state.goes_to is not None else None
    for seq, message in messages.taken.items():
        places = messages.entered[seq] + messages.withdrawn[message.event_id] + waiting.count(seq)
        places += said is not None and said.seq == seq
        wanted = 1 + messages.again[seq]
        require(places == wanted, f"the message of step {seq} is in {places} places", history)
    require(waiting == sorted(waiting), "the messages that wait are out of order", history)
    require(not waiting or messages.taken.keys() >= set(waiting), "a message waits that nobody sent", history)
    if messages.entering_now:
        _require_heard(history)


def _require_heard(history: History) -> None:
    """A message that enters the transcript can be read in it, once, under its id."""
    messages = history.messages
    said = Counter(message.message_id for message in history.transcript if message.role == "user")
    for seq in messages.entering_now:
        require(said[messages.taken[seq].event_id] == 1, f"the message of step {seq} cannot be read", history)


def gives_wanted_outputs(history: History) -> None:
    """A turn that wants a typed answer completes with a valid one, and with no other end. An attempt that is not valid
    is sent back as often as the policy says and no more; then the turn fails with the kind `output`, and for no other
    reason does it fail so, unless a performer says so itself. A valid answer that stands alone is never sent back."""
    newest, outputs = history.newest, history.outputs
    if newest.step is None:
        return
    ending, most = _ending(history), newest.context.policy.output_retries
    turn = getattr(newest.before, "turn", None)
    if ending is not None and isinstance(turn, TurnRecord):
        wanted = newest.context.wants_output(turn)
        given = ending.output is not None
        require(given == (wanted and ending.status == "completed"), "a turn completed without its answer", history)
        failed = ending.failure is not None and ending.failure.kind == "output"
        gives_up = outputs.fails_now and outputs.failures[ending.turn] > most
        says_so = isinstance(newest.event, LlmFailed | EffectFailed) and newest.event.kind == "output"
        require(
            failed == gives_up or says_so,
            "a turn fails for its answer, or goes on, at another time than it should",
            history,
        )
    if ending is not None and ending.output is not None:
        said = history.log[ending.output.seq - 1].event
        is_valid = isinstance(said, LlmResponse) and said.output is not None and said.output.is_valid
        require(is_valid, "the answer of a turn is not one that was valid", history)
        require(history.said.words(ending.output) != "", "the answer of a turn cannot be read", history)
    if outputs.wanted_now:
        require(outputs.failures[outputs.turn] <= most + 1, "an answer was sent back too often", history)


def withholds_what_was_refused(history: History) -> None:
    """A request that was refused for its content is never sent again as it was: something is withheld first, and no
    suspect twice before the model answers. What people said in a turn that was refused is shown to no model from then
    on, so the next message is asked without it."""
    newest = history.newest
    if newest.step is None:
        return
    withheld = [effect.suspect for effect in newest.effects if isinstance(effect, WithholdContent)]
    asks = any(isinstance(effect, RequestLlm) for effect in newest.effects)
    kind = newest.event.kind if isinstance(newest.event, LlmFailed) else None
    refused = kind in ORDER_OF_SUSPICION
    require(len(withheld) <= (1 if refused else 0), "something is withheld that was not refused", history)
    if refused and asks and newest.step.ended is None and kind in REFUSED_CONTENT:
        require(len(withheld) == 1, "a refused request is sent again as it was", history)
    if withheld and newest.step.ended is None:
        tried = newest.before.turn.withheld if isinstance(newest.before, LlmRequesting) else ()
        require(withheld[0] not in tried, "the same is withheld twice for one answer", history)
    if asks and history.refusals.refused:
        shown = [message for message in history.transcript if _is_refused(message, history.refusals.refused)]
        require(all(map(_is_withheld, shown)), "a model is shown words that were refused", history)


def _is_refused(message: Message, refused: dict[int, int]) -> bool:
    is_said = message.role == "user" and message.audience is None and bool(message.text.strip())
    return is_said and message.seq > refused.get(message.turn, message.seq)


def _is_withheld(message: Message) -> bool:
    return any(one.what == "text" for one in message.withheld)
