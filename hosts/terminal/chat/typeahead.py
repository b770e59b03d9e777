"""What is typed while nobody reads it: not shown in the middle of an answer, and never taken for a choice in a menu."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform != "win32":
    import fcntl
    import termios

DROPPED = "What you typed in the meantime was dropped."

_LOCAL_FLAGS = 3
"""Where tcgetattr keeps the flag for the echo."""


@contextmanager
def hushed() -> Iterator[None]:
    """While the body runs, the terminal does not show what is typed, ^C included. Only where stdin is a terminal.

    Nothing is lost, at Ctrl-C neither: who reads next gets it, and shows it, or drops it by `forget`.
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


def forget() -> bool:
    """Drop what was typed and not read yet, and tell whether a line was among it. Only where stdin is a terminal."""
    if sys.platform == "win32":
        return False
    waiting = fcntl.ioctl(sys.stdin, termios.FIONREAD, bytes(4))
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return any(waiting)
