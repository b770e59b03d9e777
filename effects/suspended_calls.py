"""The calls of a conversation that have asked a person and wait in this process.

While such a call waits, no effect carries it out, so no dispatcher knows of it. Its conversation holds it: until the
person has acted and the call goes on, or until the conversation is done with the call or is no longer driven here, and
the call is stopped.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..states.states import Interruptible, State


class SuspendedCall(Protocol):
    """A call that waits."""

    async def stop(self) -> None:
        """Stop the call. Returns in bounded time, and raises nothing."""
        ...


class SuspendedCalls:
    """Calls that wait, by the effect as which each was first started."""

    __slots__ = ("_calls", "_is_closed", "_stopping")

    def __init__(self) -> None:
        self._calls: dict[int, SuspendedCall] = {}
        self._stopping: dict[asyncio.Task[None], SuspendedCall] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def hold(self, first_id: int, call: SuspendedCall) -> None:
        """Hold a call until it goes on. It is stopped if the conversation is no longer driven here."""
        if self._is_closed:
            self._stop(call)
        else:
            self._calls[first_id] = call

    def take(self, first_id: int) -> SuspendedCall | None:
        """Return the call that goes on, which is not held any longer; None if it does not wait here."""
        return self._calls.pop(first_id, None)

    def follow(self, state: State) -> None:
        """Stop the calls with which the conversation is done in this state."""
        if not self._calls:
            return
        running = state.round.running if isinstance(state, Interruptible) else ()
        for first_id in self._calls.keys() - {one.first_id for one in running}:
            self._stop(self._calls.pop(first_id))

    async def close(self) -> None:
        """Stop all calls, and those that are to be held later."""
        self._is_closed = True
        for first_id in list(self._calls):
            self._stop(self._calls.pop(first_id))
        if self._stopping:
            await asyncio.wait(self._stopping)

    def _stop(self, call: SuspendedCall) -> None:
        stopping = asyncio.ensure_future(call.stop())
        if self._stopping is None:
            self._stopping = {}
        self._stopping[stopping] = call
        stopping.add_done_callback(self._stopping.pop)
