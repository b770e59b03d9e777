"""Prints what is said to the user: the plainest way to people, and the one beside a loudspeaker (case S20).

It needs nothing beyond Python. The command `turnwise` does not use it: that one also shows what goes on meanwhile.
"""

from __future__ import annotations

import sys
from typing import TextIO

from ..text import printable
from .port import Delivery


class TerminalChannel:
    """Writes each delivery on stdout, or on the `output` given, and a line break behind it.

    The text stands there as it was said (case B3), except for what would command a terminal: control characters are
    left out. What the output's encoding does not know comes out as "?". It waits for the output as `print` does.
    """

    def __init__(self, output: TextIO | None = None, *, name: str = "terminal") -> None:
        self.name = name
        self._output = output

    async def deliver(self, delivery: Delivery) -> None:
        """Print it. Raises OSError when nobody reads the output any more, and ValueError when it is closed."""
        output = self._output or sys.stdout
        if output is None:
            raise OSError("There is no stdout to write on.")
        output.write(f"{_known(printable(delivery.text), getattr(output, 'encoding', None))}\n")
        output.flush()


def _known(text: str, encoding: str | None) -> str:
    """The text with what this encoding does not know replaced; one that is held in memory knows everything."""
    return text if encoding is None else text.encode(encoding, "replace").decode(encoding)
