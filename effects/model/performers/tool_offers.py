"""Which tools a request offers: those that the conversation may use in the turn, that the turn's profile allows and
that agents of its role may call.

A request is built for every answer of a model, while the tools of a conversation seldom change and are mostly the same
in all conversations. So what is offered is written once for each choice of tools and each kind of agent and kept, until
a source of tools changes. Each conversation keeps the offer of its last request, which is mostly that of the next one.
"""

from __future__ import annotations

from functools import lru_cache

from ....states.context import Context
from ....states.effects import RequestLlm
from ....states.policy.roles import Caller
from ...tools.builtin.catalogue import BUILT_IN
from ...tools.registry import ToolRegistry
from ..request.explained_tools import ExplainedTools
from ..request.kept import Kept
from ..request.request_builder import OfferedTools
from ..request.tool_offer import Names, OfferSource, ToolOffer

KEPT = 256
"""How many choices of tools are kept: more than an application makes, unless it makes one for each conversation."""

EXPLAINED = {
    "respond": "respond_to_user",
    "talk": "talk",
    "message_user": "send_user_message",
    "message_agent": "send_agent_message",
    "transfer": "transfer_to",
    "spawn": "spawn_agents",
}
"""The built-in tools that the system message explains, by the fields of `ExplainedTools`."""


class ToolOffers:
    """Knows what each request offers of the tools of an engine."""

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools
        self._offer = lru_cache(KEPT)(self._make_offer)

    def offer_for(
        self, effect: RequestLlm, context: Context, turn: int, last: Kept[OfferSource, ToolOffer]
    ) -> ToolOffer:
        """What this request offers in this turn; `last` keeps it for the next request of the conversation.

        It stays the same within a turn, also after a crash: tools that a conversation chooses during a turn are those
        of the next one. Only the tools of sources come and go within a turn."""
        source = OfferSource(self._tools.version, context.tools_in(turn), effect.profile, context)
        return last.made_from(source, self._find_offer)

    def _find_offer(self, source: OfferSource) -> ToolOffer:
        context, profile = source.context, source.context.policy.find_profile(source.profile)
        of_profile = None if profile is None else profile.tools
        return self._offer(source.version, source.chosen, of_profile, context.caller)

    def _make_offer(self, version: tuple[int, ...], chosen: Names, of_profile: Names, caller: Caller) -> ToolOffer:
        allowed = self._tools.allowed(chosen, of_profile, caller)
        names = {purpose: self._tools.name_of(BUILT_IN[name], allowed) for purpose, name in EXPLAINED.items()}
        explained = ExplainedTools(
            **names,
            speaking=self._tools.names_acting("speech", allowed) if caller.role == "foreground" else (),
            claiming=self._tools.names_acting("work_complete", allowed),
        )
        return ToolOffer(allowed, caller, OfferedTools(self._tools.definitions(allowed)), explained)
