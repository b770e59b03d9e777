"""The built-in tools by which an agent writes to other agents, and through one of them to its user.

They find the agent in the directory, when the call runs. The message itself is an act: the machine sends it in the step
that takes the result, so that it is sent exactly if the call is known to have succeeded.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from ....states.values.acts import AgentMail, Audience
from ....states.values.messages import ToolResult
from ....states.values.value import MAX_QUOTED, FilledText, shortened
from ...agents.port import Agent, ReachableAgents
from ..context import ToolContext
from ..declaration import tool
from ..tool_error import ToolError

NO_AGENTS = "Messages to other agents cannot be sent here."
NO_FOREGROUND = "There is no agent with a user that this agent works for."
NO_TARGET = "Say by `agent_id` which agent the message is for: this agent works for none that has a user."
UNKNOWN_AGENT = "There is no agent {agent_id} that this agent may write to."
CLOSED_AGENT = "The agent {agent_id} is closed and takes no messages."
SELF = "An agent cannot write to itself."


@tool(acts=("mail",), crash="pure", exclusive=True)
async def send_user_message(
    context: ToolContext,
    text: Annotated[FilledText, Field(description="What the user should learn, with all that is needed to present it")],
) -> ToolResult:
    """Have something presented to the user.

    You have no user of your own. Your message goes to the agent that talks to the user, which presents it in its own
    words. So send facts and results, not a finished text. Use it for what the user should know; for what only that
    agent needs to know, use send_agent_message.
    """
    return _mail(await _foreground(_agents_of(context), NO_FOREGROUND), text, "user")


@tool(acts=("mail",), crash="pure", exclusive=True)
async def send_agent_message(
    context: ToolContext,
    text: Annotated[FilledText, Field(description="What that agent should know or do")],
    agent_id: Annotated[
        str | None,
        Field(description="The agent to write to; without it, the agent that talks to the user you work for"),
    ] = None,
    silent: Annotated[
        bool, Field(description="True if that agent need not act on it now and may read it with its next message")
    ] = False,
) -> ToolResult:
    """Send an internal message to another agent: an update, a result, or a request.

    It is no request of a user and is not shown to one. That agent may answer by a message of its own, or not at all.
    """
    agents = _agents_of(context)
    target = await _foreground(agents, NO_TARGET) if agent_id is None else await _find(agents, agent_id)
    return _mail(target, text, "agent", silent=silent)


def _agents_of(context: ToolContext) -> ReachableAgents:
    if context.agents is None:
        raise ToolError(NO_AGENTS)
    return context.agents


async def _foreground(agents: ReachableAgents, missing: str) -> Agent:
    found = await agents.foreground()
    if found is None:
        raise ToolError(missing)
    return found


async def _find(agents: ReachableAgents, agent_id: str) -> Agent:
    if agent_id == agents.conversation_id:
        raise ToolError(SELF)
    found = await agents.find(agent_id)
    if found is None:
        raise ToolError(UNKNOWN_AGENT.format(agent_id=shortened(agent_id, MAX_QUOTED)))
    return found


def _mail(target: Agent, text: str, audience: Audience, *, silent: bool = False) -> ToolResult:
    """The result of a call that sends this message. It names the agent that gets it."""
    if target.is_closed:
        raise ToolError(CLOSED_AGENT.format(agent_id=target.id))
    mail = AgentMail(target=target.id, text=text, audience=audience, silent=silent)
    return ToolResult(text=json.dumps({"success": True, "agent_id": target.id}), acts=(mail,))
