"""The input of a user at a terminal: a prompt with a history, and menus for questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from ....effects.channels.speech import SpeechChannel
from ....states.values.questions import UserQuestion
from ..output.writer import TerminalWriter
from .completion import CommandCompleter
from .typeahead import DISCARDED, discard_typeahead
from .user_input import NO_COMMANDS, OWN_WORDS, Answer, Commands, FreeTextOption, no_turn

PROMPT = FormattedText([("bold ansicyan", "> ")])


class Keyboard:
    """Reads what is typed. `history` are earlier messages for the arrow keys; they are not stored anywhere else.

    Enter sends; Tab completes commands; Alt-Enter begins a new line, and a pasted text keeps its lines. Ctrl-C at the
    prompt first silences `speech` if it is speaking, and stops a turn that somebody else began. Otherwise it empties
    the line, and on an empty line it leaves if it follows another Ctrl-C or one that cancelled something. In a menu it
    silences and declines to answer at once.
    """

    def __init__(
        self, writer: TerminalWriter, history: Iterable[str] = (), speech: SpeechChannel | None = None
    ) -> None:
        self.commands: Commands = NO_COMMANDS
        self.stop_turn: Callable[[], bool] = no_turn
        self._speech = speech
        self._writer = writer
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory(list(history)),
            key_bindings=_keys(),
            completer=CommandCompleter(lambda: self.commands),
            complete_while_typing=False,  # Tab asks for it; so no space has to be kept free below the prompt
        )
        self._was_interrupted = False
        self._typed = ""
        """What was typed when reading a message was cancelled. The next prompt begins with it."""

    async def next_message(self) -> str | None:
        """Return what is typed next, or None after Ctrl-D, or after Ctrl-C twice."""
        self._writer.line()
        while True:
            typed, self._typed = self._typed, ""
            try:
                with self._writer.above_prompt(), patch_stdout(raw=True):
                    text = await self._session.prompt_async(PROMPT, default=typed)
            except EOFError:
                return None
            except asyncio.CancelledError:
                self._typed = self._session.default_buffer.text
                raise
            except KeyboardInterrupt:
                stopped = self._silence() | self.stop_turn()
                self._typed = self._session.default_buffer.text if stopped else ""
                if not stopped and not self._stays():
                    return None
                continue
            self._was_interrupted = False
            if text.strip():
                return text

    async def answer(self, question: UserQuestion, free_text: FreeTextOption | None = OWN_WORDS) -> Answer | None:
        """Return what is chosen in a menu or typed there, or None after Ctrl-C.

        Raises EOFError after Ctrl-D, and `CommandEntered`.
        """
        from .menus import Menus

        answer = await Menus(self._writer).answer(question, free_text, self.commands)
        self._was_interrupted = answer is None
        if self._was_interrupted:
            self._silence()
        return answer

    def on_interrupt(self) -> bool:
        """Discard what was typed before Ctrl-C. The second one leaves, unless a message was sent in between."""
        if discard_typeahead():
            self._writer.note(DISCARDED)
        return self._interrupted_again()

    def _silence(self) -> bool:
        """Stop speaking, and return whether anything was being spoken."""
        return self._speech is not None and self._speech.stop()

    def _interrupted_again(self) -> bool:
        again, self._was_interrupted = self._was_interrupted, True
        return again

    def _stays(self) -> bool:
        """Return whether to continue reading after Ctrl-C at the prompt."""
        if self._session.default_buffer.text:
            self._was_interrupted = False
            return True
        if self._interrupted_again():
            return False
        self._writer.note("Press Ctrl-C again to leave, or Ctrl-D.")
        return True


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def begin_a_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
