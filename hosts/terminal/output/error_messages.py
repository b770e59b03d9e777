"""Turns whatever ends a command into an exit code and one sentence for the user, never a traceback.

The errors of turnwise carry their sentence. Of any other error only its type is shown, because its text may quote the
conversation; `--debug` shows the rest.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .notices import print_notice
from .printable import one_line

if TYPE_CHECKING:
    from typer import TyperException

REFUSED = 2
"""The exit code when a command cannot do what it was asked: a wrong option, an unknown id, a foreign database."""

UNEXPECTED = 70
"""The exit code for an error in turnwise itself: EX_SOFTWARE of sysexits.h."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""

CLOSED_PIPE = 1
"""The exit code when the program that read the output has ended."""

logger = logging.getLogger("turnwise.terminal")


def exit_code(command: Callable[[], object]) -> int:
    """Run the command, print the sentence of the error that it raises, if any, and return the exit code.

    The command returns its exit code, or None for 0.
    """
    try:
        return _run(command)
    except BaseException as error:
        cause = _cause(error)
        logger.debug("The command ended with an error.", exc_info=cause)
        code, sentence = _explain(cause)
        if sentence:
            _print(sentence)
        return code


def _run(command: Callable[[], object]) -> int:
    code = 0
    try:
        result = command()
        code = result if isinstance(result, int) else 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    # Flush while an error can still be reported. Python has no stdout if it was closed before the start.
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _cause(error: BaseException) -> BaseException:
    """Return the error itself, without the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _explain(error: BaseException) -> tuple[int, str]:
    from typer import TyperException

    from ....states.errors import TurnwiseError  # importing its package takes a fifth of a second, which --help saves

    match error:
        case TurnwiseError():
            return REFUSED, error.sentence
        case TyperException():
            return REFUSED, _usage_sentence(error)
        case KeyboardInterrupt():
            return INTERRUPTED, ""
        case BrokenPipeError():
            _discard_output()
            return CLOSED_PIPE, ""
        case OSError(strerror=str(reason)):
            _discard_output()
            return REFUSED, f"The operating system reports an error: {reason}."
        case _:
            kind = type(error).__name__
            return UNEXPECTED, f"An unexpected error occurred ({kind}); run with --debug to see where."


def _usage_sentence(error: TyperException) -> str:
    """Return what is wrong with the options or arguments, and where the help is; empty if the help was shown."""
    said = error.format_message().rstrip(".")
    command = getattr(getattr(error, "ctx", None), "command_path", "turnwise")
    if said.endswith("?"):
        return f"{said} See {command} --help."
    return f"{said}; see {command} --help." if said else ""


def _discard_output() -> None:
    """Redirect stdout to nowhere: Python flushes it at exit, and would fail and complain a second time."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _print(sentence: str) -> None:
    try:
        print_notice(one_line(sentence))
    except OSError:
        logger.debug("The error message could not be written to stderr.")
