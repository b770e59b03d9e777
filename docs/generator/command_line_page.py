"""Writes docs/reference/command-line.md, which lists the commands of `turnwise` with their arguments and options.

They are read from the program, so the page says what `--help` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.hosts.terminal.commands.app import app
from turnwise.hosts.terminal.configuration import known_presets

BEGINNING = """# The command line

`turnwise` holds conversations in a terminal, serves them over HTTP, and looks after databases. [The
terminal](../guides/terminal.md) explains a chat, its keys and the exit codes. An option may also be [a
setting](settings.md#settings-of-the-terminal): a variable such as `TURNWISE_DB`, or a line of `turnwise.toml` in the
working directory.
"""


def command_line() -> str:
    """Return the page."""
    return "\n".join([BEGINNING, *_commands(), _names()]) + "\n"


def _commands() -> Iterator[str]:
    program: Any = typer.main.get_command(app)
    for name, command in program.commands.items():
        yield f"## turnwise {name}\n"
        yield f"```\n{_usage(name, command)}\n```\n"
        yield f"{command.help}\n"
        yield from _table(
            "argument", "argument", [part for part in command.params if part.param_type_name == "argument"]
        )
        yield from _table("option", "option", [part for part in command.params if part.param_type_name == "option"])


def _usage(name: str, command: Any) -> str:
    arguments = [part for part in command.params if part.param_type_name == "argument"]
    options = ["[OPTIONS]"] if len(arguments) < len(command.params) else []
    return " ".join(["turnwise", name, *options, *map(_argument, arguments)])


def _argument(part: Any) -> str:
    return part.metavar if part.required else f"[{part.metavar}]"


def _table(title: str, kind: str, parts: list[Any]) -> Iterator[str]:
    """Yield the table of the parts, if there are any."""
    if parts:
        yield f"| {title} | by default | what it is |\n| --- | --- | --- |"
        yield from (f"| {_written(part, kind)} | {_default(part)} | {part.help} |" for part in parts)
        yield ""


def _written(part: Any, kind: str) -> str:
    if kind == "argument":
        return f"`{part.metavar}`"
    value = f" {part.metavar}" if part.metavar else ""
    return ", ".join(f"`{name}{value}`" for name in [*part.opts, *part.secondary_opts])


def _default(part: Any) -> str:
    """What holds without it, in the words of the help."""
    if isinstance(part.show_default, str):
        return part.show_default
    return f"`{part.default}`" if isinstance(part.default, str) else ""


def _names() -> str:
    """Say what options may name."""
    presets, tools = (", ".join(f"`{name}`" for name in names) for names in (known_presets(), BUILT_IN))
    return f"## Presets and built-in tools\n\n- `--preset` takes {presets}.\n- `--tools` takes {tools}, and functions."
