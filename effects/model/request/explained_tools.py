"""The tools whose use the system message explains."""

from __future__ import annotations

from dataclasses import dataclass

RESPOND_PLACEHOLDER = "respond_to_user"
CLAIM_PLACEHOLDER = "mark_work_complete"
"""The names by which reminders refer to the tools for speaking to the user and for claiming that the work is complete.
A conversation may have them under other names, others that do the same, or none."""


@dataclass(frozen=True)
class ExplainedTools:
    """The names under which these tools are offered; a name is empty if the tool is not offered.

    `respond` and `talk` speak to the user, at the end of the turn and at once. `message_user` and `message_agent` send
    messages to the user, through the agent that talks with them, and to other agents. `transfer` hands the conversation
    over to another profile, and `spawn` starts sub-agents, each with a profile if its task names one.

    `speaking` and `claiming` are all tools that speak to the user or claim that the work is complete, also those of the
    application.
    """

    respond: str = ""
    talk: str = ""
    message_user: str = ""
    message_agent: str = ""
    transfer: str = ""
    spawn: str = ""
    speaking: tuple[str, ...] = ()
    claiming: tuple[str, ...] = ()

    @property
    def speakers(self) -> tuple[str, ...]:
        """All tools that speak to the user, the built-in ones first."""
        return tuple(dict.fromkeys(name for name in (self.respond, self.talk, *self.speaking) if name))

    def named(self, placeholder: str) -> str:
        """The name of the tool that a reminder means by this name: the built-in tool of this name under the name under
        which it is offered, else the first one that does the same. Empty if none is offered."""
        if placeholder == CLAIM_PLACEHOLDER:
            return next(iter(self.claiming), "")
        return next(iter(self.speakers), "")


NO_EXPLAINED_TOOLS = ExplainedTools()
