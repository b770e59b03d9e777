"""Records what a watcher of the simulated conversation is shown."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..environment.random_source import RandomSource
from ..storage.disk import Disk
from ..storage.storage import Process

if TYPE_CHECKING:
    from ....engine.conversation import Conversation
    from ....engine.updates import Update


@dataclass(eq=False)
class WatchRecord:
    """The updates that were shown after the update `after`, or from the beginning of a watch."""

    who: str
    after: str | None
    process: Process
    updates: list[Update] = field(default_factory=list)

    @property
    def begin(self) -> tuple[int, int] | None:
        """The position behind which everything was shown; None if nothing was."""
        from ....engine.updates import parse_id

        if self.after is not None:
            return parse_id(self.after)
        return self.updates[0].position if self.updates else None

    async def watch(self, handle: Conversation, disk: Disk, chance: RandomSource) -> None:
        """Watch to the end, now quickly, now slowly. What is shown must be stored by then."""
        async with aclosing(handle.updates(self.after)) as updates:
            async for update in updates:
                if self.process.is_dead:
                    return  # nobody sees what a dead process shows
                self.updates.append(update)
                if update.position is not None and update.position > (disk.head(handle.id).book.seq + 1, 0):
                    disk.trace.report_fault(f"the update {update.id} is shown before it is stored")
                if chance.probably(0.1):
                    await asyncio.sleep(chance.seconds())
