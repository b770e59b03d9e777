"""A person, or a script, on the other end of a pipe: each line is a message, or the answer to a question."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress

from ....states.values.questions import UserQuestion
from ..output.writer import TerminalWriter
from .user_input import OTHER, Commanded, Other, command_in


class Lines:
    """Reads stdin line by line, and writes out what is asked, with a number before each option.

    An answer is a number, a label, or any words of one's own; several of the first two with commas between them where
    several may be chosen.
    """

    def __init__(self, pen: TerminalWriter) -> None:
        self.commands: Collection[str] = ()
        self._pen = pen
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread that waits for a line cannot be stopped, so it must not keep the program from ending.
        threading.Thread(target=self._read, daemon=True, name="turnwise-lines").start()

    async def says(self) -> str | None:
        """The next line that says something."""
        return await self._next()

    async def answer(self, question: UserQuestion, other: Other | None = OTHER) -> str | list[str]:
        """What the next line answers. Raises EOFError when there are no more lines, and `Commanded`."""
        hint = "Numbers or labels with commas between them" if question.multi_select else "A number, a label"
        self._pen.line(f"{asked(question)}\n  {hint}{other.hint if other else ''}:")
        line = await self._next()
        if line is None:
            raise EOFError
        if command_in(line, self.commands):
            raise Commanded(line)
        return answer_in(line, question)

    def interrupted(self) -> bool:
        """Where lines are read, Ctrl-C between two turns leaves at once."""
        return True

    async def _next(self) -> str | None:
        while (line := await self._lines.get()) is not None:
            if line.strip():
                return line
        self._lines.put_nowait(None)
        return None

    def _read(self) -> None:
        # The loop may be closed while this waits for a line.
        with suppress(RuntimeError):
            for line in _lines():
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)


def _lines() -> Iterator[str]:
    # Python has no stdin where it was closed from the start.
    if sys.stdin is not None:
        # Unbuffered and of its own: Python locks the buffer of sys.stdin when it ends, while this may still wait.
        with io.FileIO(sys.stdin.fileno(), closefd=False) as stream:
            while raw := stream.readline():
                yield raw.decode(errors="replace").rstrip("\r\n")


def asked(question: UserQuestion) -> str:
    """The question as lines of text. `Pure.`"""
    header = f"[{question.header}] " if question.header else ""
    lines = [f"? {header}{question.question}"]
    for number, option in enumerate(question.options, start=1):
        lines.append(f"  {number}. {option.label}{f' - {option.description}' if option.description else ''}")
        lines += [f"     {line}" for line in (option.preview or "").splitlines()]
    return "\n".join(lines)


def answer_in(line: str, question: UserQuestion) -> str | list[str]:
    """What a line answers: the labels that it names, or else its own words as they are. `Pure.`"""
    whole = _label(line, question)
    if not question.multi_select:
        return whole or line
    parts = [_label(part, question) for part in line.split(",")]
    labels = [whole] if whole else [part for part in parts if part is not None]
    return list(dict.fromkeys(labels)) if whole or None not in parts else [line]


def _label(text: str, question: UserQuestion) -> str | None:
    """The option that is meant. A label comes before a number: "2" may be one."""
    wanted = text.strip().casefold()
    labels = [option.label for option in question.options]
    numbered = {str(number): label for number, label in enumerate(labels, start=1)}
    return {**numbered, **{label.strip().casefold(): label for label in labels}}.get(wanted)
