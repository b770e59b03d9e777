"""An answer put together from the pieces in which it streams.

litellm can put a stream together itself (`stream_chunk_builder`), and for text and usage that is used. It must not be
relied on for what has to be exact: it loses calls without an id, makes one call of those that a provider sends under
the same index (case P29), and writes the text of a sealed thinking block twice, which its provider then refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...text import encodable
from ..port import ModelCall, Token


class StreamAssembler:
    """What of an answer has come in. `chunks` are litellm's own, `anything` says whether any of them said something."""

    def __init__(self, show: Callable[[Token], None]) -> None:
        self.chunks: list[Any] = []
        self.anything = False
        self._show = show
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self._thoughts = _Thoughts()

    def take(self, chunk: Any) -> None:
        """Add the next chunk, and show what text it brings."""
        self.chunks.append(chunk)
        for choice in chunk.choices[:1]:
            self._take_text(Token(getattr(choice.delta, "reasoning_content", None) or "", "thinking"))
            self._take_text(Token(choice.delta.content or ""))
            for block in getattr(choice.delta, "thinking_blocks", None) or ():
                self._thoughts.take(block)
            for fragment in choice.delta.tool_calls or ():
                self.anything = True
                self._call_of(fragment).take(fragment)

    def tool_calls(self) -> tuple[ModelCall, ...]:
        """The calls, in the order in which they began."""
        return tuple(ModelCall(call.id, call.name, call.arguments or "{}") for call in self._calls)

    def sealed(self) -> tuple[dict[str, Any], ...]:
        """The sealed thinking blocks, as their provider wants them back."""
        return tuple(self._thoughts.blocks)

    def _take_text(self, token: Token) -> None:
        if token.text:
            self.anything = True
            self._show(Token(encodable(token.text), token.kind))

    def _call_of(self, fragment: Any) -> _Call:
        call = self._at.get(fragment.index)
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._at[fragment.index] = _Call()
            self._calls.append(call)
        return call


class _Call:
    """A call as far as it has come in."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""

    def take(self, fragment: Any) -> None:
        self.id = self.id or fragment.id or ""
        if fragment.function is not None:
            self.name = self.name or fragment.function.name or ""
            self.arguments += fragment.function.arguments or ""


class _Thoughts:
    """Thinking blocks as far as they have come in: texts piece by piece, then a signature that seals them."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._text = ""

    def take(self, piece: dict[str, Any]) -> None:
        if piece.get("type") != "thinking":
            self.blocks.append(dict(piece))
        elif not piece.get("signature"):
            self._text += piece.get("thinking") or ""
        else:
            # With the signature litellm sends the whole text again.
            self.blocks.append({**piece, "thinking": self._text or piece.get("thinking") or ""})
            self._text = ""
