"""The text of the answer under way that is shown already.

A model that fails in the middle of its answer is asked again, and writes from the beginning. So the text that is shown
belongs to one request and one attempt; a piece of another one takes it back.
"""

from __future__ import annotations

from typing import Literal

from ....engine.updates import TokenUpdate
from ..output.writer import TerminalWriter
from .reply_header import ReplyHeader

THOUGHT = "dim italic"

Kind = Literal["text", "thinking"]


class ShownText:
    """Shows the text and the thinking of one answer after the other, as they are streamed.

    `thoughts`, `by_tool`, `whole` and `header` are those of the screen.
    """

    def __init__(
        self,
        writer: TerminalWriter,
        *,
        thoughts: bool,
        by_tool: bool,
        whole: bool = False,
        header: ReplyHeader | None = None,
    ) -> None:
        self._writer = writer
        self._whole = whole
        self._header = header
        self._thoughts = thoughts
        self._by_tool = by_tool
        self._hides_text = by_tool
        self._request = (0, 0)
        self._shown: dict[Kind, str] = {"text": "", "thinking": ""}

    def add(self, token: TokenUpdate) -> None:
        """Show a piece of an answer. A piece of another attempt takes back what was shown before."""
        request = (token.request, token.attempt)
        if request != self._request:
            self.take_back()
            self._shown = {"text": "", "thinking": ""}
        self._request = request
        self._hides_text = self._by_tool or token.fallback
        is_thought = token.kind == "thinking" or self._hides_text
        if (is_thought and not self._thoughts) or (self._whole and not is_thought):
            return
        text = self._new_text(token, is_thought)
        self._shown[token.kind] += text
        if is_thought:
            self._writer.stream(text, THOUGHT)
        else:
            self._begin_answer()
            self._writer.stream_answer(text)

    def take_back(self) -> bool:
        """Take back the text of an answer that broke off, and return whether there was any. What has left the screen
        stays, and a note says so."""
        shown, self._shown["text"] = self._shown["text"], ""
        if self._hides_text or not shown:
            return False
        if not self._writer.discard_answer():
            self._writer.note("  This answer broke off.")
        return True

    def end_answer(self, text: str) -> None:
        """Show the rest of the answer, whose whole text is given."""
        shown, self._shown["text"] = self._shown["text"], ""
        if shown and text.startswith(shown):
            self._writer.stream_answer(text[len(shown) :])
            self._writer.finish()
            return
        if shown:
            self._writer.discard_answer()
        self._begin_answer()
        self._writer.answer(text)

    def end_thought(self, text: str, kind: Kind) -> None:
        """Show a thought, unless it was streamed as this kind of text."""
        if self._thoughts and not self._shown[kind]:
            self._writer.line(text, THOUGHT)

    def end(self) -> None:
        """Keep what is shown, and forget it: what follows belongs to another answer."""
        self._shown = {"text": "", "thinking": ""}

    def _begin_answer(self) -> None:
        if self._header is not None:
            self._header.write()

    def _new_text(self, token: TokenUpdate, is_thought: bool) -> str:
        """Return what is new in a token. One that has everything from the start replaces what is shown."""
        shown = self._shown[token.kind]
        if not token.from_start or not shown:
            return token.text
        if token.text.startswith(shown):
            return token.text[len(shown) :]
        if not is_thought:
            self._writer.discard_answer()
        self._shown[token.kind] = ""
        return token.text
