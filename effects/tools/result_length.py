"""Cuts a result that is too long for a model to its beginning and its end.

The beginning says what it is, and the end often holds the total or the error. A mark between them says how much is
missing, so that the model does not take the rest for the whole.
"""

from __future__ import annotations

from ...states.values.messages import ToolResult
from ..logs import Redact, unchanged

MAX_RESULT = 1_000_000
"""The most characters of a result, where neither its tool nor the engine sets another limit: more than most models can
read."""

MIN_RESULT = 200
"""The fewest characters to which a result can be cut. Chosen so that its beginning and its end still say something."""


def cut_result(result: ToolResult, limit: int, redact: Redact = unchanged) -> ToolResult:
    """The result with a text of at most `limit` characters. Its images and acts stay. Secrets are replaced by `redact`
    before the text is cut, since half of a secret is not recognised as one."""
    if len(result.text) <= limit:
        return result
    return result.replace(text=cut_text(redact(result.text), limit))


def cut_text(text: str, limit: int) -> str:
    """The text, cut to its beginning and its end if it has more than `limit` characters. `Pure.`"""
    if len(text) <= limit:
        return text
    room = limit - len(_mark(len(text), len(text)))
    beginning, end = (room + 1) // 2, room // 2
    return f"{text[:beginning]}{_mark(len(text) - room, len(text))}{text[len(text) - end :]}"


def _mark(missing: int, characters: int) -> str:
    return f"\n[… {missing:,} of {characters:,} characters are left out here …]\n"
