"""The questions that the table asks, each a yes or a no; read them after "when"."""

from __future__ import annotations

from .context import Context
from .draft import Draft
from .events import (
    AskUserQuestionPending,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    MessageWithdrawn,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from .failures import TRANSIENT
from .inbox import MAX_INBOX
from .policy import Limits
from .questions import overanswered_question, unanswered_question, unknown_question
from .states import (
    AwaitingApproval,
    AwaitingPerson,
    AwaitingUserResponse,
    Busy,
    Failed,
    LlmRequesting,
    State,
    ToolExecuting,
)
from .turn import TurnRecord

# --- about a response


def calls_are_cut_off(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The provider stopped writing before the calls were complete (case P41)."""
    return bool(event.tool_calls) and event.finish_reason == "length"


def wants_tools_too_late(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """Tools are wanted although this was the last request, sent without tools."""
    return bool(event.tool_calls) and draft.state.tools_off


def asks_beside_others(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """A question stands beside other calls, and the policy wants it alone (case P13)."""
    if context.policy.questions.alongside != "alone" or len(event.tool_calls) < 2:
        return False
    return any("question" in call.acts for call in event.tool_calls)


def wants_tools(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools."""
    return bool(event.tool_calls)


def only_thinks(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model reasoned and is not done (seed 001). Cut off, or asked the same again, it would think for ever."""
    goes_on = event.finish_reason != "length" and not draft.turn.only_thought
    return goes_on and not event.content.strip() and bool(event.thinking.strip())


def says_nothing(draft: Draft[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response has no text; seen after calls and thoughts, it has nothing at all."""
    return not event.content.strip()


# --- about a failed request


def may_retry(draft: Draft[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure passes by itself, and this model has attempts left."""
    return event.kind in TRANSIENT and _wait(draft, event, context) is not None


def has_next_model(draft: Draft[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure passes by itself, and the policy names a model that was not asked yet (case P11)."""
    return event.kind in TRANSIENT and draft.turn.model + 1 < len(context.policy.models)


def _wait(draft: Draft[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> float | None:
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    return context.policy.retry.wait(draft.state.attempt, retry_after)


# --- about the turn


def budget_is_spent(draft: Draft[State], event: Event, context: Context) -> bool:
    """No further model request is allowed in this turn."""
    limits, turn = context.policy.limits, draft.turn
    return turn.requests >= limits.requests or _is_used_up(limits, turn, event)


def _is_used_up(limits: Limits, turn: TurnRecord, event: Event) -> bool:
    return (
        (limits.tokens is not None and turn.spent.tokens >= limits.tokens)
        or (limits.cost is not None and (turn.spent.cost or 0.0) >= limits.cost)
        or (limits.seconds is not None and (event.at - turn.since).total_seconds() >= limits.seconds)
    )


def is_closing(draft: Draft[State], event: Event, context: Context) -> bool:
    """The conversation ends with this turn."""
    return draft.closing


def comes_too_late(draft: Draft[Busy], event: UserCancel, context: Context) -> bool:
    """A late click: it was meant for a turn or a question that is over (case P40)."""
    state = draft.state
    waits_for = state.call.call_id if isinstance(state, AwaitingPerson) else None
    return event.turn not in (None, draft.turn.number) or event.call_id not in (None, waits_for)


def may_wait(draft: Draft[Busy], event: UserMessage, context: Context) -> bool:
    """The message, or else the policy, says that it waits, and there is room."""
    return (event.when_busy or context.policy.when_busy) != "refuse" and len(draft.inbox) < MAX_INBOX


def still_waits(draft: Draft[Busy | Failed], event: MessageWithdrawn, context: Context) -> bool:
    """The message has not entered the transcript."""
    return any(waiting.event_id == event.message_id for waiting in draft.inbox)


def something_waits(draft: Draft[State], event: Event, context: Context) -> bool:
    """The inbox holds a message."""
    return bool(draft.inbox)


# --- about the round


def round_goes_on(draft: Draft[State], event: Event, context: Context) -> bool:
    """A tool still runs, or one may start."""
    return bool(draft.open_round.running) or may_start_tool(draft, event, context)


def may_start_tool(draft: Draft[State], event: Event, context: Context) -> bool:
    """A call waits whose turn it is, and the limits allow it."""
    return draft.open_round.next_to_start(context.policy.parallel) is not None and _tools_are_left(
        draft, event, context
    )


def needs_approval(draft: Draft[State], event: Event, context: Context) -> bool:
    """The next call runs only if a person allows it, and the limits would let it run (case P36)."""
    return draft.open_round.next_to_approve is not None and _tools_are_left(draft, event, context)


def _tools_are_left(draft: Draft[State], event: Event, context: Context) -> bool:
    limits, turn = context.policy.limits, draft.turn
    within_count = limits.tool_calls is None or turn.tool_calls < limits.tool_calls
    return within_count and not _is_used_up(limits, turn, event)


def names_the_call(draft: Draft[AwaitingApproval], event: ToolApproval, context: Context) -> bool:
    """It is about the call that waits now, and not an earlier one (case P40)."""
    return event.call_id == draft.state.call.call_id


def tools_are_running(draft: Draft[State], event: Event, context: Context) -> bool:
    """Some call was started and has not ended."""
    return draft.round is not None and bool(draft.round.running)


def runs_alone(draft: Draft[ToolExecuting], event: AskUserQuestionPending, context: Context) -> bool:
    """Nothing else runs, so the machine may rest until the person answers."""
    return len(draft.state.round.running) == 1


# --- about a question


def is_complete(draft: Draft[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> bool:
    """The answer is to what is asked now, and answers it: every question, nothing else (case P14)."""
    state = draft.state
    if event.call_id is not None and event.call_id != state.call.call_id:
        return False
    return context.policy.questions.partial or (
        unknown_question(state.questions, {**event.answers, **event.annotations}) is None
        and unanswered_question(state.questions, event.answers) is None
        and overanswered_question(state.questions, event.answers) is None
    )


def declines(draft: Draft[AwaitingUserResponse], event: UserCancel, context: Context) -> bool:
    """A cancelled question lets the model go on (case P17)."""
    return context.policy.questions.cancel == "resume"
