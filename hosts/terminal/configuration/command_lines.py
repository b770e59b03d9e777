"""Commands to be copied: what to type to come back, or to go on from here.

They need nothing of this environment: what the directory does not say by itself stands in them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from ....persistence.sqlite.address import Address
from ..output.printable import one_line

if TYPE_CHECKING:
    from .settings import Settings

NAME = "turnwise"


def way_back(conversation_id: str, settings: Settings, called: str = "this conversation") -> str:
    """How to take a conversation up again, and see and hear it as now; `called` is how it is spoken of."""
    if Address.of(settings.db).path is None:
        return f"There is no way back to {called}: it is held in memory only."
    options = options_of(settings, "db", "model", "tools", "thoughts", "speak")
    return f"To come back to {called}: {command('chat', conversation_id, *options)}"


def command(*arguments: str) -> str:
    """This command with these arguments, as a shell reads them, in one line."""
    return " ".join(map(_word, (own_name(), *arguments)))


def _word(argument: str) -> str:
    """One word of a command. What is not seen, or ends the line, is written by its bytes, as bash and zsh read them."""
    if argument == one_line(argument):
        return shlex.quote(argument)
    return f"$'{''.join(map(_spelled, argument))}'"


def _spelled(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character == " " or character == one_line(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))


def options_of(settings: Settings, *names: str) -> list[str]:
    """Those of these options that must be given so that they hold again. Raises `ConfigurationError`."""
    from .settings import settings_of_the_directory

    usual = settings_of_the_directory()
    changed = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(usual, name)}
    return [part for name, value in changed.items() for part in _option(name, value)]


def _option(name: str, value: str | bool | tuple[str, ...]) -> Iterator[str]:
    if value is not False:
        yield f"--{name}"
    if not isinstance(value, bool):
        yield value if isinstance(value, str) else ",".join(value)


def own_name() -> str:
    """What to type for this command: its name where the shell finds it, else its path."""
    called, found = Path(sys.argv[0]), which(NAME)
    if called.stem != NAME or (found is not None and Path(found).samefile(called)):
        return NAME
    short = called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called
    return str(short) if len(short.parts) > 1 else f"./{short}"  # a name alone is looked for elsewhere
