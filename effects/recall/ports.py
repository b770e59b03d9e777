"""The ports through which a recall searches: older conversations, the documents of the application, and its embeddings.

The engine fills the port of older conversations with its store, whose methods raise `StoreError` if it cannot be
read. Documents come from a function that returns the parts that belong to a message, and an embedding function is one
by which texts are found that mean the same in other words.

Each part of a recall may fail without harm: a turn goes on without what could not be found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ..application_functions import Raised, call_within
from ..logs import performer_logger


@dataclass(frozen=True)
class DocumentQuery:
    """The message for which documents are wanted, and the conversation that it stands in."""

    text: str
    owner: str | None
    conversation_id: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


DocumentSource = Callable[[DocumentQuery], Iterable[str] | Awaitable[Iterable[str] | None] | None]
"""Returns the parts of documents that belong to a message, or None. A function, or a coroutine function."""

T = TypeVar("T")

logger: Final = performer_logger("turnwise.memory")

STORE_SECONDS = 5.0
"""Seconds that one search of the store may take. Chosen to be far more than any search of an index takes, and less than
a user waits."""


class PartFailed(Exception):
    """A part could not be obtained. The message says why in a few words, without content."""


async def call_application(seconds: float, name: str, function: Callable[..., object], *arguments: object) -> object:
    """Return what a function of the application returns. Raises `PartFailed` if it fails, or does not end within so
    many seconds."""
    outcome = await call_within(seconds, name, function, *arguments)
    if outcome is None:
        raise PartFailed(f"no answer within {seconds:g} s")
    if isinstance(outcome, Raised):
        raise PartFailed(type(outcome.error).__name__) from outcome.error
    return outcome.value


async def within(seconds: float | None, part: Coroutine[Any, Any, T]) -> T:
    """Return what the part returns. Raises `PartFailed` if it fails, or does not end within so many seconds."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await part
    except PartFailed:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PartFailed("CancelledError") from None  # one that a library has let out; nobody cancelled this task
    except Exception as error:
        if deadline.expired():
            raise PartFailed(f"no answer within {seconds:g} s") from None
        raise PartFailed(type(error).__name__) from error


LeftOut = list[str]
"""Sentences for people: what a recall has left out, and why."""


async def or_else(otherwise: T, name: str, part: Coroutine[Any, Any, T], left_out: LeftOut | None = None) -> T:
    """Return what the part returns, or `otherwise` if it fails; then a sentence is added to `left_out`. The log names
    the part and says why, too; at the level DEBUG it has the error itself, which may hold content."""
    try:
        return await within(None, part)
    except PartFailed as failed:
        logger.warning("left out: %s (%s)", name, failed)
        if left_out is not None:
            left_out.append(f"Recalled without {name}: {failed}.")
        if failed.__cause__ is not None:
            logger.debug("%s failed", name, exc_info=failed.__cause__)
        return otherwise


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

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts whose vectors are nearest, the nearest first. Vectors of another number of dimensions are
        passed over."""
        ...


Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""A coroutine function that returns a vector for each text. Its optional attribute `name` identifies the model."""
