"""The port through which older conversations are searched.

The engine fills it with its store. Every method raises `StoreError` if the store cannot be read; a performer then goes
on without what it asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ...states.values.acts import FoundText, MemoryQuery, MemoryScope


class Memory(Protocol):
    """What people and the assistant said to each other, as far as it was stored. Texts outside the scope are never
    returned: no text of another owner, and none from the scope's turn on."""

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords of the query, the best ones first. Keywords are plain text: no character
        in them has a special meaning. Without keywords nothing is found."""
        ...

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first. If there are too many, the newest of them
        are returned."""
        ...

    # --- vectors

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return up to `limit` texts that have no vector in this space, the newest first, each with the number under
        which `keep_vectors` takes its vector. A space is the name of what makes the vectors."""
        ...

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store the vectors of these texts. A text that was deleted in the meantime is passed over."""
        ...

    async def nearest(
        self,
        scope: MemoryScope,
        space: str,
        vector: Sequence[float],
        since: datetime | None,
        until: datetime | None,
        limit: int,
    ) -> tuple[FoundText, ...]:
        """Return the texts whose vectors point most nearly in the direction of `vector`, the nearest first. Vectors of
        another number of dimensions are passed over."""
        ...
