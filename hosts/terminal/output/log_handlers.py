"""Where log messages go: with `--debug` all of them to stderr, else only those that concern the user."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from typing_extensions import override

from .notices import remark
from .printable import one_line

LAYOUT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(debug: bool) -> None:
    """Send the logs of this process where they belong. Call it once, before anything is done."""
    if debug:
        logging.basicConfig(level=logging.INFO, format=LAYOUT, handlers=[Log()])
        logging.getLogger("turnwise").setLevel(logging.DEBUG)
        return
    warnings.simplefilter("ignore")
    logging.basicConfig(handlers=[logging.NullHandler()])
    # It says what nothing else does: that the database takes nothing, and that one must wait for it.
    logging.getLogger("turnwise.mailbox").addHandler(Notice(logging.WARNING))


class Log(logging.StreamHandler[Any]):
    """Writes messages to stderr as it was in the beginning, unless that is a terminal: then as it is at that moment,
    for while something spins on the screen, or a line is typed there, it is another one."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._on_a_terminal = sys.stderr is not None and sys.stderr.isatty()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if self._on_a_terminal:
            self.setStream(sys.stderr)
        super().emit(record)


class Notice(logging.Handler):
    """Shows a message as a remark: no traceback, no name of a logger."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        remark(one_line(record.getMessage()))
