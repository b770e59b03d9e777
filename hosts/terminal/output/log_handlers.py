"""Where log records go: all of them to stderr with `--debug`, otherwise only those that concern the user."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from typing_extensions import override

from .notices import print_notice
from .printable import one_line
from .step_lines import LabelledStep, log_steps_to

LAYOUT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(debug: bool, voice_debug: bool = False) -> None:
    """Attach the handlers of this process. Call it once, before anything is logged. With `voice_debug` the steps of
    each turn are written to stderr, each with its label."""
    if voice_debug:
        handler = StderrHandler()
        handler.setFormatter(LabelledStep())
        log_steps_to(handler)
    if debug:
        logging.basicConfig(level=logging.INFO, format=LAYOUT, handlers=[StderrHandler()])
        logging.getLogger("turnwise").setLevel(logging.DEBUG)
        return
    warnings.simplefilter("ignore")
    logging.basicConfig(handlers=[logging.NullHandler()])
    # The mailbox warns while the database cannot be written to. Nothing else tells the user why they have to wait.
    logging.getLogger("turnwise.mailbox").addHandler(NoticeHandler(logging.WARNING))


class StderrHandler(logging.StreamHandler[Any]):
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


class NoticeHandler(logging.Handler):
    """Prints the message of a record as a notice, without a traceback or the name of the logger."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        print_notice(one_line(record.getMessage()))
