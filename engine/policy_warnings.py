"""What the rules of a conversation count on, and the program that runs it does not have.

Nothing is refused for that: it may be meant so, and a conversation can be opened by a program that has more. But it is
said, for what follows from it looks like a model that misbehaves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..states.policy.policy import Policy
from ..states.values.acts import ActKind


def policy_warnings(policy: Policy, acts: Collection[ActKind]) -> Iterator[str]:
    """A sentence for each, where the tools can do these `acts`. `Pure.`"""
    if policy.redact:
        yield "The rules want secrets taken out of messages, and nothing here does that yet."
    if policy.text == "thought" and "speech" not in acts:
        yield "Under these rules the user hears only what is said by tool, and no tool here says anything."
    if policy.ends_on == "work_complete" and "work_complete" not in acts:
        yield "Under these rules a turn ends with a claim that the work is complete, and no tool here makes one."
