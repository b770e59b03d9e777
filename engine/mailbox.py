"""One door for everything that happens to a conversation, and one event at a time.

Requests and answers wait here in the order in which they came. A request goes back to its caller, with its step or an
error. An answer has no caller: if it cannot be stored, it stays at the head and is tried again until it can be, and
requests are refused meanwhile, so that memory never runs ahead of the store and no result is lost.

An event that waits is handled where the one before it was. So each is handed over with the context variables of whoever
put it in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from typing import TypeAlias

from ..persistence.errors import CustodyLost, StorageFailed
from ..states.effects import Effect, OutgoingEffect
from ..states.errors import Refused, TurnwiseError, UnknownConversation
from ..states.events import Event, Request
from ..states.states import State
from ..states.values.turn import Waiting
from .requests import NOTHING_FILLED, Filled, Outcome

logger: logging.Logger = logging.getLogger("turnwise.mailbox")

Work: TypeAlias = Callable[[], Awaitable[None]]
"""Something that is done between two events."""

Take: TypeAlias = Callable[[Event | Work, Filled, Variables], Awaitable[Outcome]]
"""Handles an event, with the fields that its caller left out and the context variables of whoever put it in."""


FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds between two attempts to store an answer; doubled each time. A disk that was busy for a moment costs little,
and one that is full is not asked all the time."""

BURST = 64
"""How many events are handled in a row before the event loop gets to do other work: a dispatcher that answers at once
could keep one conversation busy without end."""


class Mailbox:
    """Hands events to `take`, one after the other. There is a queue only while events wait behind the one in hand."""

    __slots__ = (
        "_closed",
        "_draining",
        "_ended",
        "_in_hand",
        "_retry",
        "_take",
        "_takes_answers",
        "_waiting",
        "drops_answers",
    )

    def __init__(self, take: Take) -> None:
        self._take = take
        self._in_hand: _Item | None = None
        self._waiting: deque[_Item] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        """Done when nothing is handled any more; made where somebody waits for that."""
        self._retry: asyncio.Future[bool] | None = None
        """Whether the answer in hand is tried again; there while the store takes nothing."""
        self._closed: TurnwiseError | None = None
        self._takes_answers = True
        self.drops_answers: bool = False
        """Whether answers are dropped for the time being."""

    def post(self, event: Event) -> None:
        """Put an answer in. Once the mailbox is closed, or while it drops answers, it is dropped."""
        if self._takes_answers and not self.drops_answers:
            self._put(_Answer(event))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits behind what is in hand."""
        return not self._waiting

    async def request(self, event: Event | Work, filled: Filled = NOTHING_FILLED) -> Outcome:
        """Put a request in and wait for its outcome. Raises what `take` raises, and `Refused` while the store takes
        nothing. If the caller is cancelled while it waits, the request stays in the mailbox."""
        if self._closed is not None:
            raise self._closed
        if self._retry is not None:
            raise Refused("storage")
        item = _Request(event, filled)
        self._put(item)
        outcome = await item.outcome()
        assert outcome is not None, "only a marker has no outcome"
        return outcome

    async def handled(self) -> None:
        """Return when everything that has come in so far is handled, or cannot be."""
        if self._in_hand is not None and self._retry is None:
            marker = _Marker(_do_nothing)
            self._put(marker)
            with suppress(TurnwiseError):
                await marker.outcome()

    def drop_answers(self) -> None:
        """Drop the answers that wait, and those that come in before `take_answers`. The event in hand is finished; an
        answer that the store did not take is not tried again."""
        self.drops_answers = True
        if self._retry is not None:
            _settle(self._retry, False)
        self._waiting = deque(item for item in self._waiting or () if item.has_caller) or None

    def take_answers(self) -> None:
        """Take answers again."""
        self.drops_answers = False

    def shut(self, why: TurnwiseError) -> None:
        """Take no more requests: those that wait, and those that come later, fail with `why`."""
        self._closed = why
        self._refuse_waiting(why)

    async def finish(self, *, answers: bool = True) -> None:
        """Take no more answers either. Return when those that have come in are stored, or once more could not be;
        unless `answers`, only the event in hand is finished. To be called after `shut`."""
        self._takes_answers = False
        if not answers or self._retry is not None:
            self._drop_waiting()
        if self._draining is not None:
            if self._retry is not None:
                _settle(self._retry, False)
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._ended])

    def _put(self, item: _Item) -> None:
        if self._in_hand is None:
            self._in_hand = item
        elif self._waiting is None:
            self._waiting = deque([item])
        else:
            self._waiting.append(item)
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        handled, wait = 0, FIRST_WAIT
        try:
            while (item := self._in_hand) is not None:
                is_kept = False
                try:
                    item.succeed(None if item.is_marker else await self._take(item.event, item.filled, item.variables))
                except StorageFailed as error:
                    is_kept = item.was_not_stored(error)
                except Exception as error:
                    item.fail(error)
                if is_kept and await self._is_tried_again(wait):
                    wait = min(LONGEST_WAIT, 2 * wait)
                    continue
                self._in_hand = self._waiting.popleft() if self._waiting else None
                wait = FIRST_WAIT
                handled += 1
                if handled % BURST == 0:
                    await asyncio.sleep(0)
        finally:
            self._draining = None
            if not self._waiting:
                self._waiting = None
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None

    async def _is_tried_again(self, wait: float) -> bool:
        """Refuse requests for `wait` seconds. Returns whether the answer in hand is to be tried again then: the mailbox
        may be closed, or is closed meanwhile, or drops answers."""
        if self._closed is not None:
            self._drop_waiting()  # what came after it could not be stored either
            return False
        if self.drops_answers:
            return False
        loop = asyncio.get_running_loop()
        self._retry = loop.create_future()
        self._refuse_waiting(Refused("storage"))
        timer = loop.call_later(wait, _settle, self._retry, True)
        try:
            return await self._retry
        finally:
            timer.cancel()
            self._retry = None

    def _refuse_waiting(self, why: TurnwiseError) -> None:
        """Handle only the answers among the events that wait. The callers of the requests get `why`."""
        waiting = self._waiting or ()
        for item in waiting:
            if item.has_caller:
                item.fail(why)
        self._waiting = deque(item for item in waiting if not item.has_caller)

    def _drop_waiting(self) -> None:
        """Handle nothing that waits. Also after `shut`, somebody may wait until everything before is handled."""
        assert self._closed is not None, "a mailbox is shut before it is closed"
        self._refuse_waiting(self._closed)
        self._waiting = None


class _Answer:
    """The answer to an effect. It has no caller."""

    __slots__ = ("event", "variables")

    filled: Filled = NOTHING_FILLED
    has_caller = False
    is_marker = False

    def __init__(self, event: Event) -> None:
        self.event = event
        self.variables = copy_context()

    def succeed(self, outcome: Outcome | None) -> None:
        """Nobody waits for what came of it."""

    def was_not_stored(self, error: StorageFailed) -> bool:
        """Return whether it is kept, and tried again."""
        logger.warning("An answer could not be stored and is kept: %s", error)
        return True

    def fail(self, error: Exception) -> None:
        """It was not handled, and will not be."""
        if isinstance(error, CustodyLost | UnknownConversation):  # whoever took or deleted it has seen to that
            logger.info("An answer was dropped: %s", error.sentence)
        elif isinstance(error, TurnwiseError):
            logger.error("An answer could not be taken: %s", error.sentence)
        else:
            logger.error("An answer could not be taken.", exc_info=error)


class _Request:
    """An event, or something that is done between two events, and its outcome for the caller that waits for that.
    `filled` are the fields of the event that its caller left out.

    Most events are handled before their caller begins to wait, so the outcome is kept here. A future is made only for a
    caller that has to wait, and only wakes it: asyncio would report an error in a future whose caller was cancelled.
    """

    __slots__ = ("_error", "_future", "_is_done", "_outcome", "event", "filled", "variables")

    has_caller = True
    is_marker = False

    def __init__(self, event: Event | Work, filled: Filled = NOTHING_FILLED) -> None:
        self.event = event
        self.filled = filled
        self.variables = copy_context()
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

    def was_not_stored(self, error: StorageFailed) -> bool:
        """Refuse it: its caller may try again. Returns that it is not kept."""
        refused = Refused("storage")
        refused.__cause__ = error
        self.fail(refused)
        return False

    def fail(self, error: Exception) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class _Marker(_Request):
    """Nothing is to be done; the caller only waits until everything before it is handled."""

    __slots__ = ()

    is_marker = True


_Item: TypeAlias = _Answer | _Request


async def _do_nothing() -> None:
    """Only wait for one's turn."""


