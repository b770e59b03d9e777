"""What the system message says about other agents: how to treat their messages, and how to reach them and the user.

The words are texts of the policy. Which of them a request holds follows from the role of its agent and from the tools
that it is offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....states.context import Context
from ....states.policy import Profile
from ....states.values.messages import escape_tags
from ....states.values.value import AGENTS
from .explained_tools import ExplainedTools


def write_agent_guidance(context: Context, tools: ExplainedTools, *, holds_mail: bool) -> Iterator[str]:
    """Yield the parts about other agents, and about the profiles to which the conversation can be handed over
    or by which sub-agents may work.

    Where the policy does not ask for them (`describe_agents`), an agent with a user is told all the same what the
    messages of other agents are as soon as the transcript `holds_mail`. A conversation that began before there were
    agents is not, so its requests stay as they were. `Pure.`
    """
    texts, describes = context.policy.texts, context.policy.describe_agents
    if context.role == "foreground" and (describes or (holds_mail and context.revision >= AGENTS)):
        yield texts.foreground_guidance
    if context.role == "background" and describes:
        yield texts.background_guidance
    if context.role == "sub_agent" and describes:
        yield texts.sub_agent_guidance
    if tools.message_user and describes:
        yield texts.user_message_guidance.replace("{tool}", tools.message_user)
    if tools.message_agent and describes:
        yield texts.agent_message_guidance.replace("{tool}", tools.message_agent)
    listed = escape_tags(_list_profiles(context.policy.profiles))
    for tool, guidance in ((tools.transfer, texts.transfer_guidance), (tools.spawn, texts.spawn_guidance)):
        if tool and listed:
            yield guidance.replace("{tool}", tool).replace("{profiles}", listed)


def _list_profiles(profiles: Iterable[Profile]) -> str:
    """List the profiles: one line for each, with its name and its description."""
    lines = (": ".join(part for part in (one.name, " ".join(one.description.split())) if part) for one in profiles)
    return "\n".join(f"- {line}" for line in lines)
