"""The part of the model's text that is meant for people.

A model that writes a tool protocol into its text puts it on lines of its own, behind a reserved marker; those lines are
no answer. The log holds the model's text as it was; the marked lines are removed where the text is used.
"""

from __future__ import annotations

import re

from ..policy.policy import Policy


def text_of_delivery(content: str, policy: Policy, *, relayed: bool) -> str:
    """The text as the user receives it. A message that is relayed from another agent is passed on unchanged: no line of
    it is a part of this model's tool protocol. `Pure.`"""
    return content if relayed else text_of_reply(content, policy)


def text_of_reply(content: str, policy: Policy) -> str:
    """The text without the lines that begin with the policy's marker. A marker inside a line stays, and so does a line
    that begins with a longer word. `Pure.`"""
    marker = policy.marker
    if not marker or marker not in content:
        return content
    word_ends = r"\b" if marker[-1].isalnum() else ""
    begins = re.compile(rf"\s*{re.escape(marker)}{word_ends}")
    return "".join(line for line in content.splitlines(keepends=True) if not begins.match(line))
