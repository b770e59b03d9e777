"""How the tests open the store under test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pytest

if TYPE_CHECKING:
    from ...persistence.ports import Store

T = TypeVar("T", bound="OpenedStore")


class OpenedStore:
    """What a subclass says about its store."""

    lasting: ClassVar[bool] = True
    """Whether a store that is opened again at the same place finds what was stored. Set it to False for memory."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """Return a context manager that opens the store and closes it at the end. Its data is below the folder `place`.

        Opened a second time at the same place, it is the same store again.
        """
        raise NotImplementedError

    def in_trouble(self, store: Store, place: Path) -> AbstractAsyncContextManager[None]:
        """Return a context manager while which the storage takes nothing: every `append` must fail with
        `StorageFailed`. Optional; without it that test is skipped."""
        pytest.skip("this store does not say how its storage fails")


def on_a_store(test: Callable[[T, Store], Awaitable[None]]) -> Callable[[T, Path], None]:
    """Turn a test of an open store into one that pytest runs without a plugin."""

    def run(self: T, tmp_path: Path) -> None:
        async def on_one() -> None:
            async with self.opened(tmp_path) as store:
                await test(self, store)

        asyncio.run(on_one())

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run