def _settle(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


class SenderVariables:
    """Whose context variables the effects of a turn run in: those of the sender of the message that began it.

    A message that waits in the inbox begins its turn in the step that ends the turn before, in the context of that one.
    So its variables are kept until then. `current` are those in which the effects of the newest step are dispatched,
    except what the turn that ended in it still has to say.
    """

    __slots__ = ("_ending", "_turn", "_waiting", "current")

    def __init__(self, turn: int, variables: Variables) -> None:
        self.current: Variables = variables
        self._turn = turn
        self._waiting: dict[str, Variables] = {}
        self._ending: Variables | None = None

    def divided(self, effects: Sequence[Effect]) -> tuple[tuple[Variables, Sequence[Effect]], ...]:
        """Return the effects of the newest step in their order, each part with its context variables."""
        if self._ending is None:
            return ((self.current, effects),)
        last = max((place for place, one in enumerate(effects) if self._is_of_ended(one)), default=-1)
        return (self._ending, effects[: last + 1]), (self.current, effects[last + 1 :])

    def _is_of_ended(self, effect: Effect) -> bool:
        """Whether the turn that ended in the newest step sends this."""
        return isinstance(effect, OutgoingEffect) and getattr(effect, "turn", None) != self._turn

    def follow(self, event: Event, state: State) -> None:
        """Follow a step: the event that was taken, and the state after it."""
        self._ending = None
        inbox: tuple[Waiting, ...] = getattr(state, "inbox", ())
        if inbox and isinstance(event, Request) and any(waiting.event_id == event.event_id for waiting in inbox):
            self._waiting[event.event_id] = self.current
        if self._waiting:
            waits = {waiting.event_id for waiting in inbox}
            entered = [variables for event_id, variables in self._waiting.items() if event_id not in waits]
            if entered and state.book.turn != self._turn:
                self._ending, self.current = self.current, entered[0]
            self._waiting = {each: variables for each, variables in self._waiting.items() if each in waits}
        self._turn = state.book.turn
