"""The request to a model that a step asked for, written again by the code that writes it when the model is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...effects.model.performers.request_writer import RequestWriter
from ...effects.model.port import ModelRequest
from ...effects.model.request.prompt_cache import CachedPrompt
from ...states.context import Context
from ...states.effects import RequestLlm
from ...states.errors import InvalidInput
from ...states.events import LlmResponse
from ...states.log import LogEntry
from ...states.projections.transcript import Transcript
from ...states.states import pending
from .replayed_steps import ReplayedStep
from .step_view import checked_steps


@dataclass(frozen=True, kw_only=True)
class RequestView:
    """The `request` that the effect `effect_id` of the step `seq` asked for.

    `is_exact` says whether its digest is the one that was stored with the answer: False where the engine offers other
    tools now. None as long as there is no answer, and if an application's own performer has asked the model.
    With `has_fresh_context`, the request also had a note with the time and the place at its end, which is never stored.
    """

    seq: int
    effect_id: int
    request: ModelRequest
    is_exact: bool | None
    has_fresh_context: bool

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON, with those of the request beside them."""
        request = self.request
        return {
            "seq": self.seq,
            "effect_id": self.effect_id,
            "model": request.model,
            "messages": list(request.messages),
            "tools": list(request.tools),
            "tool_choice": request.tool_choice,
            "settings": request.settings.model_dump(mode="json", exclude_none=True),
            "is_exact": self.is_exact,
            "has_fresh_context": self.has_fresh_context,
        }


@dataclass(frozen=True)
class AskedRequest:
    """A request that a step asked for, the conversation as of that step, and the digest that was stored with the
    answer; None if there is no answer, or one without a digest."""

    effect: RequestLlm
    context: Context
    turn: int
    transcript: Transcript
    digest: str | None


def asked_request(entries: Iterable[LogEntry], seq: int) -> AskedRequest:
    """Return the request that the step `seq` asked for. `entries` is the log.

    Raises `InvalidInput` if there is no such step, or if it asked for none; `Damaged` if a step before it was made by
    another version of the state machine. `Pure.`
    """
    transcript = Transcript()
    steps = checked_steps(entries)
    for step in steps:
        transcript.add(step.entry)
        if step.entry.seq == seq:
            break
    else:
        raise InvalidInput(f"This conversation has no step {seq}.")
    effect = next((effect for effect in step.effects if isinstance(effect, RequestLlm)), None)
    if effect is None:
        raise InvalidInput(f"The step {seq} asked no model for an answer.")
    after = step.context.after(step.entry.event)
    return AskedRequest(effect, after, step.after.book.turn, transcript, _answered_digest(steps, effect.effect_id))


def _answered_digest(later: Iterable[ReplayedStep], effect_id: int) -> str | None:
    """Return the digest that was stored with the answer to this effect, by the steps behind the one that has it."""
    for step in later:
        if effect_id not in pending(step.before):
            return None
        event = step.entry.event
        if isinstance(event, LlmResponse) and event.effect_id == effect_id:
            return event.digest or None
    return None


def written_request(conversation_id: str, seq: int, asked: AskedRequest, writer: RequestWriter) -> RequestView:
    """Return the request as `writer` writes it now."""
    effect, context = asked.effect, asked.context
    offer = writer.offer_for(effect, context, asked.turn)
    prompt = CachedPrompt(conversation_id)
    request, digest = writer.write(effect, context, asked.turn, asked.transcript, offer, prompt)
    return RequestView(
        seq=seq,
        effect_id=effect.effect_id,
        request=request,
        is_exact=None if asked.digest is None else asked.digest == digest,
        has_fresh_context=context.policy.fresh_context and not effect.plain,
    )
