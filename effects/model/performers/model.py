"""Asks the model: builds the request from what is committed, and turns the answer into an event."""

from __future__ import annotations

from ....states.effects import RequestLlm
from ....states.events import LlmFailed, LlmResponse
from ....states.policy.policy import Policy
from ...clock import Clock
from ...context import EffectContext
from ...text import encodable, is_encodable
from ...tools.builtin.speaking import respond_to_user, talk
from ...tools.registry import ToolRegistry
from ..port import LlmFailure, ModelAnswer, ModelRequest, Token
from ..request.context_assembly import Speaking, frame
from ..request.prompt_cache import PromptCache
from ..request.request_builder import Offer
from .model_caller import ModelCaller, sentence_of

_NOTHING = Offer(())


class ModelPerformer:
    """Carries out `RequestLlm`."""

    def __init__(self, asking: ModelCaller, tools: ToolRegistry, clock: Clock) -> None:
        self._asking = asking
        self._tools = tools
        self._offer = Offer(tools.definitions())
        self._speaking = Speaking(tools.name_of(respond_to_user), tools.name_of(talk))
        self._clock = clock
        self._prefixes = PromptCache()

    async def __call__(self, effect: RequestLlm, context: EffectContext) -> LlmResponse | LlmFailed:
        """Ask, and answer with what the model said or why it did not."""
        request, digest = await self._request(effect, context)

        # Text that the rules keep from the user is a thought while it is still coming in, too (case B1).
        hidden = context.policy.text == "thought"

        def show(token: Token) -> None:
            kind = "thinking" if hidden else token.kind
            context.progress(effect.effect_id, "token", {"text": token.text, "kind": kind})

        try:
            answer = await self._asking.ask(request, show)
        except LlmFailure as failed:
            return LlmFailed(
                effect_id=effect.effect_id,
                at=self._clock.now(),
                kind=failed.kind,
                sentence=sentence_of(failed),
                retry_after=failed.retry_after,
            )
        return self._response(effect, request.model, digest, answer, context.policy)

    async def _request(self, effect: RequestLlm, context: EffectContext) -> tuple[ModelRequest, str]:
        """Return the request and its digest. The transcript is let go of before the model is waited for."""
        framed = frame(effect, context.context, await context.transcript(), context.turn, self._speaking)
        offer = _NOTHING if effect.plain else self._offer
        prefix = self._prefixes.of(context)
        return prefix.request(effect, framed.system, framed.messages, offer, context.turn)

    def _response(
        self, effect: RequestLlm, model: str, digest: str, answer: ModelAnswer, policy: Policy
    ) -> LlmResponse:
        return LlmResponse(
            effect_id=effect.effect_id,
            at=self._clock.now(),
            content=encodable(answer.content),
            thinking=encodable(answer.thinking),
            # A sealed block that would have to be changed is no longer what its provider sealed.
            opaque=answer.opaque if is_encodable(answer.opaque) else (),
            tool_calls=self._tools.enter(effect.effect_id, answer.tool_calls, policy),
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            model=model,
            digest=digest,
        )
