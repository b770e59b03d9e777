"""Reads the content of an answer, which providers write as a text, as a list of parts, or as null; and its thinking,
which each of them writes under another name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_TEXTS = ("text", "output_text", "refusal")
"""The types of parts that hold text for the user. A part may hold the text under the name of its type."""

THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_text", "thought")
"""The types of parts that hold thinking, and the names of the fields of an answer that do. Some servers fill several
of these fields with the same text."""


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
        elif kind in THOUGHTS:
            thinking += _text_in(part.get(kind, part.get("text")))
    return text, thinking


def read_thinking(fields: Mapping[str, object]) -> str:
    """The thinking in the fields of an answer: that of the first one that holds any. A field of such a name that holds
    something else, such as a switch, is left alone. `Pure.`"""
    return next(filter(None, _thoughts_in(fields)), "")


def _thoughts_in(fields: Mapping[str, object]) -> Iterator[str]:
    for value in map(fields.get, THOUGHTS):
        try:
            yield _text_in(value)
        except (UnreadableContent, RecursionError):
            continue


def _text_in(value: object) -> str:
    """The text of a part, which may itself be a list of parts."""
    return "".join(read_content(value))


def _list_of(value: object) -> list[object] | tuple[object, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise UnreadableContent
    return value
