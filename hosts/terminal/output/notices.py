"""Remarks on stderr, beside what a command was asked for on stdout."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def remark(text: str, *, copied: bool = False) -> None:
    """Write it behind what stands on stdout so far, for both may end in one file. On a terminal it is broken between
    words, unless it is there to be copied. Raises OSError if stderr takes nothing."""
    with suppress(OSError):  # a stdout that takes nothing is noticed where it is written to
        if sys.stdout is not None:
            sys.stdout.flush()
    print(text if copied else _wrapped(text), file=sys.stderr)


def _wrapped(text: str) -> str:
    from .wrapping import Wrapping

    wrapping = Wrapping(_width())
    return wrapping.feed(text) + wrapping.finish()


def _width() -> int | None:
    """How many cells a line on stderr has; None where it is no terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None
