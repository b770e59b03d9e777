"""Tells the thinking in the text of an answer from the answer: it stands between the tags `<think>` and `</think>`.

Models of many makers think in this way, and a server that does not know it streams their thinking as text. Templates of
some of them write the first tag into the prompt, so that the answer holds only the second one. A tag may come in
pieces. One in quotation marks or backticks is spoken of, and is text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..families import PLACE

OPENING, CLOSING = "<think>", "</think>"

_QUOTES = "`'\"“«"

Part = tuple[Literal["text", "thinking", "was thinking"], str]
"""A part of an answer. What was text so far `was thinking` where only the second tag has come."""


class ThinkTags:
    """The tags in one answer, whose text comes in pieces.

    `around` is what was written around the thinking at the beginning of the answer, `<think>…</think>` and the blanks
    behind it; empty if there was none.
    """

    def __init__(self) -> None:
        self.around: str = ""
        self._held = ""
        self._last = ""
        self._unclosed: list[str] = []
        self._is_thinking = self._is_behind = self._has_text = self._has_tag = False

    def parts_of(self, piece: str) -> Iterator[Part]:
        """Return the parts in the next piece of the text, as far as they are certain."""
        text = self._held + piece
        self._held = ""
        while text:
            if self._is_behind and (text := self._behind_a_tag(text)) == "":
                return
            place, tag = self._next_tag(text)
            if place is None:
                kept = _beginning_of_a_tag(text)
                self._held = text[len(text) - kept :]
                yield from self._part(text[: len(text) - kept])
                return
            before, text = text[:place], text[place + len(tag) :]
            yield from self._part(before)
            yield from self._cross(tag)

    def rest(self) -> Part | None:
        """What is left when the answer has ended."""
        held, self._held = self._held, ""
        if held and self._unclosed:
            self._unclosed.append(held)
        return (("thinking" if self._is_thinking else "text"), held) if held else None

    @property
    def unclosed(self) -> str:
        """What stands behind a tag that was never closed, where the tag stands behind a text, so that it is text as
        well; else empty."""
        return "".join(self._unclosed)

    def _part(self, text: str) -> Iterator[Part]:
        if text:
            self._last = text[-1]
            self._has_text |= not self._is_thinking and bool(text.strip())
            if self._is_thinking and self._has_text:
                self._unclosed.append(text)
            yield ("thinking" if self._is_thinking else "text"), text

    def _cross(self, tag: str) -> Iterator[Part]:
        if tag == CLOSING and not self._is_thinking:
            yield "was thinking", ""
            self._has_text = False
        self._is_thinking, self._is_behind = tag == OPENING, tag == CLOSING
        if self._is_behind and not self._has_text and not self.around:
            self.around = f"{OPENING if self._has_tag else ''}{PLACE}{CLOSING}"
        self._has_tag, self._last = True, ""
        self._unclosed.clear()

    def _behind_a_tag(self, text: str) -> str:
        """The text without the blanks behind the end of the thinking."""
        shown = text.lstrip()
        if not self._has_text and (self.around.endswith(CLOSING) or self.around[-1:].isspace()):
            self.around += text[: len(text) - len(shown)]
        self._is_behind = not shown
        return shown

    def _next_tag(self, text: str) -> tuple[int | None, str]:
        if self._is_thinking:
            place = text.find(CLOSING)
            return (None if place < 0 else place), CLOSING
        for tag in (OPENING,) if self._has_tag else (OPENING, CLOSING):
            place = text.find(tag)
            while place >= 0 and not self._is_tag(tag, (self._last + text[:place])[-1:]):
                place = text.find(tag, place + 1)
            if place >= 0:
                return place, tag
        return None, ""

    def _is_tag(self, tag: str, before: str) -> bool:
        """Whether a tag behind this character is one. The second tag alone stands on a line of its own."""
        return before == "\n" if tag == CLOSING else not before or before not in _QUOTES


def _beginning_of_a_tag(text: str) -> int:
    """How many characters at the end of the text may be the beginning of a tag."""
    place = text.rfind("<", -len(CLOSING) + 1)
    end = text[place:] if place >= 0 else ""
    return len(end) if end and (OPENING.startswith(end) or CLOSING.startswith(end)) else 0
