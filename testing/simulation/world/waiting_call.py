"""A simulated call that has asked a person: a task that waits, and is left over unless it is stopped or resumed."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class WaitingCall:
    """A call that waits. It takes so many seconds to stop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._task = asyncio.ensure_future(asyncio.Event().wait())

    async def stop(self) -> None:
        """End the wait."""
        await asyncio.sleep(self._seconds)
        await self.go_on()

    async def go_on(self) -> None:
        """End the wait at once."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
