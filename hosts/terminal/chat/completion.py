"""Tab completion at the prompt of a chat: commands, and what may stand behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from typing_extensions import override

from ..output.printable import one_line
from .user_input import Commands


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
