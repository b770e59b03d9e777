"""The questions that the table asks, each a yes or a no; read them after "when"."""

from __future__ import annotations

from ..context import Context
from ..events import (
    AgentMessage,
    Answer,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    MessageWithdrawn,
    Resumed,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WorkVerified,
)
from ..policy.nudges import after_empty, due_nudge, wants_text
from ..policy.policy import Limits, Policy, Recent
from ..projections.reply_text import text_of_reply
from ..states import (
    AwaitingApproval,
    AwaitingPerson,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Busy,
    Compacting,
    Failed,
    InDoubt,
    InRound,
    LlmRequesting,
    State,
    ToolExecuting,
    Verifying,
)
from ..step_builder import StepBuilder
from ..values.acts import SubAgents
from ..values.failures import TRANSIENT
from ..values.inbox import MAX_INBOX
from ..values.messages import Usage
from ..values.questions import overanswered_question, unanswered_question, unknown_question
from ..values.turn import TurnRecord

# --- about a response


def calls_are_cut_off(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The provider stopped writing before the calls were complete (case P41)."""
    return bool(event.tool_calls) and event.finish_reason == "length"


def wants_tools_too_late(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """Tools are wanted although this was the last request of the turn's budget (case J12)."""
    return bool(event.tool_calls) and draft.turn.requests >= context.policy.limits.requests


def fills_window(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """Tools are wanted, but there is no room for what they would bring (case P21), and a request would follow."""
    leaves_no_room = bool(event.tool_calls) and is_full(draft, context, event.usage.tokens)
    return leaves_no_room and not _spends_budget(draft, event, context)


def fills_window_again(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The same, though the history was condensed just before."""
    return draft.turn.condensed and fills_window(draft, event, context)


def asks_beside_others(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """A question stands beside other calls, and the policy wants it alone (case P13)."""
    if context.policy.questions.alongside != "alone" or len(event.tool_calls) < 2:
        return False
    return any("question" in call.acts for call in event.tool_calls)


def wants_tools(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools."""
    return bool(event.tool_calls)


def only_thinks(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model reasoned and is not done (seed 001). Cut off, or asked the same again, it would think for ever; and who
    has said by tool what there was to say is done (case B7)."""
    is_done = bool(draft.turn.said) and not wants_text(draft.turn, context)
    goes_on = event.finish_reason != "length" and not draft.turn.only_thought and not is_done
    return goes_on and not event.content.strip() and bool(event.thinking.strip())


def says_nothing(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response has no text, and one is wanted; seen after calls and thoughts, it has nothing at all (case J13)."""
    return wants_text(draft.turn, context) and not text_of_reply(event.content, context.policy).strip()


def must_be_nudged(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The turn would end short of what the rules ask for, and may ask the model once more (cases S10, B6, D7)."""
    due = due_nudge(draft.turn, context, text=event.content)
    return due is not None and event.finish_reason != "length" and not _spends_budget(draft, event, context)


def may_be_prompted_again(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """After a response with nothing in it there is another way to ask, and a request left for it (case J11)."""
    return after_empty(draft.turn, context) is not None and not budget_is_spent(draft, event, context)


# --- about a failed request


def may_retry(draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure passes by itself, and this model has attempts left."""
    return event.kind in TRANSIENT and _wait(draft, event, context) is not None


def has_next_model(draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure passes by itself, and the policy names a model that was not asked yet (case P11)."""
    return event.kind in TRANSIENT and draft.turn.model + 1 < len(context.policy.models)


def fails_for_lack_of_room(
    draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context
) -> bool:
    """The request was larger than the model's window, condensing has not been tried for it yet, and a request would
    follow."""
    condenses = type(context.policy.dialogue) is not Recent and not draft.turn.condensed
    return event.kind == "context_window" and condenses and not budget_is_spent(draft, event, context)


def _wait(draft: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> float | None:
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    return context.policy.retry.wait(draft.state.attempt, retry_after)


# --- about the turn


def profile_is_open(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The router has something to choose (case J2)."""
    return context.policy.route and len(context.policy.profiles) > 1


def needs_memory(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """Something of the past that the transcript does not hold belongs to this turn (cases J3, J4)."""
    return may_search(draft.turn, context.policy) or type(context.policy.dialogue) is Recent


def may_search(turn: TurnRecord, policy: Policy) -> bool:
    """Older conversations may be searched for the profile of this turn."""
    return policy.recall and all(profile.recall for profile in policy.profiles if profile.name == turn.profile)


def window_is_full(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The last request left no room for another (case P22)."""
    return is_full(draft, context, draft.window_used) and not draft.turn.condensed


def is_full(draft: StepBuilder[State], context: Context, used: int) -> bool:
    """A request of so many tokens leaves no room for another."""
    window = context.policy.models[draft.turn.model].window
    if window is None or type(context.policy.dialogue) is Recent:
        return False
    return used >= context.policy.window * window


def is_in_turn(draft: StepBuilder[Compacting], event: Event, context: Context) -> bool:
    """The history is condensed for a request of a turn, and not at rest."""
    return draft.in_turn


def is_still_failed(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The history was condensed while a failed turn waits to be tried again."""
    return type(draft.state) is Compacting and draft.state.failed is not None


def may_condense_again(draft: StepBuilder[Compacting], event: EffectFailed, context: Context) -> bool:
    """The failure passes by itself, and attempts are left (case P21)."""
    return event.kind in TRANSIENT and draft.state.attempt < context.policy.retry.attempts


def replies_on_failure(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """A turn that cannot go on ends with a reply instead of resting in Failed (case J16)."""
    return context.policy.on_failure == "reply"


def wants_summary(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn ended well, and a summary of it is wanted."""
    ending = draft.ending
    return context.policy.summarize and ending is not None and ending.status == "completed"


def may_resume(draft: StepBuilder[Busy], event: Resumed, context: Context) -> bool:
    """It waits for a person, or not too many processes have died over it."""
    return not draft.state.works or draft.state.resumes < context.policy.recovery.resumes


def budget_is_spent(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """No further model request is allowed in this turn."""
    return _leaves_no_request(context.policy.limits, draft.turn, event, draft.turn.spent)


def _spends_budget(
    draft: StepBuilder[State], event: LlmResponse | WorkVerified | EffectFailed, context: Context
) -> bool:
    """The same for the guard of a row, which is asked before the cost of this very answer is counted."""
    spent = draft.turn.spent if isinstance(event, EffectFailed) else draft.turn.spent + event.usage
    return _leaves_no_request(context.policy.limits, draft.turn, event, spent)


def _leaves_no_request(limits: Limits, turn: TurnRecord, event: Event, spent: Usage) -> bool:
    return turn.requests >= limits.requests or _is_used_up(limits, turn, event, spent)


def _is_used_up(limits: Limits, turn: TurnRecord, event: Event, spent: Usage) -> bool:
    return (
        (limits.tokens is not None and spent.tokens >= limits.tokens)
        or (limits.cost is not None and (spent.cost or 0.0) >= limits.cost)
        or (limits.seconds is not None and (event.at - turn.since).total_seconds() >= limits.seconds)
    )


def is_closing(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The conversation ends with this turn."""
    return draft.closing


def comes_too_late(draft: StepBuilder[Busy], event: UserCancel, context: Context) -> bool:
    """A late click: it was meant for a turn or a question that is over (case P40)."""
    state = draft.state
    if event.turn not in (None, draft.turns):
        return True
    if event.call_id is None:
        return False
    return not isinstance(state, AwaitingPerson) or event.call_id != state.call.call_id


def may_wait(draft: StepBuilder[Busy], event: UserMessage, context: Context) -> bool:
    """The message, or else the policy, says that it waits, and there is room."""
    return (event.when_busy or context.policy.when_busy) != "refuse" and len(draft.inbox) < MAX_INBOX


def has_room(draft: StepBuilder[Busy], event: AgentMessage, context: Context) -> bool:
    """The inbox is not full."""
    return len(draft.inbox) < MAX_INBOX


def is_silent(draft: StepBuilder[State], event: AgentMessage, context: Context) -> bool:
    """The message wakes nobody (case D6)."""
    return event.silent


def still_waits(draft: StepBuilder[Busy | Failed], event: MessageWithdrawn, context: Context) -> bool:
    """The message has not entered the transcript."""
    return any(waiting.event_id == event.message_id for waiting in draft.inbox)


def something_waits(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox holds a message that wakes."""
    return any(not waiting.silent for waiting in draft.inbox)


# --- about the round


def round_goes_on(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """A tool still runs, or one may start."""
    return bool(draft.open_round.running) or may_start_tool(draft, event, context)


def may_start_tool(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """A call waits whose turn it is, and the limits allow it."""
    return draft.open_round.next_to_start(context.policy.parallel) is not None and _tools_are_left(
        draft, event, context
    )


def needs_approval(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The next call runs only if a person allows it, and the limits would let it run (case P36)."""
    return draft.open_round.next_to_approve is not None and _tools_are_left(draft, event, context)


def _tools_are_left(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    limits, turn = context.policy.limits, draft.turn
    within_count = limits.tool_calls is None or turn.tool_calls < limits.tool_calls
    return within_count and not _is_used_up(limits, turn, event, turn.spent)


def names_the_call(draft: StepBuilder[AwaitingApproval], event: ToolApproval, context: Context) -> bool:
    """It is about the call that waits now, and not an earlier one (case P40)."""
    return event.call_id == draft.state.call.call_id


def something_is_at_work(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """Some call was started and has not ended, or a sub-agent works."""
    return draft.round is not None and bool(draft.round.effect_ids)


def something_is_in_doubt(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """Nobody knows whether some call ran."""
    return bool(draft.open_round.doubtful)


def round_claims_work(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """The work is claimed to be complete, and every call of the round came to good (case S9)."""
    round_ = draft.open_round
    return not round_.queued and not round_.failed and (round_.claim or draft.turn.claim) is not None


def runs_alone(draft: StepBuilder[ToolExecuting], event: Answer, context: Context) -> bool:
    """Nothing else runs, so the machine may rest until the person answers."""
    return len(draft.open_round.running) == 1


def spawns_children(draft: StepBuilder[ToolExecuting], event: ToolComplete, context: Context) -> bool:
    """The tool starts sub-agents, and is one that may."""
    call = draft.open_round.call(event.effect_id)
    is_spawn = len(event.result.acts) == 1 and isinstance(event.result.acts[0], SubAgents) and not event.result.error
    return is_spawn and "children" in call.acts and call.exclusive and runs_alone(draft, event, context)


def others_work(
    draft: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> bool:
    """More than this sub-agent were still at work."""
    return len(draft.open_round.unfinished) > 1


# --- about a crash


def may_not_run_twice(draft: StepBuilder[InRound], event: ToolInterrupted, context: Context) -> bool:
    """The tool has promised nothing that would allow to run the call again."""
    return draft.open_round.named(event.call_id).crash == "at_most_once"


def did_not_run(draft: StepBuilder[InRound], event: ToolReconciled, context: Context) -> bool:
    """The tool knows that the call did not run."""
    return event.verdict == "did_not_run"


def is_unknown(draft: StepBuilder[InRound], event: ToolReconciled, context: Context) -> bool:
    """The tool cannot say whether the call ran."""
    return event.verdict == "unknown"


def is_asking_about(draft: StepBuilder[InRound], event: EffectFailed, context: Context) -> bool:
    """What failed was the question whether the call ran."""
    return draft.open_round.started(event.effect_id).reconciling == event.effect_id


def names_a_doubt(draft: StepBuilder[InDoubt], event: DoubtResolved, context: Context) -> bool:
    """It is about a call that is in doubt."""
    return event.call_id in draft.open_round.doubtful


# --- about a claim of completed work


def work_is_claimed(draft: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model claimed before that the work is complete; what it says now does not undo that (case S6)."""
    return draft.turn.claim is not None


def must_speak_first(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """Nothing was said to the user, and the model was not asked for it yet (case S17)."""
    turn, policy = draft.turn, context.policy
    is_heard = bool(turn.said or turn.deliveries) or (policy.text == "reply" and turn.final is not None)
    return not is_heard and not turn.asked_to_speak and not budget_is_spent(draft, event, context)


def must_be_checked(draft: StepBuilder[State], event: Event, context: Context) -> bool:
    """Claims are verified here."""
    return context.policy.verify > 0


def was_verified(draft: StepBuilder[Verifying], event: WorkVerified, context: Context) -> bool:
    """The claim holds."""
    return event.passed


def may_try_again(draft: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> bool:
    """The check may fail once more, and there is a request left for mending it (case S11). Where nobody can check, no
    other claim would fare better."""
    if isinstance(event, EffectFailed) and event.kind == "unavailable":
        return False
    return draft.turn.rejections + 1 < context.policy.verify and not _spends_budget(draft, event, context)


# --- about a question


def is_complete(draft: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> bool:
    """The answer is to what is asked now, and answers it: every question, nothing else (case P14)."""
    state = draft.state
    if event.call_id is not None and event.call_id != state.call.call_id:
        return False
    return context.policy.questions.partial or (
        unknown_question(state.questions, {**event.answers, **event.annotations}) is None
        and unanswered_question(state.questions, event.answers) is None
        and overanswered_question(state.questions, event.answers) is None
    )


def declines(draft: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> bool:
    """A cancelled question lets the model go on (case P17)."""
    return context.policy.questions.cancel == "resume"
