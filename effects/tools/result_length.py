"""Cuts a result that is too long for a model to its beginning and its end.

The beginning says what it is, and the end often holds the total or the error. A mark between them says how much is
missing, so that the model does not take the rest for the whole.
"""

from __future__ import annotations

from ...states.values.messages import ToolResult
from ..long_texts import in_thread_if_long
from ..redact import Redact, unchanged

MAX_RESULT = 1_000_000
"""The most characters of a result, where neither its tool nor the engine sets another limit: more than most models can
read."""

MIN_RESULT = 200
"""The fewest characters to which a result can be cut. Chosen so that its beginning and its end still say something."""


async def cut_result(result: ToolResult, limit: int, redact: Redact = unchanged) -> ToolResult:
    """Return the result with a text of at most `limit` characters. Its images and acts stay. Secrets are replaced by
    `redact` before the text is cut, since half of a secret is not recognised as one."""
    text = result.text
    if len(text) <= limit:
        return result
    characters = 0 if redact is unchanged else 2 * limit
    return result.replace(text=await in_thread_if_long(characters, lambda: cut_text(text, limit, redact)))


def cut_text(text: str, limit: int, redact: Redact = unchanged) -> str:
    """Return the text, cut to its beginning and its end if it has more than `limit` characters.

    Twice as much as is kept at either end is redacted: a secret at the place of the cut is seen in full, and a text of
    any length costs no more than one of twice the limit. `Pure.`"""
    if len(text) <= limit:
        return text
    room = limit - len(_mark(len(text), len(text)))
    if len(text) <= 2 * limit:
        text = redact(text)
        if len(text) <= limit:
            return text
        beginning, end = text, text
    else:
        beginning, end = redact(text[:limit]), redact(text[len(text) - limit :])
    beginning, end = beginning[: (room + 1) // 2], end[max(0, len(end) - room // 2) :]
    return f"{beginning}{_mark(len(text) - len(beginning) - len(end), len(text))}{end}"


def _mark(missing: int, characters: int) -> str:
    return f"\n[… {missing:,} of {characters:,} characters are left out here …]\n"
