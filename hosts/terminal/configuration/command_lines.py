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
    from .model_choice import ModelChoice
    from .settings import Settings

NAME = "turnwise"


def resume_hint(conversation_id: str, settings: Settings, model: ModelChoice, name: str = "this conversation") -> str:
    """Return the sentence that tells how to resume a conversation with the same models, tools, display and speech.

    `name` is what the sentence calls the conversation.
    """
    if is_in_memory(settings.db):
        return f"You cannot resume {name}: its database is in memory only."
    options = [
        *options_for(settings, "db"),
        *_models(settings, model),
        *options_for(settings, "tools", "profile", "thoughts", "speak", "plain", "voice_debug"),
    ]
    return f"To resume {name}: {command_line('chat', conversation_id, *options)}"


def _models(settings: Settings, model: ModelChoice) -> list[str]:
    """Return the options for the models, the one that is asked first. One that was chosen needs no option."""
    if options_for(settings, "models"):
        return [part for name in model.names for part in ("--model", name)]
    return options_for(settings, "model") if model.chosen is None else []


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
    """Return the options that give the named settings their values again."""
    from .settings import directory_settings

    default = directory_settings()
    changed = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(default, name)}
    return [part for name, value in changed.items() for part in _option(name, value)]


def _option(name: str, value: str | bool | tuple[str, ...]) -> Iterator[str]:
    if value is not False:
        yield f"--{name.replace('_', '-')}"
    if not isinstance(value, bool):
        yield value if isinstance(value, str) else ",".join(value)


def _program() -> str:
    """Return the name of this command if the shell finds it, else its path."""
    called, found = Path(sys.argv[0]), which(NAME)
    if called.stem != NAME or (found is not None and Path(found).samefile(called)):
        return NAME
    short = called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called
    return str(short) if len(short.parts) > 1 else f"./{short}"  # a shell looks for a bare name in PATH only
