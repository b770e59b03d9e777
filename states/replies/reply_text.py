"""What of the model's words is for people.

A model that speaks a tool protocol in plain text puts its protocol on lines of their own, behind a reserved marker;
those lines are no answer. The log holds what the model really said; the marker is taken out where the text is used.
"""

from __future__ import annotations

import re

from ..policy.policy import Policy


def text_of_reply(content: str, policy: Policy) -> str:
    """The text without the lines that begin with the policy's marker; one in the middle of a line stays, and so does a
    line that begins with a longer word. `Pure.`"""
    marker = policy.marker
    if not marker or marker not in content:
        return content
    word_ends = r"\b" if marker[-1].isalnum() else ""
    begins = re.compile(rf"\s*{re.escape(marker)}{word_ends}")
    return "".join(line for line in content.splitlines(keepends=True) if not begins.match(line))
