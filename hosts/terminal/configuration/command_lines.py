"""Builds command lines for users to copy: to resume a conversation, or to try something next.

A command line does not depend on the environment of this run: it contains every option whose value differs from the
settings of the working directory.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from ....persistence.opening import is_in_memory
from ..output.printable import one_line

if TYPE_CHECKING:
    from .settings import Settings

NAME = "turnwise"


class ResumeHint:
    """Tells how to resume a conversation with the same tools, display and speech.

    `names_model` says whether its model is named, too; a conversation that chose its model keeps it.
    """

    def __init__(self, settings: Settings, *, names_model: bool = True) -> None:
        self.names_model = names_model
        self._settings = settings

    def of(self, conversation_id: str, name: str = "this conversation") -> str:
        """Return the sentence. `name` is what it calls the conversation."""
        if is_in_memory(self._settings.db):
            return f"You cannot resume {name}: its database is in memory only."
        model = ("model",) if self.names_model else ()
        options = options_for(self._settings, "db", *model, "models", "tools", "thoughts", "speak", "plain")
        return f"To resume {name}: {command_line('chat', conversation_id, *options)}"


def command_line(*arguments: str) -> str:
    """Return a call of this command with these arguments, as one line for a shell."""
    return " ".join(map(_quoted, (_program(), *arguments)))


def _quoted(argument: str) -> str:
    """Quote a word. Invisible characters and line ends are written as octal escapes, which bash and zsh read."""
    if argument == one_line(argument):
        return shlex.quote(argument)
    return f"$'{''.join(map(_escaped, argument))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character == " " or character == one_line(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))


def options_for(settings: Settings, *names: str) -> list[str]:
    """Return the options that give the named settings their values again. Raises `ConfigurationError`."""
    from .settings import directory_settings

    default = directory_settings()
    changed = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(default, name)}
    return [part for name, value in changed.items() for part in _option(name, value)]


def _option(name: str, value: str | bool | tuple[str, ...]) -> Iterator[str]:
    if name == "models" and isinstance(value, tuple):
        yield from (part for each in value for part in ("--model", each))
        return
    if value is not False:
        yield f"--{name}"
    if not isinstance(value, bool):
        yield value if isinstance(value, str) else ",".join(value)


def _program() -> str:
    """Return the name of this command if the shell finds it, else its path."""
    called, found = Path(sys.argv[0]), which(NAME)
    if called.stem != NAME or (found is not None and Path(found).samefile(called)):
        return NAME
    short = called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called
    return str(short) if len(short.parts) > 1 else f"./{short}"  # a shell looks for a bare name in PATH only
