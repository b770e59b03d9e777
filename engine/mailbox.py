"""One door for everything that happens to a conversation, and one event at a time.

Requests and answers wait here in the order in which they came. A request goes back to its caller, with its step or an
error. An answer has no caller: if it cannot be stored, it stays at the head and is tried again until it can be, and
requests are refused meanwhile, so that memory never runs ahead of the store and no result is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from ..persistence.errors import StorageFailed
from ..states.errors import Refused, TurnwiseError
from ..states.events import Event
from .recent_requests import NOTHING_FILLED, Filled, Outcome

logger = logging.getLogger("turnwise.mailbox")

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds between two attempts to store an answer; doubled each time. A disk that was busy for a moment costs little,
and one that is full is not asked all the time."""


@dataclass(eq=False)
class _Item:
    """An event, or None to do what `take` does without one; and the caller that waits for it, if there is one.

    `filled`: the fields of a request that its caller left out. `is_marker`: nothing is to be done; the caller only
    waits until everything before it is handled.
    """

    event: Event | None
    filled: Filled = NOTHING_FILLED
    caller: asyncio.Future[Outcome | None] | None = None
    is_marker: bool = False

    def succeed(self, outcome: Outcome | None) -> None:
        if self.caller is not None and not self.caller.done():
            self.caller.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        if self.caller is not None and not self.caller.done():
            self.caller.set_exception(error)

    def give_up(self, error: Exception) -> None:
        """It was not handled, and will not be: tell its caller, or the log."""
        if self.caller is not None:
            self.fail(error)
        elif isinstance(error, TurnwiseError):
            logger.error("An answer could not be taken: %s", error.sentence)
        else:
            logger.error("An answer could not be taken.", exc_info=error)


class Mailbox:
    """Hands events to `take`, one after the other. It has a task, and a queue, only while there are events."""

    __slots__ = ("_closed", "_draining", "_items", "_take", "_takes_answers", "_waits_for_store")

    def __init__(self, take: Callable[[Event | None, Filled], Awaitable[Outcome]]) -> None:
        self._take = take
        self._items: deque[_Item] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._waits_for_store = False
        self._closed: TurnwiseError | None = None
        self._takes_answers = True

    def post(self, event: Event) -> None:
        """Put an answer in. Once the mailbox is closed, it is dropped."""
        if self._takes_answers:
            self._put(_Item(event))

    async def request(self, event: Event | None, filled: Filled = NOTHING_FILLED) -> Outcome:
        """Put a request in and wait for its outcome. Raises what `take` raises, and `Refused` while the store takes
        nothing. If the caller is cancelled while it waits, the request stays in the mailbox."""
        if self._closed is not None:
            raise self._closed
        if self._waits_for_store:
            raise Refused("storage")
        caller: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._put(_Item(event, filled, caller))
        outcome = await caller
        assert outcome is not None, "only a marker has no outcome"
        return outcome

    async def handled(self) -> None:
        """Return when everything that has come in so far is handled, or cannot be."""
        if self._items and not self._waits_for_store:
            caller: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
            self._put(_Item(None, caller=caller, is_marker=True))
            with suppress(TurnwiseError):
                await caller

    def shut(self, why: TurnwiseError) -> None:
        """Take no more requests: those that wait, and those that come later, fail with `why`."""
        self._closed = why
        in_hand, waiting = self._all()[:1], self._all()[1:]
        for item in waiting:
            item.fail(why)
        self._items = deque(in_hand + [item for item in waiting if item.caller is None])

    async def close(self, *, answers: bool = True) -> None:
        """Take no more answers either. Return when those that have come in are stored, or once more could not be;
        unless `answers`, only the event in hand is finished. To be called after `shut`."""
        self._takes_answers = False
        if not answers or self._waits_for_store:
            self._items = deque(self._all()[:1])
        if self._draining is not None:
            if self._waits_for_store:
                self._draining.cancel()
            await asyncio.wait([self._draining])

    def _put(self, item: _Item) -> None:
        if self._items is None:
            self._items = deque()
        self._items.append(item)
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._items:
                await self._handle(self._items[0])
                self._items.popleft()
        finally:
            self._draining = None
            if not self._items:
                self._items = None

    def _all(self) -> list[_Item]:
        return list(self._items or ())

    async def _handle(self, item: _Item) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                item.succeed(None if item.is_marker else await self._take(item.event, item.filled))
                return
            except StorageFailed as error:
                if item.caller is not None:
                    item.fail(_refusal(error))
                    return
                logger.warning("An answer could not be stored and is kept: %s", error)
            except Exception as error:
                item.give_up(error)
                return
            if self._closed is not None:
                self._items = deque([item])  # what came after it could not be stored either
                return
            await self._wait_for_store(wait)
            wait = min(LONGEST_WAIT, 2 * wait)

    async def _wait_for_store(self, wait: float) -> None:
        self._waits_for_store = True
        answers = [item for item in self._all() if item.caller is None]
        for item in self._all():
            item.fail(Refused("storage"))
        self._items = deque(answers)
        await asyncio.sleep(wait)
        self._waits_for_store = False


def _refusal(error: StorageFailed) -> Refused:
    refused = Refused("storage")
    refused.__cause__ = error
    return refused
