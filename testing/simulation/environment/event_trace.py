"""What happens in a simulation, line by line, and the faults that were found."""

from __future__ import annotations

import asyncio


class EventTrace:
    """The lines so far, each with its virtual time, and the faults."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []
        self.faults: list[str] = []

    def record(self, who: str, what: str) -> None:
        """Add a line about something that happened."""
        self.lines.append(f"{self._loop.time():12.6f}  {who:<11} {what}")

    def report_fault(self, sentence: str) -> None:
        """Add a line about something that must not happen."""
        self.record("FAULT", sentence)
        self.faults.append(sentence)
