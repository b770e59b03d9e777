"""What an agent may do because of its role, also by the tools of the application."""

from __future__ import annotations

from ..context import Context
from ..values.acts import Act, AgentMail, Speech
from ..values.revision import AGENTS


def may_ask_user(context: Context) -> bool:
    """Whether the agent has a user to ask: its own, or, if the policy allows that, the one of the agent that started
    it. `Pure.`"""
    return context.revision < AGENTS or context.caller.may_ask_user


def may_act(act: Act, context: Context) -> bool:
    """Whether an agent of this role may do this: only an agent with a user speaks to that user, and only a background
    agent writes to the user of another agent. `Pure.`"""
    if context.revision < AGENTS:
        return True
    if isinstance(act, AgentMail) and act.audience == "user":
        return context.role == "background"
    return context.role == "foreground" or not isinstance(act, Speech)
