"""Reads what the user says from a terminal: a prompt with a history and Tab completion, and menus for questions.

In a menu the arrow keys choose an option, and typing begins an answer as free text. A question without options is
answered in free text at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import questionary
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout
from questionary import Choice
from questionary.prompts.common import InquirerControl
from rich.cells import cell_len
from typing_extensions import override

from ....effects.channels.speech import SpeechChannel
from ....states.values.questions import QuestionOption, UserQuestion
from ..output.lines import one_line
from ..output.writer import DIM, TerminalWriter
from .user_input import (
    DISCARDED,
    NO_COMMANDS,
    OWN_WORDS,
    Answer,
    CommandEntered,
    Commands,
    FreeTextOption,
    command_in,
    discard_typeahead,
    no_turn,
)

_PROMPT = FormattedText([("bold ansicyan", "> ")])


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
                    text = await self._session.prompt_async(_PROMPT, default=typed)
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

        answer = await _Menus(self._writer).answer(question, free_text, self.commands)
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


class CommandCompleter(Completer):
    """Completes a line that begins with a slash; `commands` returns the commands. A message is left alone."""

    def __init__(self, commands: Callable[[], Commands]) -> None:
        self._commands = commands

    @override
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield what the line up to the cursor can become."""
        name, space, argument = document.text_before_cursor.partition(" ")
        commands = self._commands()
        if space:
            choices = commands[name].choices() if name in commands else ()
            return (Completion(each, -len(argument), one_line(each)) for each in choices if each.startswith(argument))
        return (
            Completion(each, -len(name), display_meta=help_.description)
            for each, help_ in commands.items()
            if each.startswith(name)
        )


_MARGIN = 5
"""The number of cells of a line that the menu itself takes."""

_FREE_TEXT = object()
"""The value of the entry for free text. It is no string, so no label can equal it."""

_STYLE = questionary.Style([("answer", "bold"), ("pointer", "bold"), ("highlighted", "bold"), ("selected", "")])


class _Typed(NamedTuple):
    """The result of a menu in which the user began to type: the text, and the values of the marked options."""

    text: str
    marked: list[Any]


class _Menus:
    """Asks questions on a terminal, one after the other."""

    def __init__(self, writer: TerminalWriter) -> None:
        self._writer = writer

    async def answer(
        self, question: UserQuestion, free_text: FreeTextOption | None, commands: Collection[str]
    ) -> Answer | None:
        """Return the answer, or None after Ctrl-C. Raises EOFError after Ctrl-D, and `CommandEntered`."""
        self._writer.finish()
        if discard_typeahead():
            self._writer.note(DISCARDED)
        try:
            with self._writer.above_prompt():
                answer, text = await self._answer(question, free_text)
        except KeyboardInterrupt:
            return None
        if text is not None and command_in(text, commands):
            raise CommandEntered(text)
        return answer

    async def _answer(self, question: UserQuestion, free_text: FreeTextOption | None) -> tuple[Answer, str | None]:
        """Return the answer, and the part of it that was typed."""
        self._writer.line()
        self._writer.line(question.question, "bold")
        if not question.options:
            text = await self._free_text("")
            return text, text
        choices = _choices(question.options, free_text, described=True)
        if any(_cells(option) + _MARGIN > self._writer.width for option in question.options):
            choices = _choices(question.options, free_text, described=False)
            self._describe(question.options)
        for option in question.options:
            if option.preview is not None:
                self._writer.panel(option.label, option.preview)
        return await (self._several(question, choices) if question.multi_select else self._one(question, choices))

    def _describe(self, options: Iterable[QuestionOption]) -> None:
        """Write long descriptions above the menu, which would cut them off at the end of the line."""
        for option in options:
            if option.description:
                self._writer.line(f"{one_line(option.label)} – {option.description}", DIM)

    async def _one(self, question: UserQuestion, choices: list[Choice]) -> tuple[Answer, str | None]:
        hint = "(arrow keys, Enter)"
        menu = questionary.select(_title(question), choices=choices, instruction=hint, use_jk_keys=False, style=_STYLE)
        chosen = await _ask(menu)
        if chosen is not _FREE_TEXT and not isinstance(chosen, _Typed):
            return str(chosen), None
        text = await self._free_text(chosen.text if isinstance(chosen, _Typed) else "")
        return text, text

    async def _several(self, question: UserQuestion, choices: list[Choice]) -> tuple[Answer, str | None]:
        hint = "(space marks, Enter goes on)"
        menu = questionary.checkbox(
            _title(question), choices=choices, instruction=hint, validate=_check_choice, use_jk_keys=False, style=_STYLE
        )
        chosen = await _ask(menu)
        marked = chosen.marked if isinstance(chosen, _Typed) else chosen
        labels = [str(value) for value in marked if value is not _FREE_TEXT]
        if len(marked) > 1:
            self._writer.note(f"  {one_line(', '.join(labels))}")
        if not isinstance(chosen, _Typed) and _FREE_TEXT not in marked:
            return labels, None
        text = await self._free_text(chosen.text if isinstance(chosen, _Typed) else "")
        return [*labels, text], text

    async def _free_text(self, begun: str) -> str:
        prompt = questionary.text(
            "Your answer:",
            default=begun,
            validate=lambda text: bool(text.strip()) or "Say something, or press Ctrl-C to give no answer.",
            style=_STYLE,
        )
        with patch_stdout(raw=True):
            return str(await prompt.unsafe_ask_async())


async def _ask(menu: questionary.Question) -> Any:
    """Show a menu and return what is chosen. Ctrl-D raises EOFError, and typed text ends the menu as `_Typed`:
    questionary ignores both."""
    if isinstance(keys := menu.application.key_bindings, KeyBindings):
        keys.add("c-d", eager=True)(lambda event: event.app.exit(exception=EOFError))
        keys.add(Keys.Any)(_end_with_typed)
        keys.add(Keys.BracketedPaste)(_end_with_typed)
        for shortcut in "ai":  # questionary's own: mark all, invert
            keys.add(shortcut, eager=True)(_end_with_typed)
    with patch_stdout(raw=True):  # what is written meanwhile appears above the menu
        return await menu.unsafe_ask_async()


def _end_with_typed(event: KeyPressEvent) -> None:
    text = event.data.replace("\r\n", "\n").replace("\r", "\n")
    if text.strip() and text.replace("\n", "").isprintable():
        controls = event.app.layout.find_all_controls()
        marked = [value for one in controls if isinstance(one, InquirerControl) for value in one.selected_options]
        event.app.exit(result=_Typed(text, marked))


def _check_choice(chosen: list[str]) -> bool | str:
    return bool(chosen) or "Choose at least one: the space bar marks it."


def _title(question: UserQuestion) -> str:
    return one_line(question.header or "Choose")


def _choices(options: Iterable[QuestionOption], free_text: FreeTextOption | None, *, described: bool) -> list[Choice]:
    choices = [
        Choice(_entry(option.label, option.description if described else None), option.label) for option in options
    ]
    if free_text is None:
        return choices
    return [*choices, Choice(_entry(free_text.label, free_text.description), _FREE_TEXT)]


def _entry(label: str, description: str | None) -> list[tuple[str, str]]:
    entry = [("", one_line(label))]
    return [*entry, ("fg:ansibrightblack", f" – {one_line(description)}")] if description else entry


def _cells(option: QuestionOption) -> int:
    return sum(cell_len(text) for _, text in _entry(option.label, option.description))
