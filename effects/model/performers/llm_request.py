"""Asks the model for its next answer: builds the request from what is committed, and turns the answer into an event."""

from __future__ import annotations

import logging
from functools import partial

from ....states.context import Context
from ....states.dialogue import of_turn
from ....states.effects import RequestLlm
from ....states.events import LlmFailed, LlmResponse
from ....states.replies import TextRule, text_rule
from ....states.transcript import Transcript
from ....states.values.messages import Suspect, Usage
from ....states.values.value import REFUSED_CONTENT, UNEXPLAINED, encodable, unvalidated
from ...clock import Clock
from ...context import EffectContext, Progress
from ...effect_keys import mark_of
from ...location.locator import Locator
from ...logs import performer_logger
from ...printable import is_blank
from ...tools.registry import ToolRegistry
from ..port import LlmFailure, ModelAnswer, ModelRequest, Token
from ..request.context_assembly import held_content
from ..request.fresh_context import with_fresh_context, write_fresh_context
from ..request.prompt_cache import CachedPrompt, PromptCache
from ..request.provider_fields import provider_fields_of, storable_blocks
from ..request.tool_offer import ToolOffer
from .model_caller import ModelCaller, sentence_of
from .request_writer import RequestWriter, offered_to

logger = performer_logger("turnwise.planning")


class LlmRequestPerformer:
    """Carries out `RequestLlm`. `locator` tells where the user is, in conversations whose requests state that."""

    def __init__(self, caller: ModelCaller, tools: ToolRegistry, clock: Clock, locator: Locator | None = None) -> None:
        self._locator = Locator(None, clock) if locator is None else locator
        self._caller = caller
        self._tools = tools
        self._writer = RequestWriter(tools, caller.family_of)
        self._clock = clock
        self._prompts = PromptCache()

    async def __call__(self, effect: RequestLlm, context: EffectContext) -> LlmResponse | LlmFailed:
        """Ask, and answer with the response or with the failure."""
        prompt = self._prompts.prompt_of(context)
        offer = self._writer.offer_for(effect, context.context, context.turn, prompt)
        request, digest = self._write(effect, context, await context.transcript(), offer, prompt)
        if context.policy.fresh_context and not effect.plain:
            request = with_fresh_context(request, write_fresh_context(effect.at, await self._locator.describe()))

        show = partial(_show, context.progress, effect.effect_id, _shown_rule(context.context, offer))
        try:
            answer = await self._caller.ask(request, show)
        except LlmFailure as failure:
            return LlmFailed(
                effect_id=effect.effect_id,
                at=self._clock.now(),
                kind=failure.kind,
                sentence=sentence_of(failure),
                retry_after=failure.retry_after,
                held=await _held(failure, request, effect, context),
                usage=failure.usage,
            )
        return self._response(effect, request.model, digest, answer, context, offer)

    def _write(
        self, effect: RequestLlm, context: EffectContext, transcript: Transcript, offer: ToolOffer, prompt: CachedPrompt
    ) -> tuple[ModelRequest, str]:
        """Return what follows from the log: the request without the fresh context, and its digest. Nobody holds the
        transcript afterwards, while the model is asked."""
        if logger.isEnabledFor(logging.INFO):
            _log_request(context.turn, transcript, len(offered_to(effect, offer).definitions))
        return self._writer.write(effect, context.context, context.turn, transcript, offer, prompt)

    def _response(
        self, effect: RequestLlm, model: str, digest: str, answer: ModelAnswer, context: EffectContext, offer: ToolOffer
    ) -> LlmResponse:
        mark = mark_of(context.links.of(effect.effect_id))
        calls = self._tools.resolve_calls(
            effect.effect_id, answer.tool_calls, context.policy, offer.allowed, offer.caller, mark
        )
        response = unvalidated(
            LlmResponse,
            effect_id=effect.effect_id,
            at=self._clock.now(),
            content="" if is_blank(answer.content) else encodable(answer.content),
            thinking=encodable(answer.thinking),
            opaque=storable_blocks(answer.opaque, model),
            tool_calls=calls,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            model=model,
            digest=digest,
            speaks=offer.speaks,
            provider=provider_fields_of(answer, calls, self._caller.family_of(model), model),
        )
        # A model may fill fields with lists and dicts, as decoded JSON has them; they are converted here. What cannot
        # be converted fails this performer, under any dispatcher.
        return response if _is_plain(response) else LlmResponse(**vars(response))


async def _held(
    failure: LlmFailure, request: ModelRequest, effect: RequestLlm, context: EffectContext
) -> tuple[Suspect, ...]:
    """What the request held of what may have been the reason of this failure. If it was the answer that was refused,
    what people said is left alone: another answer to it may pass."""
    if failure.kind not in REFUSED_CONTENT and failure.kind not in UNEXPLAINED:
        return ()
    held = held_content(effect, context.context, await context.transcript(), context.turn, failure.kind)
    has_system = request.messages[:1] and request.messages[0]["role"] == "system"
    left_out = {*(() if has_system else ("instructions",)), *(("words",) if failure.of_answer else ())}
    return tuple(one for one in held if one not in left_out)


def _is_plain(response: LlmResponse) -> bool:
    """Whether the fields that are taken from an answer as they are need no conversion. A model may be anybody's."""
    fields = vars(response)
    reason = fields["finish_reason"]
    return fields["opaque"] == () and type(reason) is str and reason.isascii() and type(fields["usage"]) is Usage


def _shown_rule(context: Context, offer: ToolOffer) -> TextRule:
    """The rule by which the text that answers this request is shown while it streams: what the policy takes for a
    thought is shown as one."""
    return "thought" if context.policy.text == "thought" else text_rule(context, speaks=offer.speaks)


def _show(progress: Progress, effect_id: int, rule: TextRule, token: Token) -> None:
    """Show a piece of an answer: all of it as a thought, if it is one, and text that may not reach the user as such."""
    kind = "thinking" if rule == "thought" else token.kind
    shown = {"text": token.text, "kind": kind}
    progress(effect_id, "token", {**shown, "fallback": True} if rule == "fallback" and kind == "text" else shown)


def _log_request(turn: int, transcript: Transcript, tools: int) -> None:
    """Note which request of the turn this is. A request that is sent again has the same number."""
    answered = sum(message.role == "assistant" for message in of_turn(transcript.messages, turn))
    logger.info("Request %d of turn %d, tools: %d.", answered + 1, turn, tools)
