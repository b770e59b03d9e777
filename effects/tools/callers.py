"""Who calls tools: the agent of a conversation, as far as the tools that it may call depend on it."""

from __future__ import annotations

from ...states.context import Context
from ...states.policy.roles import Caller


def caller_of(context: Context) -> Caller:
    """Return the agent of this conversation as a caller of tools. `Pure.`"""
    return Caller(context.role, context.depth, context.policy.sub_agents)
