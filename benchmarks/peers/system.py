"""What every system that is measured has to do, so that all of them are measured by the same code.

A system is written as its documentation recommends, with its own defaults: `measures.py` calls it and knows nothing
about it. The model and the tool of a system answer at once, and the model notes each request in `REQUESTS`. Only the
standard library is imported here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any


class NotOffered(Exception):
    """The system has no such feature, or the measure means nothing for it."""


class System(ABC):
    """A way to hold conversations, over one database file or in memory."""

    packages: tuple[str, ...]
    """The distributions whose versions are reported, the main one first."""
    stores: str
    """What is on the disk when, in one sentence."""

    @abstractmethod
    async def open(self, file: Path | None) -> None:
        """Open the database file; without one, keep nothing on a disk. Raises NotOffered."""

    @abstractmethod
    async def close(self) -> None:
        """Close what `open` opened."""

    @abstractmethod
    async def create(self, number: int) -> Any:
        """Return a new conversation, ready for its first message."""

    @abstractmethod
    def key(self, conversation: Any) -> str:
        """Return what `resume` finds the conversation by."""

    @abstractmethod
    async def resume(self, key: str) -> Any:
        """Return a stored conversation, ready for its next message."""

    @abstractmethod
    async def turn(self, conversation: Any) -> str:
        """Hold a standard turn, and return the reply."""

    @abstractmethod
    async def count(self, conversation: Any) -> int:
        """Return how many messages are stored, as the system itself reads them from its file."""

    async def answer(self, conversation: Any) -> float:
        """Hold a turn in which the model asks a question that waits on the disk for its answer. Returns the seconds
        from the answer to the next request to the model. Raises NotOffered."""
        raise NotOffered
