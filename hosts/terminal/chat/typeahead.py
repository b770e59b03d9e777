"""What is typed while nothing reads it: it must not appear within an answer, nor choose an option of a menu."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform != "win32":
    import fcntl
    import termios

DISCARDED = "What you typed in the meantime was dropped."
"""What to tell the user when `discard_typeahead` returns True."""

_LOCAL_FLAGS = 3
"""The index of the flags for the echo in the result of tcgetattr."""


@contextmanager
def echo_disabled() -> Iterator[None]:
    """Keep the terminal from showing what is typed, ^C included, while the body runs. stdin must be a terminal.

    What is typed is kept, also at Ctrl-C, until something reads it or `discard_typeahead` drops it.
    """
    if sys.platform == "win32":
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = termios.tcgetattr(sys.stdin)
    quiet[_LOCAL_FLAGS] = quiet[_LOCAL_FLAGS] & ~termios.ECHO | termios.NOFLSH
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def discard_typeahead() -> bool:
    """Drop what was typed and not read yet, and return whether a line was among it. stdin must be a terminal."""
    if sys.platform == "win32":
        return False
    unread = fcntl.ioctl(sys.stdin, termios.FIONREAD, bytes(4))
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return any(unread)
