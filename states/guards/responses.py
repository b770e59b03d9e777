"""Guards about the model's response, and about a model request that failed."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, Event, LlmFailed, LlmResponse
from ..policy.models import models_of
from ..policy.policy import Recent
from ..replies.nudges import after_empty, due_nudge, wants_text
from ..replies.reply_text import text_of_reply
from ..state import State
from ..states import LlmRequesting
from ..step_builder import StepBuilder
from ..values.failures import TRANSIENT
from ..values.turn import TurnRecord
from .budgets import budget_is_spent, is_full, limit_used_up, spends_budget


def calls_are_cut_off(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The provider stopped the response before its calls were complete."""
    return bool(event.tool_calls) and event.finish_reason == "length"


def wants_tools_too_late(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools, but this was the last request that the turn may send."""
    return bool(event.tool_calls) and step.turn.requests >= context.policy.limits.requests


def fills_window(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools, their results would not fit into the window, and another request would follow."""
    leaves_no_room = bool(event.tool_calls) and is_full(step, context, event.usage.tokens)
    return leaves_no_room and not spends_budget(step, event, context)


def fills_window_again(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """As `fills_window`, although the history was just compacted."""
    return step.turn.condensed and fills_window(step, event, context)


def asks_beside_others(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response holds a question beside other calls, and the policy wants a question alone."""
    if len(event.tool_calls) < 2 or context.policy.questions.alongside != "alone":
        return False
    return any("question" in call.acts for call in event.tool_calls)


def wants_tools(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools."""
    return bool(event.tool_calls)


def only_thinks(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response holds only thinking, and the model is not done: it was not cut off, did not do the same in the
    response before, and has not yet said by tool everything that is wanted."""
    if event.content.strip() or not event.thinking.strip():
        return False
    is_done = bool(step.turn.said) and not wants_text(step.turn, context)
    return event.finish_reason != "length" and not step.turn.only_thought and not is_done


def says_nothing(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response has no text for people, although one is wanted."""
    return not text_of_reply(event.content, context.policy).strip() and wants_text(step.turn, context)


def must_be_nudged(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The turn would end without something that the policy asks for, and the model may be asked once more."""
    return is_nudge_due(step.turn, event, context) and not spends_budget(step, event, context)


def is_nudge_due(turn: TurnRecord, event: LlmResponse, context: Context) -> bool:
    """Whether the turn would end with this response without something that the policy asks for. `Pure.`"""
    return due_nudge(turn, context, text=event.content) is not None and event.finish_reason != "length"


def may_be_prompted_again(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """After an empty response there is another way to ask, and a request is left for it."""
    return after_empty(step.turn, context) is not None and not budget_is_spent(step, event, context)


def may_retry(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure is transient, and this model has attempts left."""
    transient = event.kind in TRANSIENT and _wait(step, event, context) is not None
    return transient and not uses_up_budget(step, event, context)


def has_next_model(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure is transient, and the policy names another model."""
    others = step.turn.model + 1 < len(models_of(context.policy, step.turn.profile))
    return event.kind in TRANSIENT and others and not uses_up_budget(step, event, context)


def uses_up_budget(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """Whether nothing is left of the turn's tokens, money or time after an answer that broke off and was paid for.
    `Pure.`"""
    if isinstance(event, EffectFailed) or not event.usage.is_anything:
        return False
    return limit_used_up(context.policy.limits, step.turn, event, step.turn.spent) is not None


def fails_for_lack_of_room(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The request was larger than the model's window, the history was not yet compacted for it, and another request may
    follow."""
    return may_compact_for(step, event, context) and not budget_is_spent(step, event, context)


def may_compact_for(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """Whether the request could fit after a compaction. `Pure.`"""
    condenses = type(context.policy.dialogue) is not Recent and not step.turn.condensed
    return event.kind == "context_window" and condenses


def _wait(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> float | None:
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    return context.policy.retry.wait(step.state.attempt, retry_after)
