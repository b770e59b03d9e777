"""When an engine is open: from when its store was opened until it begins to close.

An engine opens once and closes once, however many callers ask for it, and whichever of them are cancelled meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..states.errors import EngineClosed, EngineNotOpen

if TYPE_CHECKING:
    from ..persistence.ports import Store


class Lifetime:
    """Opens by calling `begin`, and closes by calling `end`, each once. `begin` sets the store, `end` takes it."""

    def __init__(
        self, begin: Callable[[], Coroutine[Any, Any, None]], end: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._begin = begin
        self._end = end
        self._opening: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._store: Store | None = None

    async def open(self) -> None:
        """Return when the engine is open. Raises what `begin` raises, or `EngineClosed`; then the engine is closed."""
        self.check_not_closed()
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._begin())
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.close()
            raise
        self.check_not_closed()

    async def close(self) -> None:
        """Return when the engine is closed. A caller that is cancelled stops waiting, but it closes all the same."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._end())
        await asyncio.shield(self._closing)

    @property
    def is_open(self) -> bool:
        """Whether opening has ended, and closing has not begun."""
        return self._opening is not None and self._opening.done() and self._closing is None

    @property
    def is_closing(self) -> bool:
        """Whether the engine closes, or has closed."""
        return self._closing is not None

    def check_not_closed(self) -> None:
        """Raise `EngineClosed` if the engine was closed in the meantime: nothing would end what begins now."""
        if self._closing is not None:
            raise EngineClosed

    def check_open(self) -> None:
        """Raise `EngineClosed` if the engine closes or has closed, and `EngineNotOpen` if it was never opened."""
        self.check_not_closed()
        if self._store is None:
            raise EngineNotOpen

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`, or `EngineNotOpen`, which is one."""
        if self._store is None:
            raise EngineNotOpen if self._closing is None else EngineClosed
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    @property
    def is_opening(self) -> bool:
        """Whether opening was begun, and perhaps has ended."""
        return self._opening is not None

    async def finish_opening(self) -> None:
        """Return when opening has ended, also if it failed or was never begun."""
        if self._opening is not None:
            await asyncio.wait([self._opening])

    def take_store(self) -> Store | None:
        """Return the open store, which the caller closes. From now on there is none."""
        store, self._store = self._store, None
        return store
