"""Reads the steps of a log a page at a time, and goes on from where it has read before.

A state is not stored, so computing one takes all steps before it. A client that follows a conversation reads its newest
step after each commit, and one that looks through it reads page after page: neither begins again each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from ...persistence.errors import Damaged
from ...states.context import Context
from ...states.errors import Refused
from ...states.states import AnyState, Idle
from ...states.step import LogEntry
from ...states.transcript import Transcript
from .projection import ReadEntries
from .replayed_steps import ReplayedStep, replayed_steps
from .step_view import StepView, step_view

KEPT = 2
"""How many positions are kept: that of a client that follows the conversation, and that of one that looks back."""


class StepReader:
    """The steps of one log. The positions that were read last stay in memory as long as the conversation does."""

    __slots__ = ("_kept", "_read_entries")

    def __init__(self, read_entries: ReadEntries) -> None:
        self._read_entries = read_entries
        self._kept: tuple[ReplayPosition, ...] = ()

    async def read(self, after: int, limit: int | None) -> tuple[StepView, ...]:
        """Return the steps that follow the step `after`, at most `limit` of them. Raises `StoreError`, in particular
        `Damaged`."""
        position = self._take(after)
        try:
            entries = await self._read_entries(position.seq, None if limit is None else after + limit)
        except BaseException:
            self._keep(position)
            raise
        views = await asyncio.to_thread(position.views, entries, after)  # a position that fails is dropped
        self._keep(position)
        return views

    def _take(self, after: int) -> ReplayPosition:
        """Return the last kept position that is not behind the step `after`, or the beginning. Nothing else uses it
        until it is kept again."""
        possible = [one for one in self._kept if one.seq <= after]
        position = max(possible, key=lambda one: one.seq, default=ReplayPosition())
        self._kept = tuple(one for one in self._kept if one is not position)
        return position

    def _keep(self, position: ReplayPosition) -> None:
        self._kept = (*self._kept, position)[-KEPT:]


class ReplayPosition:
    """A step of a log, with the state after it, from which the following steps are computed. `views` moves it on."""

    def __init__(self) -> None:
        self.seq = 0
        self._state: AnyState = Idle()
        self._context = Context()
        self._transcript = Transcript()

    def views(self, entries: Iterable[LogEntry], after: int) -> tuple[StepView, ...]:
        """Move on over the entries that follow this position, and return the steps that follow the step `after`.

        Raises `Damaged` at the first step that does not come out as it was stored: another version of the state machine
        wrote it. The position is not to be used again then.
        """
        return tuple(self._views(entries, after))

    def _views(self, entries: Iterable[LogEntry], after: int) -> Iterator[StepView]:
        for step in self._checked(replayed_steps(entries, self._state, self._context)):
            self.seq, self._state, self._context = step.entry.seq, step.after, step.context.after(step.entry.event)
            self._transcript.add(step.entry)
            if self.seq > after:
                yield step_view(step, self._context, self._transcript)

    def _checked(self, steps: Iterator[ReplayedStep]) -> Iterator[ReplayedStep]:
        try:
            for step in steps:
                if step.after.book.seq != step.entry.seq or step.effects != step.entry.effects:
                    raise _diverging(step.entry.seq)
                yield step
        except Refused:
            raise _diverging(self.seq + 1) from None


def _diverging(seq: int) -> Damaged:
    return Damaged(seq, f"Step {seq} was made by another version of the state machine.")
