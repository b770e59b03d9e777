"""One door for everything that happens to a conversation, and one event at a time.

Requests and answers wait here in the order in which they came. A request goes back to whoever sent it, with its step
or an error. An answer belongs to nobody: if it cannot be stored it stays at the head and is tried again until it can,
and requests meanwhile are refused, so that memory never runs ahead of the store and nothing done is forgotten.
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
from ..states.step import Step

logger = logging.getLogger("turnwise.mailbox")

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds between attempts to store an answer; doubled each time. Ours."""


@dataclass
class _Letter:
    """An event, or a mark behind those that came before it; and who waits for it."""

    event: Event | None
    future: asyncio.Future[Step | None] | None = None

    def succeed(self, step: Step | None) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(step)

    def fail(self, error: BaseException) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)

    def lose(self, error: Exception) -> None:
        """It was not taken, and will not be: whoever sent it is told, or the log."""
        if self.future is not None:
            self.fail(error)
        elif isinstance(error, TurnwiseError):
            logger.error("An answer could not be taken: %s", error.sentence)
        else:
            logger.error("An answer could not be taken.", exc_info=error)


class Mailbox:
    """Hands events to `take`, one after the other. It holds a task only while it holds an event."""

    def __init__(self, take: Callable[[Event], Awaitable[Step]]) -> None:
        self._take = take
        self._letters: deque[_Letter] = deque()
        self._draining: asyncio.Task[None] | None = None
        self._stuck = False
        self._closed: TurnwiseError | None = None
        self._over = False

    def post(self, event: Event) -> None:
        """Drop an answer in."""
        if not self._over:
            self._put(_Letter(event))

    async def request(self, event: Event) -> Step:
        """Drop a request in and wait for its step. Raises what `take` raises; a caller that is cancelled while it
        waits leaves the request in the mailbox."""
        if self._closed is not None:
            raise self._closed
        if self._stuck:
            raise Refused("storage")
        letter = _Letter(event, asyncio.get_running_loop().create_future())
        self._put(letter)
        assert letter.future is not None
        step = await letter.future
        assert step is not None
        return step

    async def handled(self) -> None:
        """Return when all that has come in so far is handled, or cannot be."""
        if self._letters and not self._stuck:
            mark = _Letter(None, asyncio.get_running_loop().create_future())
            self._put(mark)
            assert mark.future is not None
            with suppress(TurnwiseError):
                await mark.future

    def shut(self, why: TurnwiseError) -> None:
        """Take no more requests: those that wait, and those that come later, fail with `why`."""
        self._closed = why
        in_hand, waiting = list(self._letters)[:1], list(self._letters)[1:]
        for letter in waiting:
            letter.fail(why)
        self._letters = deque(in_hand + [letter for letter in waiting if letter.future is None])

    async def close(self, *, keeps: bool = True) -> None:
        """Take no more answers either; return when those that have come in are stored, or once more could not be. If
        not `keeps`, only the event in hand is. To be called after `shut`."""
        self._over = True
        if not keeps or self._stuck:
            self._letters = deque(list(self._letters)[:1])
        if self._draining is not None:
            if self._stuck:
                self._draining.cancel()
            await asyncio.wait([self._draining])

    def _put(self, letter: _Letter) -> None:
        self._letters.append(letter)
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._letters:
                await self._deliver(self._letters[0])
                self._letters.popleft()
        finally:
            self._draining = None

    async def _deliver(self, letter: _Letter) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                letter.succeed(None if letter.event is None else await self._take(letter.event))
                return
            except StorageFailed as error:
                if letter.future is not None:
                    letter.fail(_refusal(error))
                    return
                logger.warning("An answer could not be stored and is kept: %s", error)
            except Exception as error:
                letter.lose(error)
                return
            if self._closed is not None:
                self._letters = deque([letter])  # what came behind it could not be stored either
                return
            await self._wait_for_the_store(wait)
            wait = min(LONGEST_WAIT, 2 * wait)

    async def _wait_for_the_store(self, wait: float) -> None:
        self._stuck = True
        answers = [letter for letter in self._letters if letter.future is None]
        for letter in self._letters:
            letter.fail(Refused("storage"))
        self._letters = deque(answers)
        await asyncio.sleep(wait)
        self._stuck = False


def _refusal(error: StorageFailed) -> Refused:
    refused = Refused("storage")
    refused.__cause__ = error
    return refused
