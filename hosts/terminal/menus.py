"""Questions as menus: the arrow keys choose, and "Other" takes words of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import questionary
from prompt_toolkit.key_binding import KeyBindings
from questionary import Choice
from rich.cells import cell_len

from ...states.questions import QuestionOption, UserQuestion
from .pen import DIM, Pen
from .person import Given
from .printable import one_line
from .typeahead import forget

_MARGIN = 5
"""How many cells of a line the menu itself takes."""

_OTHER = object()
"""What the menu gives for "Other"; no label is the same object."""

_STYLE = questionary.Style([("answer", "bold"), ("pointer", "bold"), ("highlighted", "bold"), ("selected", "")])


class Menus:
    """Asks questions on a terminal, one after the other."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen

    async def answers(self, questions: Sequence[UserQuestion]) -> Given | None:
        """The answers, or None after Ctrl-C. Raises EOFError after Ctrl-D."""
        self._pen.settle()
        forget()
        try:
            return {question.question: await self._answer(question) for question in questions}
        except KeyboardInterrupt:
            return None

    async def _answer(self, question: UserQuestion) -> str | list[str]:
        self._pen.line()
        self._pen.line(question.question, "bold")
        menu = _choices(question.options, described=True)
        if any(_cells(option) + _MARGIN > self._pen.width for option in question.options):
            menu = _choices(question.options, described=False)
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

    async def _one(self, question: UserQuestion, menu: list[Choice]) -> str:
        hint = "(arrow keys, Enter)"
        asked = questionary.select(_topic(question), choices=menu, instruction=hint, use_jk_keys=False, style=_STYLE)
        chosen = await _ask(asked)
        return str(chosen) if chosen is not _OTHER else await self._own_words()

    async def _several(self, question: UserQuestion, menu: list[Choice]) -> list[str]:
        hint = "(space marks, Enter goes on)"
        asked = questionary.checkbox(
            _topic(question), choices=menu, instruction=hint, validate=_not_none, use_jk_keys=False, style=_STYLE
        )
        chosen = await _ask(asked)
        labels = [str(value) for value in chosen if value is not _OTHER]
        if len(chosen) > 1:
            self._pen.note(f"  {one_line(', '.join(labels))}")
        return [*labels, await self._own_words()] if _OTHER in chosen else labels

    async def _own_words(self) -> str:
        words = questionary.text(
            "Your answer:",
            validate=lambda text: bool(text.strip()) or "Say something, or press Ctrl-C to answer nothing.",
            style=_STYLE,
        )
        return str(await _ask(words))


async def _ask(asked: questionary.Question) -> Any:
    """Ask; menus know Ctrl-D no more than letters, so it is taught to them: it leaves, as anywhere else."""
    if isinstance(keys := asked.application.key_bindings, KeyBindings):
        keys.add("c-d", eager=True)(lambda event: event.app.exit(exception=EOFError))
    return await asked.unsafe_ask_async()


def _not_none(chosen: list[str]) -> bool | str:
    return bool(chosen) or "Choose at least one: the space bar marks it."


def _topic(question: UserQuestion) -> str:
    return one_line(question.header or "Choose")


def _choices(options: Iterable[QuestionOption], *, described: bool) -> list[Choice]:
    choices = [
        Choice(_title(option.label, option.description if described else None), option.label) for option in options
    ]
    return [*choices, Choice(_title("Other", "in your own words"), _OTHER)]


def _title(label: str, description: str | None) -> list[tuple[str, str]]:
    title = [("", one_line(label))]
    return [*title, ("fg:ansibrightblack", f" – {one_line(description)}")] if description else title


def _cells(option: QuestionOption) -> int:
    return sum(cell_len(text) for _, text in _title(option.label, option.description))
