"""What a request offers of the tools of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ....states.context import Context
from ....states.roles import Caller
from .explained_tools import ExplainedTools
from .request_builder import OfferedTools

Names = tuple[str, ...] | None
"""Names of tools as they were chosen; None stands for all tools."""


class OfferSource(NamedTuple):
    """What an offer follows from: the tools that there are, by their version, those that the conversation `chose`, the
    profile of the request, and the rules and the role of the conversation."""

    version: tuple[int, ...]
    chosen: Names
    profile: str
    context: Context


@dataclass(frozen=True)
class ToolOffer:
    """The names of the tools that may be called, and by whom, their definitions as they are sent, and those of them
    that the system message explains."""

    allowed: frozenset[str]
    caller: Caller
    definitions: OfferedTools
    explained: ExplainedTools

    @property
    def speaks(self) -> bool:
        """Whether one of them speaks to the user."""
        return bool(self.explained.speakers)
