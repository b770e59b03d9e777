"""Lines for users and for programs: how a text fits on one, and what is written to stderr beside the results on stdout.

Text of models, tools and files is made fit to be displayed before it is written. Notices, log records and the steps of
a turn go to stderr; the result of a command goes to stdout, also as one JSON document.

Whatever ends a command becomes an exit code and one sentence for the user, never a traceback. The errors of turnwise
carry their sentence. Of any other error only its type is shown, because its text may quote the conversation; `--debug`
shows the rest.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from typing_extensions import override

from ....effects.printable import printable

if TYPE_CHECKING:
    from ....states.values.files import FileReference


def one_line(text: str, width: int | None = None) -> str:
    """Return the text on one line, shortened with an ellipsis to `width` characters if it is given. `Pure.`"""
    line = " ".join(printable(text).split())
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def with_files(text: str, files: Collection[FileReference]) -> str:
    """Return the text below a line that names the files which came with it. `Pure.`"""
    if not files:
        return text
    from ....states.values.files import labels  # importing its package takes a fifth of a second, which --help saves

    return "\n".join(part for part in (labels(files), text) if part)


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 turn", "2 turns". `Pure.`"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_notice(text: str, *, copyable: bool = False) -> None:
    """Write `text` to stderr, after flushing stdout: both may end in one file.

    On a terminal, lines break between words, unless the text is `copyable`: a command has to stay on one line.
    Raises OSError if stderr cannot be written to.
    """
    with suppress(OSError):  # whoever writes to stdout notices that it is closed or full
        if sys.stdout is not None:
            sys.stdout.flush()
    print(text if copyable else _wrapped(text), file=sys.stderr)


def _wrapped(text: str) -> str:
    from .writer import LineWrapper

    wrapper = LineWrapper(_width())
    return wrapper.feed(text) + wrapper.finish()


def _width() -> int | None:
    """The number of cells in a line of stderr, or None if it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None


def print_json(document: Mapping[str, Any]) -> None:
    """Write the document to stdout, indented, with its keys in the order given.

    Only ASCII is written: it reads the same under every encoding, and a terminal finds nothing in it to execute.
    """
    print(json.dumps(document, indent=2))


REFUSED = 2
"""The exit code when a command cannot do what it was asked: a wrong option, an unknown id, a foreign database."""

_UNEXPECTED = 70
"""The exit code for an error in turnwise itself: EX_SOFTWARE of sysexits.h."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""

_CLOSED_PIPE = 1
"""The exit code when the program that read the output has ended."""

logger: logging.Logger = logging.getLogger("turnwise.terminal")


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


@runtime_checkable
class WrongOption(Protocol):
    """What typer raises for options and arguments that are wrong. Until its version 0.28 the class was one of click."""

    def format_message(self) -> str:
        """Say what is wrong, in a sentence."""
        ...


def _explain(error: BaseException) -> tuple[int, str]:
    from ....states.errors import TurnwiseError  # importing its package takes a fifth of a second, which --help saves

    match error:
        case TurnwiseError():
            return REFUSED, error.sentence
        case WrongOption():
            return REFUSED, _usage_sentence(error)
        case KeyboardInterrupt():
            return INTERRUPTED, ""
        case BrokenPipeError():
            _discard_output()
            return _CLOSED_PIPE, ""
        case OSError(strerror=str(reason)):
            _discard_output()
            return REFUSED, f"The operating system reports an error: {reason}."
        case _:
            kind = type(error).__name__
            return _UNEXPECTED, f"An unexpected error occurred ({kind}); run with --debug to see where."


def _usage_sentence(error: WrongOption) -> str:
    """Return what is wrong with the options or arguments, and where the help is; empty if the help was shown."""
    said = error.format_message().rstrip(".")
    command = getattr(getattr(error, "ctx", None), "command_path", "turnwise")
    if said.endswith("?"):
        return f"{said} See {command} --help."
    if said.startswith("No such option") and command == "turnwise":
        said += " (the options of a command stand behind its name)"
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


_LAYOUT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(debug: bool, voice_debug: bool = False) -> None:
    """Attach the handlers of this process: all records go to stderr with `debug`, otherwise only those that concern the
    user. Call it once, before anything is logged. With `voice_debug` the steps of each turn are written to stderr, each
    with its label."""
    if voice_debug:
        handler = _StderrHandler()
        handler.setFormatter(LabelledStep())
        _log_steps_to(handler)
    if debug:
        logging.basicConfig(level=logging.INFO, format=_LAYOUT, handlers=[_StderrHandler()])
        logging.getLogger("turnwise").setLevel(logging.DEBUG)
        return
    warnings.simplefilter("ignore")
    logging.basicConfig(handlers=[logging.NullHandler()])
    # The mailbox warns while the database cannot be written to. Nothing else tells the user why they have to wait.
    show_warnings_of("turnwise.mailbox")


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes records to stderr. On a terminal it looks `sys.stderr` up for each record, because a spinner and the
    prompt replace it while they are shown."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._on_a_terminal = sys.stderr is not None and sys.stderr.isatty()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if self._on_a_terminal:
            self.setStream(sys.stderr)
        super().emit(record)


def show_warnings_of(*loggers: str) -> None:
    """Have warnings of these loggers shown as notices: those of a command that runs for long, whose user has to do
    something. To be called behind `configure_logging`, unless all records go to stderr."""
    for name in loggers:
        logging.getLogger(name).addHandler(_NoticeHandler(logging.WARNING))


class _NoticeHandler(logging.Handler):
    """Prints the message of a record as a notice, without a traceback or the name of the logger."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        print_notice(one_line(record.getMessage()))


STEPS = ("profile", "memory", "planning", "voice")
"""The steps of a turn around its reply: a profile is chosen, older conversations are searched, requests are planned,
the reply is spoken. The logger of each is called `turnwise.` and its name.

Each step is a record of one of these loggers, which name and count things and never quote the conversation. A user who
looks into what happens reads them on stderr, each with its label; otherwise each is a short line on stdout."""


def step_of(record: logging.LogRecord) -> str:
    """Return the step that a record belongs to. `Pure.`"""
    return record.name.rpartition(".")[2]


def _log_steps_to(handler: logging.Handler) -> None:
    """Have this handler handle the records of the steps, and no other one."""
    for step in STEPS:
        logger = logging.getLogger(f"turnwise.{step}")
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False


class LabelledStep(logging.Formatter):
    """Formats a record as the name of its step in brackets and its message, on one line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return one_line(f"[{step_of(record)}] {record.getMessage()}")


@contextmanager
def steps_shown_by(show: Callable[[str], None]) -> Iterator[None]:
    """Call `show` with a short line for each step while the body runs, in the thread and the event loop of the body."""
    handler = _StepHandler(show)
    levels = {step: logging.getLogger(f"turnwise.{step}").level for step in STEPS}
    for step in STEPS:
        logger = logging.getLogger(f"turnwise.{step}")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for step, level in levels.items():
            logger = logging.getLogger(f"turnwise.{step}")
            logger.removeHandler(handler)
            logger.setLevel(level)


class _StepHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show
        from asyncio import get_running_loop  # not for a command that only tells its options

        self._loop = get_running_loop()
        self._thread = get_ident()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        line = one_line(f"· {step_of(record)}: {record.getMessage()}")
        if get_ident() == self._thread:
            self._show(line)
        else:
            self._loop.call_soon_threadsafe(self._show, line)
