"""The rules of agents without a user, made from the rules of the agent that they work for.

Such an agent has the same models, profiles, limits and texts. What differs is what concerns a user: nobody reads its
replies, waits while it is busy or hears what a claim says, so its text is its thinking and a turn ends with that text.
"""

from __future__ import annotations

from .policy import Limits, Policy
from .roles import Role


def background_policy(policy: Policy) -> Policy:
    """Return the rules of a background agent that works for an agent with these rules. `Pure.`"""
    return policy.replace(
        text="thought",
        ends_on="text",
        silent="allow",
        verify=0,
        summarize=False,
        when_busy="queue",
        dialogue="transcript",
        recall=False,
        route=False,
        transcription_note=False,
        describe_agents=True,
        relay="prompt_only",
        sub_agents=policy.sub_agents.replace(questions="refuse"),
    )


def sub_agent_policy(policy: Policy, limits: Limits, profile: str = "", parent: Role = "foreground") -> Policy:
    """Return the rules of a sub-agent that an agent with these rules and the role `parent` starts. `limits` are its
    limits. `profile` is the name of its profile; if it is empty or unknown, the sub-agent has the profiles of the
    rules, the first by default.

    A sub-agent always answers, so a failure becomes its last text. It may ask the user only of its own parent, which
    must have one, and goes on if that user declines to answer. `Pure.`
    """
    named = tuple(one for one in policy.profiles if one.name == profile)
    made = background_policy(policy).replace(
        limits=limits,
        profiles=named or policy.profiles,
        on_failure="reply",
        questions=policy.questions.replace(cancel="resume"),
    )
    return made.replace(sub_agents=policy.sub_agents) if parent == "foreground" else made
