"""The request to a model that a step asked for, written again by the code that writes it when the model is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...effects.model.performers.llm_request import RequestWriter
from ...effects.model.port import ModelRequest
from ...effects.model.request import CachedPrompt
from ...states.context import Context
from ...states.effects import RequestLlm
from ...states.errors import InvalidInput
from ...states.events import Answer, LlmResponse
from ...states.step import LogEntry
from ...states.transcript import Transcript
from .projection import ConversationProjection, ReadEntries

PAGE = 64
"""How many steps are read at once to find the answer to a request, which mostly is among the first of them."""


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
    """A request that the step `seq` asked for, the conversation as of that step, and the digest that was stored with
    the answer; None if there is no answer, or one without a digest."""

    seq: int
    effect: RequestLlm
    context: Context
    turn: int
    transcript: Transcript
    digest: str | None


async def asked_request(projection: ConversationProjection, read_entries: ReadEntries, seq: int) -> AskedRequest:
    """Return the request that the step `seq` asked for. What was said is taken from memory for the newest step, and
    from the log for others; no step is computed again.

    Raises `InvalidInput` if there is no such step, or if it asked for none, and `StoreError`.
    """
    newest, context = projection.seq, projection.context
    entries = await read_entries(seq - 1, seq) if 0 < seq <= newest else ()
    if not entries:
        raise InvalidInput(f"This conversation has no step {seq}.")
    (entry,) = entries
    effect = next((effect for effect in entry.effects if isinstance(effect, RequestLlm)), None)
    if effect is None:
        raise InvalidInput(f"The step {seq} asked no model for an answer.")
    if seq == newest:
        transcript = await projection.transcript_at(seq)
    else:
        transcript, context = await asyncio.to_thread(_read, await read_entries(0, seq))
    return AskedRequest(seq, effect, context, entry.turn, transcript, await _digest(read_entries, seq, effect))


def _read(entries: Iterable[LogEntry]) -> tuple[Transcript, Context]:
    """Return what was said in these entries, the first of a log, and the context after them."""
    transcript, context = Transcript(), Context()
    for entry in entries:
        transcript.add(entry)
        context = context.after(entry.event)
    return transcript, context


async def _digest(read_entries: ReadEntries, seq: int, effect: RequestLlm) -> str | None:
    """Return the digest that was stored with the answer to this effect of the step `seq`."""
    while entries := await read_entries(seq, seq + PAGE):
        for entry in entries:
            event = entry.event
            if isinstance(event, Answer) and event.effect_id == effect.effect_id:
                return (event.digest or None) if isinstance(event, LlmResponse) else None
        seq = entries[-1].seq
    return None


def written_request(conversation_id: str, asked: AskedRequest, writer: RequestWriter) -> RequestView:
    """Return the request as `writer` writes it now."""
    effect, context = asked.effect, asked.context
    prompt = CachedPrompt(conversation_id)
    offer = writer.offer_for(effect, context, asked.turn, prompt)
    request, digest = writer.write(effect, context, asked.turn, asked.transcript, offer, prompt)
    return RequestView(
        seq=asked.seq,
        effect_id=effect.effect_id,
        request=request,
        is_exact=None if asked.digest is None else asked.digest == digest,
        has_fresh_context=context.policy.fresh_context and not effect.plain,
    )
