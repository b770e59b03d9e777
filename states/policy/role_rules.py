"""The rules of agents without a user, made from the rules of the agent that they work for.

Such an agent has the same models, profiles, limits and texts. What differs is what concerns a user: nobody reads its
replies, waits while it is busy or hears what a claim says, so its text is its thinking and a turn ends with that text.
"""

from __future__ import annotations

from .policy import Limits, Policy


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
    )


def sub_agent_policy(policy: Policy, limits: Limits, profile: str = "") -> Policy:
    """Return the rules of a sub-agent that an agent with these rules starts. `limits` are its limits. `profile` is the
    name of its profile; if it is empty or unknown, the sub-agent has the profiles of the rules, the first by default.

    A sub-agent always answers, so a failure becomes its last text. `Pure.`
    """
    named = tuple(one for one in policy.profiles if one.name == profile)
    return background_policy(policy).replace(
        limits=limits,
        profiles=named or policy.profiles,
        on_failure="reply",
    )
