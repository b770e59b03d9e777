"""The newest of what is published, for any number of readers at their own pace.

A reader has a position and no queue of its own, so a slow one neither blocks others nor costs memory. One that falls
behind the oldest item kept learns so, and finds out in another way what it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class KeptUpdates(Generic[T]):
    """Items, numbered from 0 in the order of publication, of which the newest `capacity` are kept.

    What holds them is made when something is published, and what wakes readers when somebody waits: an engine has one
    of these for each conversation in memory, and most of these rest.
    """

    __slots__ = ("_capacity", "_changed", "_end", "_kept", "_readers", "closed", "is_watched")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: deque[T] | None = None
        self._end = 0
        self._changed: asyncio.Event | None = None
        self._readers = 0
        self.is_watched = False
        """Whether somebody reads."""
        self.closed = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context that lasts while somebody reads. The last reader that leaves lets go of the items."""
        self._readers += 1
        self.is_watched = True
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self.is_watched = False
                self.forget()

    @property
    def end(self) -> int:
        """The number that the next item will have."""
        return self._end

    def keep(self, items: Iterable[T]) -> None:
        """Publish these items."""
        if self._kept is None:
            self._kept = deque(maxlen=self._capacity)
        for item in items:
            self._kept.append(item)
            self._end += 1
        self._wake()

    def skip(self) -> None:
        """Note that something has happened which nobody here knows: every reader learns that it fell behind."""
        self._kept = None
        self._end += 1
        self._wake()

    def forget(self) -> None:
        """Let go of all items. A reader that has not read them learns that it fell behind."""
        self._kept = None

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._wake()

    def since(self, position: int) -> tuple[T, ...] | None:
        """Return the items from this number on, or None if some of them are not kept."""
        kept = self._kept or ()
        oldest = self._end - len(kept)
        if position < oldest:
            return None
        return tuple(kept[index] for index in range(position - oldest, len(kept)))

    def has_ended_at(self, position: int) -> bool:
        """Whether there is no item with this number, and never will be."""
        return self.closed and self._end <= position

    async def beyond(self, position: int) -> None:
        """Return when there is an item with this number, or nothing more will come."""
        while self._end <= position and not self.closed:
            await self.changed()

    async def changed(self) -> None:
        """Return when the next item is published or skipped, or nothing more will come."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()
