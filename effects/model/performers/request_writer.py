"""Writes requests to models out of what follows from the log.

The performer writes each request with it before it asks the model, and whoever looks at an earlier step later writes
the same request again. A request is written from the state of the conversation at the step that asked for it, and from
the tools that the engine has now.
"""

from __future__ import annotations

from collections.abc import Callable

from ....states.context import Context
from ....states.effects import RequestLlm
from ....states.policy import settings_of
from ....states.transcript import Transcript
from ...tools.registry import ToolRegistry
from ..families import family_named
from ..port import ModelRequest
from ..request.context_assembly import assemble_context
from ..request.prompt_cache import CachedPrompt
from ..request.request_builder import OfferedTools
from ..request.tool_offer import ToolOffer
from .tool_offers import ToolOffers

_NO_TOOLS = OfferedTools(())


class RequestWriter:
    """Writes the requests of an engine that has these tools. `family_of` returns the family of the model of a name."""

    def __init__(self, tools: ToolRegistry, family_of: Callable[[str], str] = family_named) -> None:
        self._offers = ToolOffers(tools)
        self._family_of = family_of

    def offer_for(self, effect: RequestLlm, context: Context, turn: int, prompt: CachedPrompt) -> ToolOffer:
        """Return what this request offers of the tools. `prompt` keeps that for the next request."""
        return self._offers.offer_for(effect, context, turn, prompt.offer)

    def write(
        self,
        effect: RequestLlm,
        context: Context,
        turn: int,
        transcript: Transcript,
        offer: ToolOffer,
        prompt: CachedPrompt,
    ) -> tuple[ModelRequest, str]:
        """Return the request that `effect` asks for, without the fresh context, and its digest. `context`, `turn` and
        `transcript` are those of the step that has the effect; `prompt` keeps the written beginning for the next
        request of this conversation."""
        if effect.plain:  # it has nothing in common with the requests before and behind it
            prompt = CachedPrompt(prompt.conversation_id)
        tools = offered_to(effect, offer)
        assembled = assemble_context(
            effect, context, transcript, turn, offer.explained, tools.listed, prompt.write_system
        )
        return prompt.request(
            effect,
            assembled.system,
            assembled.history,
            tools,
            turn,
            settings_of(context.policy, effect.profile),
            closing=assembled.closing,
            wording=assembled.wording,
            family=self._family_of(effect.model),
            first_turn=transcript.first_try(turn),
        )


def offered_to(effect: RequestLlm, offer: ToolOffer) -> OfferedTools:
    """Return the definitions that the request holds: a plain one has none. `Pure.`"""
    return _NO_TOOLS if effect.plain else offer.definitions
