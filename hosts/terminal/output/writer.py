"""Writes to stdout.

On a terminal there is colour, lines break between words, and a spinner turns while the user waits. To a pipe or a file
the same lines are written without escape codes and unbroken, so that scripts can read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from typing_extensions import override

from ....effects.printable import printable
from .lines import one_line
from .markdown import THEME, StreamedAnswer

if TYPE_CHECKING:
    from rich.status import Status


MAX_WIDTH = 100
"""The most cells in a line of text; longer lines are hard to read."""

DIM = "dim"


class _Stdout(Console):
    """A console for which a closed pipe is an error like any other."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class TerminalWriter:
    """Writes to stdout. `interactive` says that it is a terminal; with `markdown` it shows answers rendered there."""

    def __init__(self, *, interactive: bool, markdown: bool = False) -> None:
        self.interactive = interactive
        self._markdown = interactive and markdown
        self._console = _Stdout(theme=THEME, highlight=False, force_terminal=None if interactive else False)
        self._spinner: Status | None = None
        self._streaming: tuple[str, LineWrapper] | None = None
        self._answer: StreamedAnswer | None = None
        self._deferred: list[str] = []
        self._held: str | None = None
        """The part of an answer that has come while a prompt is shown; empty if none has come, None if there is no
        prompt."""
        self._ends_blank = False
        """Whether the last line is empty."""

    @property
    def takes_back(self) -> bool:
        """Whether an answer that is being streamed can be replaced by another text."""
        return self._markdown

    @property
    def width(self) -> int:
        """The number of cells in a line of text."""
        return min(self._console.width, MAX_WIDTH)

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line or several, on lines of their own."""
        self.finish()
        wrapper = self._wrapper()
        self._write(f"{wrapper.feed(printable(text))}{wrapper.finish()}\n", style)

    def blank_line(self) -> None:
        """Write an empty line, unless the line before is empty."""
        self.finish()
        if not self._ends_blank:
            self.line()

    def note(self, text: str) -> None:
        """Write a message of the program, dimmed to set it apart from the conversation."""
        self.line(text, DIM)

    def defer_note(self, text: str) -> None:
        """Write a note once the text that is being streamed has ended; at once if there is none."""
        if self._streaming is None and self._answer is None and not self._held:
            self.note(text)
        else:
            self._deferred.append(text)

    def step(self, text: str) -> None:
        """Write a short line on what the program does. It stands above a spinner, which goes on, or else is a deferred
        note."""
        if self._spinner is not None:
            self._console.print(Text(printable(text), style=DIM), no_wrap=True, overflow="ellipsis")
        else:
            self.defer_note(text)

    def copyable(self, text: str, style: str = "") -> None:
        """Write a line that users copy. It is not broken between words, so it stays one line when it is copied."""
        self.finish()
        self._write(f"{printable(text)}\n", style)

    def row(self, text: str) -> None:
        """Write a row of a table. On a terminal it is shortened to the width of a line."""
        self.finish()
        if self.interactive:
            self._console.print(Text(printable(text)), no_wrap=True, overflow="ellipsis")
        else:
            self._write(f"{printable(text)}\n")

    def heading(self, text: str) -> None:
        """Write the heading of a section."""
        self.line()
        self.line(text, "bold")

    def stream(self, text: str, style: str = "") -> None:
        """Write a piece of a text behind the piece before it. A piece in another style begins on a new line."""
        if self._streaming is None or self._streaming[0] != style:
            self.finish()
            self._streaming = (style, self._wrapper())
        style, wrapper = self._streaming
        self._write(wrapper.feed(printable(text)), style)

    def answer(self, text: str) -> None:
        """Write an answer of a model, on lines of its own."""
        self.finish()
        self.stream_answer(text)
        self.finish()

    def stream_answer(self, text: str) -> None:
        """Write a piece of an answer behind the piece before it."""
        if not self._markdown:
            self.stream(text)
            return
        if self._held is not None:
            self._held += text
            return
        if self._answer is None:
            self.finish()
            self._answer = self._begin_answer(text)
        else:
            self._answer.feed(printable(text))

    def discard_answer(self) -> bool:
        """Take back the answer that is being streamed, because it begins again, and return True. Return False if what
        was written stays: it has left the screen, or this is no terminal."""
        answer, self._answer = self._answer, None
        taken_back = bool(self._held) or (answer is not None and answer.discard())
        if self._held:
            self._held = ""
        self.finish()
        return taken_back

    @contextmanager
    def above_prompt(self) -> Iterator[None]:
        """While the body runs, a prompt or a menu is at the end of the screen, and `patch_stdout` writes above it.

        Nothing can be drawn again there, so an answer is written when it is complete, and no spinner turns.
        """
        self.finish()
        self._held = ""
        try:
            yield
        finally:
            held, self._held = self._held, None
            if held:
                self.stream_answer(held)

    def panel(self, title: str, text: str) -> None:
        """Write a preformatted text under its title, in a frame if this is a terminal."""
        self.finish()
        heading, content = one_line(title), printable(text).rstrip()
        if self.interactive:
            from rich.panel import Panel

            frame = Panel.fit(Text(content), title=Text(heading), title_align="left", border_style=DIM)
            self._console.print(frame)
        else:
            self._write(f"[{heading}]\n{content}\n")

    def spin(self, text: str) -> None:
        """Show on a terminal what the user is waiting for, until something else is written."""
        self.finish()
        if self.interactive and self._held is None:
            self._spinner = self._console.status(Text(one_line(text, self._console.width - 4), style=DIM))
            self._spinner.start()

    def finish(self) -> None:
        """End the spinner or the line that is being written. Call it before anything else writes to the terminal."""
        spinner, self._spinner = self._spinner, None
        if spinner is not None:
            spinner.stop()
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            style, wrapper = streaming
            self._write(f"{wrapper.finish()}\n", style)
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.finish()
        if self._held:
            held, self._held = self._held, ""
            with self._console:  # in one piece: the prompt may be drawn again between two of them
                self._begin_answer(held).finish()
        deferred, self._deferred = self._deferred, []
        for text in deferred:
            self.note(text)

    def _begin_answer(self, text: str) -> StreamedAnswer:
        self._ends_blank = False
        answer = StreamedAnswer(self._console, MAX_WIDTH)
        answer.feed(printable(text))
        return answer

    def _wrapper(self) -> LineWrapper:
        return LineWrapper(self.width if self.interactive else None)

    def _write(self, text: str, style: str = "") -> None:
        if text:
            self._ends_blank = text == "\n"
            self._console.print(Text(text, style=style, end=""), end="", soft_wrap=True)


_TOKENS = re.compile(r"\n|[^\S\n]+|\S+")


class LineWrapper:
    """Wraps a text to lines of at most `width` cells; with None its lines stay as they are.

    A terminal breaks a line where it is full, even within a word. So a word is held back until its end has arrived, and
    is then written on the line where it fits.

    A word longer than a line is left for the terminal to break. Spaces at a line break are dropped.
    """

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """Add a piece of the text, and return what can be written now."""
        return text if self._width is None else "".join(self._take(token) for token in _TOKENS.findall(text))

    def finish(self) -> str:
        """Return the rest of the text."""
        return self._flush_word()

    def _take(self, token: str) -> str:
        if not token.isspace():
            self._word += token
            return ""
        flushed = self._flush_word()
        if token == "\n":
            self._column, self._space = 0, ""
            return f"{flushed}\n"
        self._space += token
        return flushed

    def _flush_word(self) -> str:
        word, space = self._word, self._space
        if not word or self._width is None:
            return ""
        self._word = self._space = ""
        end = self._column + cell_len(space) + cell_len(word)
        if self._column and end > self._width:
            self._column = cell_len(word)
            return f"\n{word}"
        self._column = end
        return f"{space}{word}"
