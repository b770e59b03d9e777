"""A watcher of a conversation: it reads from the log what it missed, and from the feed what is new."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from ...states.errors import InvalidInput, Refused, StoreError
from .feed import Feed
from .projection import ConversationProjection, ReadEntries
from .updates.snapshot import snapshot
from .updates.step_updates import updates_of_log
from .updates.update import Update
from .updates.update_id import Position, parse_id


class Watcher:
    """One reader of updates: its position in the feed, and the last stored update that it was given.

    The feed has everything from the position on, and the text that was streamed before it. So the position is moved
    only together with reading that text, without an await in between: then no token is missed or shown twice.
    """

    def __init__(
        self,
        projection: ConversationProjection,
        feed: Feed,
        read_entries: ReadEntries,
        after: str | None = None,
        caught_up: Callable[[int], object] | None = None,
    ) -> None:
        """`after` is the id of the update after which the watcher begins; None gives it a snapshot instead. `caught_up`
        is called with the number of the newest step whenever the reader has taken the updates of all steps and asks for
        more. Raises `InvalidInput` for what is no id."""
        self._projection = projection
        self._feed = feed
        self._read_entries = read_entries
        self._after = None if after is None else parse_id(after)
        self._caught_up = caught_up
        self._position = feed.end
        self._made_at = projection.seq
        self._last: Position = self._after or (0, 0)

    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over a snapshot, or all updates after the one that the watcher begins after; then over the
        new ones. Each comes once, in order."""
        return self._read(self._begin)

    def updates_from_now(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates since the watcher was made, without a snapshot. The contents of the
        projection must have been read before. Within a `Feed.reading` context the log need not be read."""
        self._last = (self._made_at + 1, 0)
        return self._read(self._next)

    async def _read(self, read: Callable[[], Awaitable[tuple[Update, ...]]]) -> AsyncGenerator[Update, None]:
        with self._feed.reading():
            while True:
                try:
                    updates = await read()
                except StoreError:
                    if self._feed.closed:  # the database is closed with the engine
                        return
                    raise
                for update in updates:
                    yield update
                while self._feed.end <= self._position:
                    if not self._tell_caught_up():
                        continue
                    if self._feed.closed:
                        return
                    await self._feed.changed()  # also by a step that has no updates
                read = self._next

    def _tell_caught_up(self) -> bool:
        """Call `caught_up`. Returns false if the call itself has moved the conversation."""
        seq = self._projection.seq
        if self._caught_up is not None:
            self._caught_up(seq)
        return seq == self._projection.seq and self._feed.end <= self._position

    async def _begin(self) -> tuple[Update, ...]:
        if self._after is not None:
            await self._check_known(self._after)
        # From here on the updates of every step are known, and come by the feed.
        await self._projection.read()
        return self._new(await self._missed() if self._after is not None else (await self._snapshot(),))

    async def _check_known(self, seen: Position) -> None:
        """Raise `InvalidInput` for an update that does not exist yet, in the store either, to which another engine may
        write: a watcher after it would miss the updates before it."""
        is_known = seen <= (self._projection.seq + 1, 0)  # the id of a snapshot of the current state
        if not is_known and not await self._read_entries(seen[0] - 1, seen[0]):
            raise InvalidInput(f"This conversation has had no update {seen[0]}.{seen[1]} yet.")

    async def _next(self) -> tuple[Update, ...]:
        kept = self._feed.since(self._position)
        if kept is None:
            return self._new(await self._missed())
        self._position = self._feed.end
        return self._new(kept)

    def _new(self, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Return the updates after the last one given. Live ones belong to the stored one that follows them."""
        known = (n for n, update in enumerate(updates) if update.position is not None and update.position <= self._last)
        shown = tuple(updates[max(known, default=-1) + 1 :])
        self._last = max((update.position for update in shown if update.position is not None), default=self._last)
        return shown

    async def _missed(self) -> tuple[Update, ...]:
        """Return all updates of the log, and the text that was streamed since, as one token of each kind. What the log
        and the feed both have is shown once."""
        self._position, seq = self._feed.end, self._projection.seq
        streamed = tuple(self._feed.streamed.tokens())
        entries = await self._read_entries()
        try:
            updates = tuple(updates_of_log(entries))
        except Refused:
            # Another version of the state machine wrote the log, as a replay reports; the current state is known.
            return (await self._snapshot(),)
        before = [update for update in updates if update.position is not None and update.position[0] <= seq]
        return (*before, *streamed, *updates[len(before) :])

    async def _snapshot(self) -> Update:
        projection = self._projection
        await projection.read()
        self._position = self._feed.end
        streaming = self._feed.streamed.so_far
        return snapshot(projection.state, projection.transcript, projection.context.policy, streaming)
