"""Reads the content of an answer, which providers write as a text, as a list of parts, or as null."""

from __future__ import annotations

from collections.abc import Mapping

_TEXTS = ("text", "output_text", "refusal")
"""The types of parts that hold text for the user. A part may hold the text under the name of its type."""

_THOUGHTS = ("thinking", "reasoning", "reasoning_content")


class UnreadableContent(ValueError):
    """The content has none of the shapes that are known."""


def read_content(content: object) -> tuple[str, str]:
    """The text and the thinking in the content of an answer: a text, null, a part, or a list of parts and texts.

    Parts of other types, such as references, are left out. Raises `UnreadableContent`. `Pure.`
    """
    if isinstance(content, str):
        return content, ""
    text, thinking = "", ""
    for part in [content] if isinstance(content, Mapping) else _list_of(content):
        if isinstance(part, str):
            text += part
            continue
        if not isinstance(part, Mapping):
            raise UnreadableContent
        kind = part.get("type", "text")
        if kind in _TEXTS:
            text += _text_in(part.get("text", part.get(kind)))
        elif kind in _THOUGHTS:
            thinking += _text_in(part.get(kind, part.get("text")))
    return text, thinking


def _text_in(value: object) -> str:
    """The text of a part, which may itself be a list of parts."""
    return "".join(read_content(value))


def _list_of(value: object) -> list[object] | tuple[object, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise UnreadableContent
    return value
