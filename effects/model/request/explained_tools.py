"""The tools whose use the system message explains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExplainedTools:
    """The names under which these tools are offered; a name is empty if the tool is not offered.

    `respond` and `talk` speak to the user, at the end of the turn and at once. `message_user` and `message_agent` send
    messages to the user, through the agent that talks with them, and to other agents. `transfer` hands the conversation
    over to another profile, and `spawn` starts sub-agents, each with a profile if its task names one.
    """

    respond: str = ""
    talk: str = ""
    message_user: str = ""
    message_agent: str = ""
    transfer: str = ""
    spawn: str = ""


NO_EXPLAINED_TOOLS = ExplainedTools()
