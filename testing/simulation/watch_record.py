"""What a watcher of a simulated conversation sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from .engine_host import EngineHost
from .random_source import RandomSource

if TYPE_CHECKING:
    from ...engine.conversation import Conversation
    from ...engine.projections.updates import Update


@dataclass(eq=False)
class WatchRecord:
    """All that was seen behind the update `after`, or from the beginning of a watch.

    `engine` is how many engines were closed before it began.
    """

    who: str
    after: str | None
    engine: int
    updates: list[Update] = field(default_factory=list)

    @property
    def begin(self) -> tuple[int, int] | None:
        """The place behind which it saw everything; None if it saw nothing."""
        from ...engine.projections.updates import parse_id

        if self.after is not None:
            return parse_id(self.after)
        return self.updates[0].position if self.updates else None

    async def watch(self, handle: Conversation, house: EngineHost, dice: RandomSource) -> None:
        """Watch to the end, now quickly, now slowly. What is shown must be stored by then."""
        updates = cast("AsyncGenerator[Update, None]", handle.updates(self.after))
        async with aclosing(updates):
            async for update in updates:
                self.updates.append(update)
                if update.position is not None and update.position > (house.stored.book.seq + 1, 0):
                    house.notebook.story.blame(f"the update {update.id} is shown before it is stored")
                if dice.chance(0.1):
                    await asyncio.sleep(dice.seconds())
