"""Notices on stderr, beside the results of a command on stdout."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


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
    from .wrapping import LineWrapper

    wrapper = LineWrapper(_width())
    return wrapper.feed(text) + wrapper.finish()


def _width() -> int | None:
    """The number of cells in a line of stderr, or None if it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None
