"""The conversation of one sub-agent, as the performer that waits for it sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ...effects.agents import ChildOutcome
from ...effects.clock import Clock
from ...persistence.errors import StorageFailed
from ...states.dialogue import usage
from ...states.effects import NotifyParent
from ...states.errors import Refused
from ...states.events import CloseRequested, UserMessage
from ...states.states import Busy, Closed, Failed
from ...states.transcript import Transcript
from ...states.values.messages import Usage
from ...states.values.questions import OpenQuestion
from ..conversations.registry import ConversationRegistry
from ..loop import Loop

if TYPE_CHECKING:
    from ...effects.agents import SubAgent

T = TypeVar("T")

CLOSED = "closed-by-parent"
"""The id under which a sub-agent is told to end, once."""

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds between two attempts while the store takes nothing; doubled each time."""


class ChildConversation:
    """The port `SubAgent`, filled by a loop. A loop that has failed is replaced by the next one."""

    def __init__(self, registry: ConversationRegistry, loop: Loop, clock: Clock) -> None:
        self._registry = registry
        self._loop = loop
        self._clock = clock

    @property
    def seq(self) -> int:
        """See `SubAgent`."""
        return self._loop.state.book.seq

    @property
    def has_ended(self) -> bool:
        """See `SubAgent`."""
        state = self._loop.state
        return isinstance(state, Closed | Failed) or (bool(state.book.turn) and not isinstance(state, Busy))

    @property
    def asks(self) -> OpenQuestion | None:
        """See `SubAgent`."""
        return self._loop.state.open_question

    async def begin(self, task: UserMessage) -> None:
        """See `SubAgent`."""
        await self._request(task)

    async def close(self) -> None:
        """See `SubAgent`."""
        if not isinstance(self._loop.state, Closed):
            await self._request(CloseRequested(event_id=CLOSED, at=self._clock.now()))

    async def _request(self, event: UserMessage | CloseRequested) -> None:
        """Have the sub-agent take a request, unless it is closed."""

        async def request() -> None:
            if self._loop.has_ended:
                self._loop = await self._registry.read(self._loop.conversation_id)
            await self._loop.request(event)

        try:
            await persistently(request)
        except Refused as refused:
            if refused.code != "closed":
                raise

    async def beyond(self, seq: int) -> None:
        """See `SubAgent`."""
        while self.seq <= seq:
            loop = self._loop
            with loop.follower.waiting(for_people=True):
                while loop.state.book.seq <= seq and not loop.feed.closed:
                    await loop.feed.changed()
            if loop.state.book.seq <= seq:
                self._loop = await persistently(lambda: self._registry.read(self._loop.conversation_id))

    async def outcome(self) -> ChildOutcome:
        """See `SubAgent`."""
        transcript, found, failure = Transcript(), None, ""
        for entry in await self._loop.projection.read_entries():
            transcript.add(entry)
            found = next((effect for effect in entry.effects if isinstance(effect, NotifyParent)), found)
            if entry.ended is not None and entry.ended.failure is not None:
                failure = entry.ended.failure.sentence
        if found is None:
            return ChildOutcome("cancelled", "")  # it was closed before it began
        return ChildOutcome(found.status, failure if found.said is None else transcript.words(found.said))

    async def usage(self) -> Usage:
        """See `SubAgent`."""
        return usage(await self._loop.projection.read_entries())


async def persistently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what the attempt returns, made again for as long as the store takes nothing."""
    wait = FIRST_WAIT
    while True:
        try:
            return await attempt()
        except StorageFailed:
            pass
        except Refused as refused:
            if refused.code != "storage":
                raise
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


if TYPE_CHECKING:
    _FILLS: type[SubAgent] = ChildConversation
