"""The newest updates of a conversation, for any number of watchers at their own pace.

A watcher has a position in the feed and no queue of its own, so a slow one neither blocks others nor costs memory. One
that falls behind the oldest update kept learns so, and reads what it missed from the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from .updates.live import TokenUpdate
from .updates.streamed_text import StreamedText
from .updates.update import Update

CAPACITY = 1024
"""How many updates are kept, live ones included: several long streamed answers."""


class Feed:
    """Updates, numbered from 0 in the order of publication.

    `streamed` is the text of the tokens among them that belong to the model request under way. It always includes the
    newest one, so a watcher that begins at `end` shows it and misses nothing.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._kept: deque[Update] = deque(maxlen=capacity)
        self._end = 0
        self._changed = asyncio.Event()
        self.closed = False
        self.streamed = StreamedText()

    @property
    def end(self) -> int:
        """The number that the next update will have."""
        return self._end

    def publish(self, *updates: Update) -> None:
        """Show updates to whoever watches."""
        for update in updates:
            if isinstance(update, TokenUpdate):
                self.streamed.add(update)
        self._kept.extend(updates)
        self._end += len(updates)
        self._wake()

    def follow(self, updates: Sequence[Update] | None, awaited: Collection[int]) -> None:
        """Show the updates of a step that was stored, after which these effects are awaited. None if nobody here knows
        the updates: whoever watches reads them from the log."""
        self.streamed.keep_only(awaited)
        if updates is not None:
            self.publish(*updates)
            return
        self._kept.clear()
        self._end += 1
        self._wake()

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._wake()

    def since(self, position: int) -> tuple[Update, ...] | None:
        """Return the updates from this number on, or None if some of them are not kept."""
        oldest = self._end - len(self._kept)
        if position < oldest:
            return None
        return tuple(self._kept[index] for index in range(position - oldest, len(self._kept)))

    async def beyond(self, position: int) -> None:
        """Return when there is an update with this number, or the feed is closed."""
        while self._end <= position and not self.closed:
            await self._changed.wait()

    async def changed(self) -> None:
        """Return when the next step is stored, the next update is published, or the feed is closed."""
        await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
