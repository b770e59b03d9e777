"""A watcher of a conversation: it reads from the log what it missed, and from the feed what is new."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from ...states.errors import InvalidInput, Refused, StoreError
from .feed import Feed
from .projection import ConversationProjection, ReadEntries
from .updates import Update, parse_id, snapshot, updates_of_log


class Watcher:
    """One reader of updates: its position in the feed, and the last stored update that it was given."""

    def __init__(self, projection: ConversationProjection, feed: Feed, read_entries: ReadEntries) -> None:
        self._projection = projection
        self._feed = feed
        self._read_entries = read_entries
        self._position = feed.end
        self._last = (0, 0)

    async def updates(self, after: str | None) -> AsyncIterator[Update]:
        """Yield a snapshot, or all updates after the update `after`; then the new ones. Each once, in order."""
        if after is not None:
            self._last = await self._seen(after)
        read: Callable[[], Awaitable[tuple[Update, ...]]] = partial(self._begin, after)
        while True:
            try:
                updates = await read()
            except StoreError:
                if self._feed.closed:  # the database is closed with the engine
                    return
                raise
            for update in updates:
                yield update
            if self._feed.closed and self._feed.end <= self._position:
                return
            await self._feed.beyond(self._position)
            read = self._next

    async def _seen(self, after: str) -> tuple[int, int]:
        """Return the position of an update, which another engine over the same store may have shown. Raises
        `InvalidInput` for one that does not exist yet: a watcher after it would miss the updates before it."""
        seen = parse_id(after)
        is_known = seen <= (self._projection.seq + 1, 0)  # the id of a snapshot of the current state
        if not is_known and not await self._read_entries(seen[0] - 1, seen[0]):
            raise InvalidInput(f"This conversation has had no update {seen[0]}.{seen[1]} yet.")
        return seen

    async def _begin(self, after: str | None) -> tuple[Update, ...]:
        # From here on the updates of every step are known, and come by the feed.
        await self._projection.read()
        return self._new(await self._missed() if after is not None else (await self._snapshot(),))

    async def _next(self) -> tuple[Update, ...]:
        kept = self._feed.since(self._position)
        # The feed has everything new from here on; what came before is read, and what is in both is shown once.
        self._position = self._feed.end
        return self._new(kept if kept is not None else await self._missed())

    def _new(self, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Return the updates after the last one given. Live ones belong to the stored one that follows them."""
        known = (n for n, update in enumerate(updates) if update.position is not None and update.position <= self._last)
        shown = tuple(updates[max(known, default=-1) + 1 :])
        self._last = max((update.position for update in shown if update.position is not None), default=self._last)
        return shown

    async def _missed(self) -> tuple[Update, ...]:
        entries = await self._read_entries()
        try:
            return tuple(updates_of_log(entries))
        except Refused:
            # Another version of the state machine wrote the log, as a replay reports; the current state is known.
            return (await self._snapshot(),)

    async def _snapshot(self) -> Update:
        projection = self._projection
        await projection.read()
        return snapshot(projection.state, projection.transcript, projection.context.policy)
