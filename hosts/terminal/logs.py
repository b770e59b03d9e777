"""Where log messages go: with `--debug` all of them to stderr, else only those that concern the user."""

from __future__ import annotations

import logging
import sys
import warnings

from typing_extensions import override

from .printable import one_line
from .remarks import remark

LAYOUT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(debug: bool) -> None:
    """Send the logs of this process where they belong. Call it once, before anything is done."""
    if debug:
        logging.basicConfig(level=logging.INFO, format=LAYOUT, stream=sys.stderr)
        logging.getLogger("turnwise").setLevel(logging.DEBUG)
        return
    warnings.simplefilter("ignore")
    logging.basicConfig(handlers=[logging.NullHandler()])
    # It says what nothing else does: that the database takes nothing, and that one must wait for it.
    logging.getLogger("turnwise.mailbox").addHandler(Notice(logging.WARNING))


class Notice(logging.Handler):
    """Shows a message as one line on stderr: no traceback, no name of a logger."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # sys.stderr is looked up each time: while something spins on the screen, it is another one.
        remark(one_line(record.getMessage()))
