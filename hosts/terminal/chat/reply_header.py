"""The line above a reply, which says who answers."""

from __future__ import annotations

from collections.abc import Callable

from ..output.printable import one_line
from ..output.writer import TerminalWriter


class ReplyHeader:
    """Writes one line above the first text of a turn. `profile` returns the name of the profile that answers."""

    def __init__(self, writer: TerminalWriter, profile: Callable[[], str]) -> None:
        self._writer = writer
        self._profile = profile
        self._is_written = False

    def write(self) -> None:
        """Write it, unless it is written for this turn already."""
        if not self._is_written:
            self._is_written = True
            profile = one_line(self._profile())
            self._writer.line(f"Assistant · {profile}" if profile else "Assistant", "bold")

    def end_turn(self) -> None:
        """The next text belongs to another turn."""
        self._is_written = False
