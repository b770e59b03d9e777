"""Where a simulated conversation is stored, through all the processes that have it open one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from .channels import Sent


class Storage(Protocol):
    """What outlives an engine, and what an engine opens."""

    settled: set[Sent]
    """The deliveries that were taken out of the outbox."""

    async def open(self) -> Any:
        """The store of the next process: what an engine uses of `Store`."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the process of the store that was opened last is dead: it stores nothing more, and nobody hears what
        it says."""
        ...

    def die_after(self, statements: int) -> None:
        """The process dies when it has done so many more statements that write."""
        ...

    def outbox(self) -> Iterable[Sent]:
        """What is still to be delivered."""
        ...

    def faults(self) -> Iterable[str]:
        """What is wrong with what is stored, when all is over."""
        ...

    def close(self) -> None:
        """Clean up."""
        ...
