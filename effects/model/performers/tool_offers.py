"""Which tools a request offers: those that the conversation may use in the turn, that the turn's profile allows and
that agents of its role may call.

A request is built for every answer of a model, while the tools of a conversation seldom change and are mostly the same
in all conversations. So what is offered is written once for each choice of tools and each kind of agent and kept, until
a source of tools changes. Each conversation keeps the offer of its last request, which is mostly that of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ....states.context import Context
from ....states.effects import RequestLlm
from ....states.roles import Caller
from ...logs import performer_logger
from ...tools.builtin.catalogue import BUILT_IN
from ...tools.registry import ToolRegistry
from ..request.explained_tools import ExplainedTools
from ..request.kept import Kept
from ..request.request_builder import OfferedTools
from ..request.tool_offer import Names, OfferSource, ToolOffer

_LOGGER = performer_logger("turnwise.tools")

KEPT = 256
"""How many choices of tools are kept: more than an application makes, unless it makes one for each conversation."""

MAX_TOLD = 20
"""The most tools of which one warning says why they are left out."""

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
        self._told = set[str]()

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
        offered = OfferedTools(self._tools.definitions(allowed))
        self._tell(offered.left_out)
        return ToolOffer(allowed - offered.left_out.keys(), caller, offered, explained)

    def _tell(self, left_out: Mapping[str, str]) -> None:
        """Log which tools are left out, each once."""
        new = left_out.keys() - self._told
        self._told |= new
        sentences = [sentence for name, sentence in left_out.items() if name in new]
        if sentences:
            more = f" So are {len(sentences) - MAX_TOLD} others." if len(sentences) > MAX_TOLD else ""
            _LOGGER.warning("%s%s", " ".join(sentences[:MAX_TOLD]), more)
