"""What has been streamed so far of the answer that a model is writing, for watchers that begin in the middle of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from .data import data_of
from .live import TokenUpdate


@dataclass(frozen=True)
class Streaming:
    """The `text` and the `thinking` that were streamed so far in this `attempt` of this `request`. With `fallback` the
    text reaches the user only if the model says nothing by tool."""

    text: str
    thinking: str
    turn: int
    request: int
    attempt: int
    fallback: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return data_of(self)


class StreamedText:
    """Collects the tokens of one request. A token of another request or attempt begins anew."""

    __slots__ = ("_fallback", "_key", "_pieces")

    def __init__(self) -> None:
        self._key: tuple[int, int, int] | None = None
        self._pieces: dict[str, list[str]] | None = None
        self._fallback = False

    def add(self, token: TokenUpdate) -> None:
        """Add a piece."""
        key = (token.turn, token.request, token.attempt)
        if key != self._key:
            self.clear()
            self._key = key
        self._fallback = self._fallback or token.fallback
        if self._pieces is None:
            self._pieces = {}
        self._pieces.setdefault(token.kind, []).append(token.text)

    def keep_only(self, requests: Collection[int]) -> None:
        """Forget the text unless its request is one of these, which are still under way."""
        if self._key is not None and self._key[1] not in requests:
            self.clear()

    @property
    def has_text(self) -> bool:
        """Whether something was streamed of a request that may be under way."""
        return self._key is not None

    def clear(self) -> None:
        """Forget the text."""
        self._key = None
        self._pieces = None
        self._fallback = False

    @property
    def so_far(self) -> Streaming | None:
        """The text so far; None if nothing was streamed of a request that is under way."""
        if self._key is None:
            return None
        turn, request, attempt = self._key
        return Streaming(self._joined("text"), self._joined("thinking"), turn, request, attempt, self._fallback)

    def tokens(self) -> Iterator[TokenUpdate]:
        """Yield the text so far as one token of each kind."""
        if self._key is not None:
            turn, request, attempt = self._key
            for kind in ("thinking", "text"):
                if text := self._joined(kind):
                    fallback = self._fallback and kind == "text"
                    yield TokenUpdate(text, kind, turn, request, attempt, from_start=True, fallback=fallback)

    def _joined(self, kind: str) -> str:
        """Join the pieces once: what was joined counts as one piece from then on."""
        if self._pieces is None:
            return ""
        joined = "".join(self._pieces.get(kind, ()))
        self._pieces[kind] = [joined]
        return joined
