"""Watching a conversation: what was missed is read from the log, what is new comes from the feed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..states.context import Context
from ..states.errors import InvalidInput, Refused, StoreError
from ..states.events import Opened
from ..states.log import LogEntry
from ..states.machine import begin, transition
from ..states.projections.transcript import Transcript
from ..states.states import Closed, Idle, State
from .loop import Loop
from .updates import Update, parse_id, snapshot, updates_of

if TYPE_CHECKING:
    from ..persistence.ports import Store


class Watcher:
    """One reader of updates: its place in the feed, and the last stored update that it was given."""

    def __init__(self, loop: Loop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self._place = loop.feed.end
        self._last = (0, 0)

    async def updates(self, after: str | None) -> AsyncIterator[Update]:
        """A snapshot, or all that came behind the update `after`; then what comes. Each once, in order."""
        if after is not None:
            self._last = self._seen(after)
        for update in await self._begin(after):
            yield update
        while True:
            try:
                updates = await self._next()
            except StoreError:
                if self._loop.feed.closed:  # the database is closed with the engine
                    return
                raise
            for update in updates:
                yield update
            if self._loop.feed.closed and self._loop.feed.end <= self._place:
                return
            await self._loop.feed.beyond(self._place)

    def _seen(self, after: str) -> tuple[int, int]:
        """The place of an update that somebody was shown. Raises `InvalidInput` for one that nobody was: a watcher
        behind it would wait for steps of which it is shown nothing."""
        seen = parse_id(after)
        if seen > (self._loop.state.book.seq + 1, 0):  # the id of a snapshot of how things stand
            raise InvalidInput(f"This conversation has had no update {seen[0]}.{seen[1]} yet.")
        return seen

    async def _begin(self, after: str | None) -> tuple[Update, ...]:
        return self._new(await self._missed() if after is not None else (await self._snapshot(),))

    async def _next(self) -> tuple[Update, ...]:
        kept = self._loop.feed.since(self._place)
        # From here on the feed has all that is new; what lies before is read, and what is in both is shown once.
        self._place = self._loop.feed.end
        return self._new(kept if kept is not None else await self._missed())

    def _new(self, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Those behind the last one given; live ones belong in front of the stored one that follows them."""
        known = (n for n, update in enumerate(updates) if update.position is not None and update.position <= self._last)
        shown = tuple(updates[max(known, default=-1) + 1 :])
        self._last = max((update.position for update in shown if update.position is not None), default=self._last)
        return shown

    async def _missed(self) -> tuple[Update, ...]:
        entries = await self._store.entries(self._loop.conversation_id)
        try:
            return tuple(history(entries))
        except Refused:
            # The log was written under other rules of the table, which replay tells; how things stand is known.
            return (await self._snapshot(),)

    async def _snapshot(self) -> Update:
        policy = self._loop.memory.context.policy
        if not isinstance(self._loop.state, Closed):
            return snapshot(self._loop.state, self._loop.memory.transcript, policy)
        said = Transcript()
        for entry in await self._store.entries(self._loop.conversation_id):
            said.add(entry)
        return snapshot(self._loop.state, said, policy)


def history(entries: Iterable[LogEntry]) -> Iterator[Update]:
    """All updates of a log. Raises `Refused` if the table no longer takes what it took. `Pure.`"""
    state: State = Idle()
    context = Context()
    said = Transcript()
    for entry in entries:
        event = entry.event
        step = begin(event) if isinstance(event, Opened) else transition(state, event, context)
        yield from updates_of(entry, state, step.state, said, context)
        state, context = step.state, context.after(event)
