"""What a person reads when something cannot be done: one sentence, and never a traceback (case P33).

Whatever happens in a command ends here. What turnwise raises on purpose says itself what is wrong; of anything else
only the kind is told, because its text may hold what people said, and `--debug` shows the rest.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from .notices import remark
from .printable import one_line

CANNOT = 2
"""The exit code for what cannot be done as it was asked: a wrong option, an unknown id, a database of others."""

UNEXPECTED = 70
"""The exit code for a fault of this program: EX_SOFTWARE of sysexits.h."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

NOBODY_READS = 1
"""The exit code when whoever read the output is gone."""

logger = logging.getLogger("turnwise.terminal")


def exit_code(command: Callable[[], object]) -> int:
    """Run the command, say in one sentence what went wrong, and return the exit code."""
    try:
        return _outcome(command)
    except BaseException as error:
        cause = _cause(error)
        logger.debug("The command ended with an error.", exc_info=cause)
        code, sentence = _judge(cause)
        if sentence:
            _tell(sentence)
        return code


def _outcome(command: Callable[[], object]) -> int:
    code = 0
    try:
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    # Now, where it can still be noticed that it fails; there is no stdout where it was closed from the start.
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _cause(error: BaseException) -> BaseException:
    """The error itself, out of the groups in which tasks wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _judge(error: BaseException) -> tuple[int, str]:
    from ....states.errors import TurnwiseError  # its package takes a fifth of a second to import, and help needs none

    match error:
        case TurnwiseError():
            return CANNOT, error.sentence
        case KeyboardInterrupt():
            return INTERRUPTED, ""
        case BrokenPipeError():
            _forget_output()
            return NOBODY_READS, ""
        case OSError(strerror=str(reason)):
            _forget_output()
            return CANNOT, f"The system does not allow it: {reason}."
        case _:
            kind = type(error).__name__
            return UNEXPECTED, f"Something unexpected went wrong ({kind}); with --debug it is shown where."


def _forget_output() -> None:
    """Keep Python from writing what is left when it ends: it would fail again, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _tell(sentence: str) -> None:
    try:
        remark(one_line(sentence))
    except OSError:
        logger.debug("Nobody reads the errors.")
