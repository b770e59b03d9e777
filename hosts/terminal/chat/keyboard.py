"""A person at a terminal: a line to type in, with the ones before it at hand, and menus for questions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from ....effects.channels.speech.channel import SpeechChannel
from ....states.values.questions import UserQuestion
from ..output.writer import TerminalWriter
from .menus import Menus
from .typeahead import DROPPED, forget
from .user_input import OTHER, Answer, Other

PROMPT = FormattedText([("bold ansicyan", "> ")])


class Keyboard:
    """Reads what is typed. `said` is what was said before, for the arrow keys: it is kept in the database only.

    Enter sends; Alt-Enter begins a new line, and so do the lines of a text that is pasted. At the line Ctrl-C first
    silences the `speech`, if it is heard; else it empties the line, and on an empty one it leaves when it comes right
    after another, or after one that cancelled something. In a menu it silences and gives no answer at once.
    """

    def __init__(self, pen: TerminalWriter, said: Iterable[str] = (), speech: SpeechChannel | None = None) -> None:
        self.commands: Collection[str] = ()
        self._speech = speech
        self._pen = pen
        self._menus = Menus(pen)
        self._session: PromptSession[str] = PromptSession(history=InMemoryHistory(list(said)), key_bindings=_keys())
        self._was_interrupted = False

    async def says(self) -> str | None:
        """What is typed next; None after Ctrl-D, or after Ctrl-C twice."""
        self._pen.line()
        typed = ""
        while True:
            try:
                with patch_stdout(raw=True):  # what is written meanwhile stands above the line
                    text = await self._session.prompt_async(PROMPT, default=typed)
            except EOFError:
                return None
            except KeyboardInterrupt:
                silenced = self._hush()
                typed = self._session.default_buffer.text if silenced else ""
                if not silenced and not self._stays():
                    return None
                continue
            self._was_interrupted = False
            if text.strip():
                return text

    async def answer(self, question: UserQuestion, other: Other | None = OTHER) -> Answer | None:
        """What is chosen in a menu or typed there; None after Ctrl-C. Raises EOFError after Ctrl-D, and `Commanded`."""
        given = await self._menus.answer(question, other, self.commands)
        self._was_interrupted = given is None
        if self._was_interrupted:
            self._hush()
        return given

    def interrupted(self) -> bool:
        """The second Ctrl-C leaves, unless something was said in between. What was typed before it counts no more."""
        if forget():
            self._pen.note(DROPPED)
        return self._again()

    def _hush(self) -> bool:
        """Fall silent; whether anything was heard."""
        return self._speech is not None and self._speech.stop()

    def _again(self) -> bool:
        again, self._was_interrupted = self._was_interrupted, True
        return again

    def _stays(self) -> bool:
        """Whether to go on reading after Ctrl-C."""
        if self._session.default_buffer.text:
            self._was_interrupted = False
            return True
        if self._again():
            return False
        self._pen.note("Press Ctrl-C again to leave, or Ctrl-D.")
        return True


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def begin_a_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
