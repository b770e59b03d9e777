"""Assembles an answer from the chunks in which it streams.

litellm has a function for that, `stream_chunk_builder`, which is used for the text and the usage. It is not reliable
where exactness matters: it loses calls without an id, merges calls that a provider sends under the same index, and
repeats the text of a sealed thinking block, which the provider then refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....states.values.surrogates import encodable
from ..port import ModelCall, Token


class StreamAssembler:
    """The part of an answer that has arrived so far; `show` is called with each piece of its text.

    `chunks` are litellm's chunks. `is_empty` says that none of them held text or a call.
    """

    def __init__(self, show: Callable[[Token], None]) -> None:
        self.chunks: list[Any] = []
        self.is_empty = True
        self._show = show
        self._calls: list[_PartialCall] = []
        self._newest_at: dict[int, _PartialCall] = {}
        self._thinking = _ThinkingBlocks()

    def add(self, chunk: Any) -> None:
        """Add the next chunk, and show its text."""
        self.chunks.append(chunk)
        for choice in chunk.choices[:1]:
            self._add_text(Token(getattr(choice.delta, "reasoning_content", None) or "", "thinking"))
            self._add_text(Token(choice.delta.content or ""))
            for block in getattr(choice.delta, "thinking_blocks", None) or ():
                self._thinking.add(block)
            for fragment in choice.delta.tool_calls or ():
                self.is_empty = False
                self._call_of(fragment).add(fragment)

    def tool_calls(self) -> tuple[ModelCall, ...]:
        """The calls, in the order in which they began."""
        return tuple(ModelCall(call.id, call.name, call.arguments or "{}") for call in self._calls)

    def thinking_blocks(self) -> tuple[dict[str, Any], ...]:
        """The sealed thinking blocks, in the form in which their provider wants them back."""
        return tuple(self._thinking.blocks)

    def _add_text(self, token: Token) -> None:
        if token.text:
            self.is_empty = False
            self._show(Token(encodable(token.text), token.kind))

    def _call_of(self, fragment: Any) -> _PartialCall:
        call = self._newest_at.get(fragment.index)
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._newest_at[fragment.index] = _PartialCall()
            self._calls.append(call)
        return call


class _PartialCall:
    """The part of a call that has arrived so far."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""

    def add(self, fragment: Any) -> None:
        self.id = self.id or fragment.id or ""
        if fragment.function is not None:
            self.name = self.name or fragment.function.name or ""
            self.arguments += fragment.function.arguments or ""


class _ThinkingBlocks:
    """The thinking blocks that have arrived so far. The text of a block comes in pieces, then a signature seals it."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._text = ""

    def add(self, piece: dict[str, Any]) -> None:
        if piece.get("type") != "thinking":
            self.blocks.append(dict(piece))
        elif not piece.get("signature"):
            self._text += piece.get("thinking") or ""
        else:
            # Together with the signature litellm sends the whole text again.
            self.blocks.append({**piece, "thinking": self._text or piece.get("thinking") or ""})
            self._text = ""
