"""Warns of a policy that expects tools or features which the engine does not have.

Such a policy is not an error: it may be intended, and another program that has the tools may open the conversation.
Without a warning, though, the effect looks like a model that misbehaves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...states.policy.policy import Policy
from ...states.values.acts import ActKind


def policy_warnings(policy: Policy, acts: Collection[ActKind]) -> Iterator[str]:
    """Yield a sentence for each thing that the policy expects and that tools with these `acts` lack. `Pure.`"""
    if policy.redact:
        yield "The policy has secrets removed from messages, which is not supported yet."
    if policy.text == "thought" and "speech" not in acts:
        yield "Under this policy the user hears only what is said by a tool, and none of the tools speaks."
    if policy.ends_on == "work_complete" and "work_complete" not in acts:
        yield "Under this policy a turn ends when a tool claims that the work is complete, and none of the tools does."
