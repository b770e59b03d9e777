"""Prints what is said to the user, alone or beside a voice that speaks it.

It needs nothing but Python. The command `turnwise` does not use it, because that also shows what happens in between.
"""

from __future__ import annotations

import sys
from typing import TextIO

from ..printable import printable
from .port import Delivery


class TerminalChannel:
    """Writes each delivery on stdout, or on the given `output`, followed by a line break.

    The text is written unchanged, except that control characters, which a terminal would obey, are left out. Characters
    that the output's encoding does not have are written as "?". It blocks on the output as `print` does.
    """

    def __init__(self, output: TextIO | None = None, *, name: str = "terminal") -> None:
        self.name = name
        self._output = output

    async def deliver(self, delivery: Delivery) -> None:
        """Print it. Raises OSError if nobody reads the output any more, and ValueError if it is closed."""
        output = self._output or sys.stdout
        if output is None:
            raise OSError("The program has no stdout.")
        output.write(f"{_encodable(printable(delivery.text), getattr(output, 'encoding', None))}\n")
        output.flush()


def _encodable(text: str, encoding: str | None) -> str:
    """The text with "?" for characters that the encoding does not have. An output in memory has no encoding."""
    return text if encoding is None else text.encode(encoding, "replace").decode(encoding)
