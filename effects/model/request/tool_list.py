"""Lists tools in a text: one line for each, with its name and what it is for in a sentence.

The definitions that are sent beside the messages say everything about the tools. The list tells a model at a glance
what it can do. Descriptions may come from a server that nobody has checked, so each stays on its line and is short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MAX_DESCRIPTION = 200
"""The most characters of a description in the list: one long sentence."""

_READ = 4 * MAX_DESCRIPTION
"""The most characters of a description that are looked at."""

_SENTENCE_END = re.compile(r"[\u3002\uff01\uff1f\u0964]|[.!?](?=\s)")
"""The end of a sentence in Chinese, Japanese and Hindi, and in languages that put a space behind it."""

_PARAGRAPH_END = re.compile(r"\n\s*\n")


def list_tools(definitions: Iterable[dict[str, Any]]) -> str:
    """The list of these tools, definitions in OpenAI's shape; empty if there are none. `Pure.`"""
    return "\n".join(_line(definition["function"]) for definition in definitions)


def _line(function: dict[str, Any]) -> str:
    description = _first_sentence(str(function.get("description") or ""))
    return f"- {function['name']}: {description}" if description else f"- {function['name']}"


def _first_sentence(description: str) -> str:
    """The first sentence on one line; the beginning of a long one. A full stop before a small letter ends none: it
    belongs to an abbreviation."""
    paragraph = _PARAGRAPH_END.split(description[:_READ].strip(), maxsplit=1)[0]
    text = " ".join("".join(one if one.isprintable() else " " for one in paragraph).split())
    for end in _SENTENCE_END.finditer(text):
        if not text[end.end() :].lstrip()[:1].islower():
            text = text[: end.end()]
            break
    return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1].rstrip()}…"
