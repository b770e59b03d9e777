"""Reads the steps of a log a page at a time, and goes on from where it has read before.

A state is not stored, so to compute one takes all steps before it. Whoever follows a conversation reads its newest step
after each commit, and whoever looks through it reads page after page; neither begins again each time.
"""

from __future__ import annotations

import asyncio

from .projection import ReadEntries
from .step_view import LogPosition, StepView

KEPT = 2
"""How many places are kept: that of somebody who follows the conversation, and that of somebody who looks back."""


class StepReader:
    """The steps of one log. The places that were read last stay in memory as long as the conversation does."""

    __slots__ = ("_kept", "_read_entries")

    def __init__(self, read_entries: ReadEntries) -> None:
        self._read_entries = read_entries
        self._kept: tuple[LogPosition, ...] = ()

    async def read(self, after: int, limit: int | None) -> tuple[StepView, ...]:
        """Return the steps that follow the step `after`, at most `limit` of them. Raises `StoreError`, in particular
        `Damaged`."""
        position = self._take(after)
        try:
            entries = await self._read_entries(position.seq, None if limit is None else after + limit)
        except BaseException:
            self._keep(position)
            raise
        views = await asyncio.to_thread(position.views, entries, after)  # a place that fails on its way is dropped
        self._keep(position)
        return views

    def _take(self, after: int) -> LogPosition:
        """Return the last kept place that is not behind the step `after`, or the beginning. Nobody else uses it until
        it is kept again."""
        possible = [one for one in self._kept if one.seq <= after]
        position = max(possible, key=lambda one: one.seq, default=LogPosition())
        self._kept = tuple(one for one in self._kept if one is not position)
        return position

    def _keep(self, position: LogPosition) -> None:
        self._kept = (*self._kept, position)[-KEPT:]
