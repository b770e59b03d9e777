"""Reads what a tool is to say to the user out of the arguments of its call, while the model writes them.

A user who waits for an answer does not care whether it comes as text or by a tool. The words by a tool stand in one
argument of its call, a JSON text that arrives in pieces. Each piece is read once, so a long speech costs no more than
its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from ...states.values.value import encodable
from .port import ModelCall, Token

BETWEEN_SPEECHES = "\n\n"
"""What stands between the words of two calls."""

_KEY = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
"""What stands before a value in an object."""

_READABLE = re.compile(
    r"""(?: [^"\\]+ | \\["\\/bfnrt] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
    | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} )*""",
    re.VERBOSE,
)
"""The text of a string up to an escape that is not complete, or to its end."""

_LONGEST_ESCAPE = len(r"\ud83d\ude00")

_SEARCHED_AGAIN = 16
"""Before the text begins, the arguments are searched again when they have grown by this part of their length."""

_DECODER = json.JSONDecoder(strict=False)


def spoken_by(calls: Iterable[ModelCall], spoken: Mapping[str, str] | None) -> Iterator[Token]:
    """Yield what these whole calls are to say to the user, a token for each; `spoken` is that of the request.
    `Pure.`"""
    if not spoken:
        return
    tokens: list[Token] = []
    speech = StreamedSpeech(spoken, tokens.append)
    for place, call in enumerate(calls):
        speech.begin(place, call.name)
        speech.add(place, call.arguments)
    yield from tokens


class StreamedSpeech:
    """What the calls of one answer say to the user. `spoken` names the argument with the words, for each tool that
    speaks; `show` is called with each piece of them, and a blank line stands between those of two calls."""

    def __init__(self, spoken: Mapping[str, str], show: Callable[[Token], None]) -> None:
        self._spoken = spoken
        self._show = show
        self._texts: dict[int | None, StreamedArgument] = {}
        self._begun: dict[int | None, str] = {}
        self._speaking: StreamedArgument | None = None

    def begin(self, index: int | None, name: str, call_id: str = "") -> None:
        """Take note that a call of this tool begins under this index. A server that repeats the head of a call begins
        no other one."""
        if call_id and self._begun.get(index) == call_id:
            return
        self._begun[index] = call_id
        self._texts.pop(index, None)
        if (argument := self._spoken.get(name)) is not None:
            self._texts[index] = StreamedArgument(argument)

    def add(self, index: int | None, piece: str) -> None:
        """Show the words in a piece of the arguments of the call under this index."""
        text = self._texts.get(index)
        if text is None or not (words := text.add(piece)):
            return
        is_next = self._speaking is not None and self._speaking is not text
        self._speaking = text
        self._show(Token(f"{BETWEEN_SPEECHES}{words}" if is_next else words, "speech"))


class StreamedArgument:
    """One text among the arguments of a call, which are written as JSON. What is no such text is not read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = ""
        self._before = ""
        """What stands before the text; empty until it begins."""
        self._next = 0
        self._is_over = False

    def add(self, piece: str) -> str:
        """Return what this piece of the arguments adds to the text."""
        if self._before and piece.startswith(self._before):
            self._is_over = True  # each piece repeats those before it
        if self._is_over:
            return ""
        self._rest += piece
        return self._read() if self._before or self._begins() else ""

    def _begins(self) -> bool:
        length = len(self._rest)
        if length < self._next:
            return False
        place = _place_of_text(self._rest, self._name)
        if place is None:
            self._next = length + 1 + length // _SEARCHED_AGAIN
            return False
        self._before, self._rest = self._rest[:place], self._rest[place:]
        return True

    def _read(self) -> str:
        found = _READABLE.match(self._rest)
        end = 0 if found is None else found.end()
        written, self._rest = self._rest[:end], self._rest[end:]
        # A quote ends the text, and an escape that stays incomplete is none.
        self._is_over = self._rest.startswith('"') or len(self._rest) >= _LONGEST_ESCAPE
        return encodable(json.loads(f'"{written}"', strict=False))


def _place_of_text(written: str, name: str) -> int | None:
    """Where the text begins that is the value of this name; None if it has not come, or is no text."""
    place = 0
    while (key := _KEY.match(written, place)) is not None:
        place = key.end()
        try:
            if json.loads(key[1], strict=False) == name:
                return place + 1 if written[place : place + 1] == '"' else None
            _, place = _DECODER.raw_decode(written, place)
        except (ValueError, RecursionError):
            return None
    return None
