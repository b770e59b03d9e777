"""What of the model's words is for people.

A model that speaks a tool protocol in plain text puts its protocol on lines of their own, behind a reserved marker;
those lines are no answer (case J13). The log holds what the model really said; the marker is taken out where the text
is used.
"""

from __future__ import annotations

from .policy import Policy


def text_of_reply(content: str, policy: Policy) -> str:
    """The text without the lines that begin with the policy's marker; one in the middle of a line stays. `Pure.`"""
    marker = policy.marker
    if not marker or marker not in content:
        return content
    return "".join(line for line in content.splitlines(keepends=True) if not line.lstrip().startswith(marker))
