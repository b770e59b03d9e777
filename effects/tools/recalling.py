"""The built-in tool by which a model searches older conversations of its user.

It describes its arguments by a JSON schema, so whoever imports it imports the library that checks schemas.
"""

from __future__ import annotations

from typing import Any

from ..recall.performer import write_found
from ..recall.terms import Span, bounds_of, read_keywords, read_span
from .context import ToolContext, ToolError
from .tool import tool

_NOTHING_FOUND = "Nothing was found."
_NO_KEYWORDS = "Nothing can be searched for without a keyword."
_NO_MEMORY = "Older conversations cannot be searched here."
_NO_MOMENT = "`{name}` must be a date or a moment by ISO 8601, such as 2025-09-15 or 2025-09-15T17:53Z."

# `from` cannot be the name of a parameter in Python, so the schema is written out.
_BOUND = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
_SCHEMA = {
    "type": "object",
    "properties": {
        "keywords": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Words or short names that the earlier texts are likely to contain, in their language. A "
            "text that holds more of them comes first.",
        },
        "from": {**_BOUND, "description": "Only texts from this date or moment on, by ISO 8601"},
        "to": {**_BOUND, "description": "Only texts up to this date or moment, by ISO 8601"},
    },
    "required": ["keywords"],
    "additionalProperties": False,
}


@tool(crash="pure", parameters=_SCHEMA)
async def recall_conversation(context: ToolContext, keywords: list[str], **bounds: str | None) -> str:
    """Search what you and this user said to each other earlier.

    Use it when the user refers to something from an earlier conversation that you cannot see here, or when what was
    said then would make your answer better. You get the texts that fit best, with who said them and when.
    """
    if context.memory is None:
        raise ToolError(_NO_MEMORY)
    if not (words := read_keywords(keywords)):
        raise ToolError(_NO_KEYWORDS)
    between = bounds_of(_read("from", bounds), _read("to", bounds))
    found = await context.memory.search(words, between.since, between.until)
    return write_found(found) or _NOTHING_FOUND


def _read(name: str, bounds: dict[str, Any]) -> Span | None:
    given = bounds.get(name)
    span = read_span(given)
    if span is None and given is not None and given.strip():
        raise ToolError(_NO_MOMENT.format(name=name))
    return span
