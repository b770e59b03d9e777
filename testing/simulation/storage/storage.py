"""What outlives the engines of a simulation, and the processes in which they have it open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from ....persistence.ports import Store

Delivered: TypeAlias = tuple[str, str, int]
"""A delivery: its conversation, the name of its channel, and its effect."""


class Process(Protocol):
    """A process that has the store open. Once it is dead it stores nothing, and nobody hears what it says."""

    @property
    def name(self) -> str:
        """What tells it apart from all others of the simulation."""
        ...

    @property
    def store(self) -> Store:
        """The store, as this process has it open."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the process has died."""
        ...

    def die_after(self, statements: int) -> None:
        """Have the process die once it has done so many more statements that write."""
        ...


class Storage(Protocol):
    """What is stored, through all processes that have it open."""

    @property
    def settled(self) -> set[Delivered]:
        """The deliveries that were taken out of the outbox."""
        ...

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        ...

    def outbox(self) -> Iterable[Delivered]:
        """What is still to be delivered."""
        ...

    def faults(self) -> Iterable[str]:
        """What is wrong with what is stored, at the end of the simulation."""
        ...

    def close(self) -> None:
        """Remove what is stored."""
        ...
