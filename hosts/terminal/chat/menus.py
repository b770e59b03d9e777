"""Questions as menus: the arrow keys choose, and whatever is typed is an answer in words of one's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import questionary
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout
from questionary import Choice
from questionary.prompts.common import InquirerControl
from rich.cells import cell_len

from ....states.values.questions import QuestionOption, UserQuestion
from ..output.printable import one_line
from ..output.writer import DIM, TerminalWriter
from .typeahead import DROPPED, forget
from .user_input import Answer, Commanded, Other, command_in

_MARGIN = 5
"""How many cells of a line the menu itself takes."""

_OTHER = object()
"""What the menu gives for the way to words of one's own; no label is the same object."""

_STYLE = questionary.Style([("answer", "bold"), ("pointer", "bold"), ("highlighted", "bold"), ("selected", "")])


class _Typed(NamedTuple):
    """What a menu gives where somebody begins to type: that, and what was marked."""

    text: str
    marked: list[Any]


class Menus:
    """Asks questions on a terminal, one after the other."""

    def __init__(self, pen: TerminalWriter) -> None:
        self._pen = pen

    async def answer(self, question: UserQuestion, other: Other | None, commands: Collection[str]) -> Answer | None:
        """The answer, or None after Ctrl-C. Raises EOFError after Ctrl-D, and `Commanded`."""
        self._pen.finish()
        if forget():
            self._pen.note(DROPPED)
        try:
            answer, words = await self._answer(question, other)
        except KeyboardInterrupt:
            return None
        if words is not None and command_in(words, commands):
            raise Commanded(words)
        return answer

    async def _answer(self, question: UserQuestion, other: Other | None) -> tuple[Answer, str | None]:
        """The answer, and of it the words that were typed."""
        self._pen.line()
        self._pen.line(question.question, "bold")
        menu = _choices(question.options, other, described=True)
        if any(_cells(option) + _MARGIN > self._pen.width for option in question.options):
            menu = _choices(question.options, other, described=False)
            self._describe(question.options)
        for option in question.options:
            if option.preview is not None:
                self._pen.box(option.label, option.preview)
        return await (self._several(question, menu) if question.multi_select else self._one(question, menu))

    def _describe(self, options: Iterable[QuestionOption]) -> None:
        """Descriptions that are too long for the menu, above it: a menu cuts off what is longer than a line."""
        for option in options:
            if option.description:
                self._pen.line(f"{one_line(option.label)} – {option.description}", DIM)

    async def _one(self, question: UserQuestion, menu: list[Choice]) -> tuple[Answer, str | None]:
        hint = "(arrow keys, Enter)"
        asked = questionary.select(_topic(question), choices=menu, instruction=hint, use_jk_keys=False, style=_STYLE)
        chosen = await _ask(asked)
        if chosen is not _OTHER and not isinstance(chosen, _Typed):
            return str(chosen), None
        words = await self._own_words(chosen.text if isinstance(chosen, _Typed) else "")
        return words, words

    async def _several(self, question: UserQuestion, menu: list[Choice]) -> tuple[Answer, str | None]:
        hint = "(space marks, Enter goes on)"
        asked = questionary.checkbox(
            _topic(question), choices=menu, instruction=hint, validate=_not_none, use_jk_keys=False, style=_STYLE
        )
        chosen = await _ask(asked)
        marked = chosen.marked if isinstance(chosen, _Typed) else chosen
        labels = [str(value) for value in marked if value is not _OTHER]
        if len(marked) > 1:
            self._pen.note(f"  {one_line(', '.join(labels))}")
        if not isinstance(chosen, _Typed) and _OTHER not in marked:
            return labels, None
        words = await self._own_words(chosen.text if isinstance(chosen, _Typed) else "")
        return [*labels, words], words

    async def _own_words(self, begun: str) -> str:
        words = questionary.text(
            "Your answer:",
            default=begun,
            validate=lambda text: bool(text.strip()) or "Say something, or press Ctrl-C to answer nothing.",
            style=_STYLE,
        )
        with patch_stdout(raw=True):
            return str(await words.unsafe_ask_async())


async def _ask(asked: questionary.Question) -> Any:
    """Ask by a menu. It knows Ctrl-D no more than letters, so both are taught to it: the one leaves, as anywhere else,
    and the others are given as `_Typed`."""
    if isinstance(keys := asked.application.key_bindings, KeyBindings):
        keys.add("c-d", eager=True)(lambda event: event.app.exit(exception=EOFError))
        keys.add(Keys.Any)(_take_typed)
        keys.add(Keys.BracketedPaste)(_take_typed)
        for marks_several in "ai":
            keys.add(marks_several, eager=True)(_take_typed)
    with patch_stdout(raw=True):  # what is written meanwhile stands above the menu
        return await asked.unsafe_ask_async()


def _take_typed(event: KeyPressEvent) -> None:
    text = event.data.replace("\r\n", "\n").replace("\r", "\n")
    if text.strip() and text.replace("\n", "").isprintable():
        controls = event.app.layout.find_all_controls()
        marked = [value for one in controls if isinstance(one, InquirerControl) for value in one.selected_options]
        event.app.exit(result=_Typed(text, marked))


def _not_none(chosen: list[str]) -> bool | str:
    return bool(chosen) or "Choose at least one: the space bar marks it."


def _topic(question: UserQuestion) -> str:
    return one_line(question.header or "Choose")


def _choices(options: Iterable[QuestionOption], other: Other | None, *, described: bool) -> list[Choice]:
    choices = [
        Choice(_title(option.label, option.description if described else None), option.label) for option in options
    ]
    return choices if other is None else [*choices, Choice(_title(other.label, other.description), _OTHER)]


def _title(label: str, description: str | None) -> list[tuple[str, str]]:
    title = [("", one_line(label))]
    return [*title, ("fg:ansibrightblack", f" – {one_line(description)}")] if description else title


def _cells(option: QuestionOption) -> int:
    return sum(cell_len(text) for _, text in _title(option.label, option.description))
