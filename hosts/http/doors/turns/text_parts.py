"""Texts that arrive in pieces, and then complete: the tokens of a model, and then its message.

A model that fails in the middle of its answer writes it again. What a client was sent cannot be taken back, so the
beginning that is not part of any answer ends as an abandoned part, and the answer is a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .....engine.updates import TokenUpdate


@dataclass(frozen=True)
class TextPiece:
    """A piece of the part with this `number`, counted from 1. With `ends` it is the last one of its part, and may be
    empty; an `abandoned` part is no longer what was said."""

    number: int
    text: str = ""
    ends: bool = False
    abandoned: bool = False


class TextParts:
    """Makes parts of tokens and of complete texts. At most one part is open."""

    def __init__(self) -> None:
        self._number = 0
        self._key: tuple[int, int, int] | None = None
        self._pieces: list[str] = []
        self._is_open = False

    def token(self, token: TokenUpdate) -> Iterator[TextPiece]:
        """Yield what is new in this token. Blank space alone begins no part."""
        key = (token.turn, token.request, token.attempt)
        shown = "".join(self._pieces) if token.from_start and key == self._key else ""
        if key != self._key or not token.text.startswith(shown):
            yield from self.close()
            self._key, shown = key, ""
        text = token.text[len(shown) :]
        self._pieces.append(text)
        if self._is_open:
            yield TextPiece(self._number, text)
        elif text.strip():
            yield from self._open("".join(self._pieces))

    def full_text(self, text: str) -> Iterator[TextPiece]:
        """Yield what is still missing of this text, which ends its part; all of it if its tokens were not shown."""
        shown = "".join(self._pieces)
        if self._is_open and (text.startswith(shown) or shown.strip() == text.strip()):
            yield TextPiece(self._number, text[len(shown) :], ends=True)
            self._forget()
        else:
            yield from self.close()
            yield from self._open(text)
            yield TextPiece(self._number, ends=True)
            self._forget()

    def close(self) -> Iterator[TextPiece]:
        """End the open part, if there is one, as abandoned."""
        if self._is_open:
            yield TextPiece(self._number, ends=True, abandoned=True)
        self._forget()

    def _open(self, text: str) -> Iterator[TextPiece]:
        self._number += 1
        self._is_open = True
        yield TextPiece(self._number, text)

    def _forget(self) -> None:
        self._key, self._is_open = None, False
        self._pieces.clear()
