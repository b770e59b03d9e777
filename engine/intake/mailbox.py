"""One door for everything that happens to a conversation, and one event at a time.

Requests and answers wait here in the order in which they came. A request goes back to its caller, with its step or an
error. An answer has no caller: if it cannot be stored, it stays at the head and is tried again until it can be, and
requests are refused meanwhile, so that memory never runs ahead of the store and no result is lost.

If nothing is in hand, an event is handled in the call that puts it in, as far as that goes without waiting. With a task
for every event, a turn of four steps took eight tasks and 22 iterations of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

from ...persistence.errors import StorageFailed
from ...states.errors import Refused, TurnwiseError
from ...states.events import Event
from ..recent_requests import NOTHING_FILLED, Filled, Outcome

logger = logging.getLogger("turnwise.mailbox")

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds between two attempts to store an answer; doubled each time. A disk that was busy for a moment costs little,
and one that is full is not asked all the time."""

BURST = 64
"""How many events are handled in a row before the event loop gets to do other work: a dispatcher that answers at once
could keep one conversation busy without end."""

Start: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a coroutine. Returns what must be held until the coroutine has ended."""


class _Item:
    """An event, or None to do what `take` does without one, and its outcome for a caller that waits for that.

    `filled`: the fields of a request that its caller left out. `is_marker`: nothing is to be done; the caller only
    waits until everything before it is handled.

    Most events are handled before their caller begins to wait, so the outcome is kept here. A future is made only for a
    caller that has to wait, and only wakes it: asyncio would report an error in a future whose caller was cancelled.
    """

    __slots__ = ("_error", "_future", "_is_done", "_outcome", "event", "filled", "has_caller", "is_marker")

    def __init__(
        self, event: Event | None, filled: Filled = NOTHING_FILLED, *, has_caller: bool = False, is_marker: bool = False
    ) -> None:
        self.event = event
        self.filled = filled
        self.has_caller = has_caller
        self.is_marker = is_marker
        self._is_done = False
        self._outcome: Outcome | None = None
        self._error: Exception | None = None
        self._future: asyncio.Future[None] | None = None

    async def outcome(self) -> Outcome | None:
        """Return what came of the event, or raise its error, as soon as that is known."""
        if not self._is_done:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        if self._error is not None:
            raise self._error
        return self._outcome

    def succeed(self, outcome: Outcome | None) -> None:
        self._outcome = outcome
        self._finish()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def give_up(self, error: Exception) -> None:
        """It was not handled, and will not be: tell its caller, or the log."""
        if self.has_caller:
            self.fail(error)
        elif isinstance(error, TurnwiseError):
            logger.error("An answer could not be taken: %s", error.sentence)
        else:
            logger.error("An answer could not be taken.", exc_info=error)


class Mailbox:
    """Hands events to `take`, one after the other. It has a queue only while there are events. `start` starts the
    handling."""

    __slots__ = (
        "_closed",
        "_draining",
        "_ended",
        "_is_handling",
        "_items",
        "_retry",
        "_start",
        "_take",
        "_takes_answers",
        "drops_answers",
    )

    def __init__(self, take: Callable[[Event | None, Filled], Awaitable[Outcome]], start: Start) -> None:
        self._take = take
        self._start = start
        self._items: deque[_Item] | None = None
        self._is_handling = False
        self._draining: object = None
        self._ended: asyncio.Future[None] | None = None
        """Done when nothing is handled any more; made where somebody waits for that."""
        self._retry: asyncio.Future[bool] | None = None
        """Whether the answer at the head is tried again; there while the store takes nothing."""
        self._closed: TurnwiseError | None = None
        self._takes_answers = True
        self.drops_answers = False
        """Whether answers are dropped for the time being."""

    def post(self, event: Event) -> None:
        """Put an answer in. Once the mailbox is closed, or while it drops answers, it is dropped."""
        if self._takes_answers and not self.drops_answers:
            self._put(_Item(event))

    async def request(self, event: Event | None, filled: Filled = NOTHING_FILLED) -> Outcome:
        """Put a request in and wait for its outcome. Raises what `take` raises, and `Refused` while the store takes
        nothing. If the caller is cancelled while it waits, the request stays in the mailbox."""
        if self._closed is not None:
            raise self._closed
        if self._retry is not None:
            raise Refused("storage")
        item = _Item(event, filled, has_caller=True)
        self._put(item)
        outcome = await item.outcome()
        assert outcome is not None, "only a marker has no outcome"
        return outcome

    async def handled(self) -> None:
        """Return when everything that has come in so far is handled, or cannot be."""
        if self._items and self._retry is None:
            marker = _Item(None, has_caller=True, is_marker=True)
            self._put(marker)
            with suppress(TurnwiseError):
                await marker.outcome()

    def drop_answers(self) -> None:
        """Drop the answers that wait, and those that come in before `take_answers`. The event in hand is finished."""
        self.drops_answers = True
        in_hand, waiting = self._all()[:1], self._all()[1:]
        self._items = deque(in_hand + [item for item in waiting if item.has_caller]) or None

    def take_answers(self) -> None:
        """Take answers again."""
        self.drops_answers = False

    def shut(self, why: TurnwiseError) -> None:
        """Take no more requests: those that wait, and those that come later, fail with `why`."""
        self._closed = why
        in_hand, waiting = self._all()[:1], self._all()[1:]
        self._items = deque(in_hand + _without_callers(waiting, why))

    async def close(self, *, answers: bool = True) -> None:
        """Take no more answers either. Return when those that have come in are stored, or once more could not be;
        unless `answers`, only the event in hand is finished. To be called after `shut`."""
        self._takes_answers = False
        if not answers or self._retry is not None:
            self._items = deque(self._all()[:1])
        if self._is_handling:
            if self._retry is not None:
                _settle(self._retry, False)
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._ended])

    def _put(self, item: _Item) -> None:
        if self._items is None:
            self._items = deque()
        self._items.append(item)
        if not self._is_handling:
            self._is_handling = True
            self._draining = self._start(self._drain())

    async def _drain(self) -> None:
        handled = 0
        try:
            while self._items:
                await self._handle(self._items[0])
                self._items.popleft()
                handled += 1
                if handled % BURST == 0:
                    await asyncio.sleep(0)
        finally:
            self._is_handling = False
            self._draining = None
            if not self._items:
                self._items = None
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None

    def _all(self) -> list[_Item]:
        return list(self._items or ())

    async def _handle(self, item: _Item) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                item.succeed(None if item.is_marker else await self._take(item.event, item.filled))
                return
            except StorageFailed as error:
                if item.has_caller:
                    item.fail(_refusal(error))
                    return
                logger.warning("An answer could not be stored and is kept: %s", error)
            except Exception as error:
                item.give_up(error)
                return
            if self._closed is not None:
                self._items = deque([item])  # what came after it could not be stored either
                return
            if not await self._wait_for_store(wait):
                return
            wait = min(LONGEST_WAIT, 2 * wait)

    async def _wait_for_store(self, wait: float) -> bool:
        """Refuse requests for `wait` seconds. Returns whether the answer is to be tried again then: the mailbox may be
        closed meanwhile."""
        loop = asyncio.get_running_loop()
        self._retry = loop.create_future()
        self._items = deque(_without_callers(self._all(), Refused("storage")))
        timer = loop.call_later(wait, _settle, self._retry, True)
        try:
            return await self._retry
        finally:
            timer.cancel()
            self._retry = None


def _settle(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


def _without_callers(items: list[_Item], why: TurnwiseError) -> list[_Item]:
    """Return the answers among these items. The requests are not handled, and their callers get `why`."""
    for item in items:
        if item.has_caller:
            item.fail(why)
    return [item for item in items if not item.has_caller]


def _refusal(error: StorageFailed) -> Refused:
    refused = Refused("storage")
    refused.__cause__ = error
    return refused
