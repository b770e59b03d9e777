"""A storage that fails: nothing changes, and everything goes on when the failure is over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ...persistence.errors import StorageFailed
from .opening import OpenedStore
from .story import Story, deliveries_of, log_of, undelivered_in

if TYPE_CHECKING:
    from ...persistence.ports import Store


class FailureContract(OpenedStore):
    """`StorageFailed`."""

    def test_a_step_that_fails_leaves_everything_as_before(self, tmp_path: Path) -> None:
        """The error is typed, nothing has changed, and the same step is stored when the failure is over."""

        async def fail() -> None:
            async with self.opened(tmp_path) as store:
                await self._fail(store, tmp_path)

        asyncio.run(fail())

    async def _fail(self, store: Store, place: Path) -> None:
        names = [f"story {number}" for number in range(5)]
        logs = [await Story().say().into(store, name) for name in names]
        story = Story().say().answer("x" * 100_000)
        said = deliveries_of(story.newest[1], "screen")

        async with self.in_trouble(store, place):
            outcomes = await asyncio.gather(*(log.append(*story.newest, said) for log in logs), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 5
        assert [log.seq for log in logs] == [2] * 5
        assert await undelivered_in(store) == []
        for name in names:
            assert await log_of(store, name) == Story().say().log
        await asyncio.gather(*(log.append(*story.newest, said) for log in logs))
        for name in names:
            assert (await store.load(name)).state == story.state
        assert sorted(await undelivered_in(store)) == [(name, "screen", said[0][0]) for name in names]
