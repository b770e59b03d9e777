"""The agent card: what another agent reads before it sends a message."""

from __future__ import annotations

from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from .....effects.logs import __version__
from .messages import IMAGES

PATH = "/a2a"
"""The path of the JSON-RPC endpoint."""


def agent_card(address: str, *, needs_token: bool) -> AgentCard:
    """Return the card of a server at this address, which has no slash at its end. `Pure.`"""
    bearer = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
    skill = AgentSkill(
        id="conversation",
        name="Conversation",
        description="Answers messages, uses its tools, and asks where it needs to know more.",
        tags=["conversation"],
    )
    return AgentCard(
        name="turnwise",
        description="Conversations of an explicit state machine.",
        version=__version__,
        supported_interfaces=[
            AgentInterface(url=f"{address}{PATH}", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=["text/plain", "text/markdown", "application/json", *IMAGES],
        default_output_modes=["text/plain"],
        skills=[skill],
        security_schemes={"bearer": bearer} if needs_token else None,
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})] if needs_token else None,
    )
