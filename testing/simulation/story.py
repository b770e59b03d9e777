"""What happened in a simulation, told line by line, and what should not have happened."""

from __future__ import annotations

import asyncio


class Story:
    """The lines so far, each with its virtual time, and the faults that were found."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []
        self.faults: list[str] = []

    def tell(self, who: str, what: str) -> None:
        """Something happened."""
        self.lines.append(f"{self._loop.time():12.6f}  {who:<9} {what}")

    def blame(self, sentence: str) -> None:
        """Something happened that must not."""
        self.tell("FAULT", sentence)
        self.faults.append(sentence)
