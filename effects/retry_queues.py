"""Sends what stands in the outbox, and repeats each effect until its target has taken it.

Each target has a queue for each conversation. An effect that the target does not take stays at the head of its queue
and is tried again, after longer and longer waits. The effects behind it wait, so that they arrive in the order in
which they were asked for. Other queues, and the conversation itself, go on meanwhile. The outbox records which
effects have arrived; the others are still in it when the process ends.

Each attempt is made in the context variables of whoever asked for its effect, although one task works through a
queue.

Another engine over the same store may have taken the steps before, and what they asked for may still be in its
queues. Then an effect waits until that engine has sent what is earlier, or until it makes no more attempts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, Protocol, runtime_checkable

from ..states.errors import StoreError
from ..states.values.value import later, sooner
from .clock import Clock
from .context import EffectContext, Receipts

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between attempts; doubled after each failure."""

LOOK = 0.5
"""Seconds between two looks at what another engine has yet to send."""

PATIENCE = 240
"""After so many looks in a row at which another engine has made no attempt, it makes none: its waits are shorter."""

CLOSING_GRACE = 1.0
"""Seconds that attempts under way get to stop when the engine closes."""

Attempt = Callable[[], Awaitable[str | None]]
"""Makes one attempt. Returns None if the target has taken the effect, otherwise a sentence that says why not. Must not
raise. Those behind it in its queue wait until it ends."""

Earlier = Callable[[str, int, str], Awaitable[tuple[tuple[int, int], ...]]]
"""Finds what another engine has yet to send before an effect of this conversation, with this id, to this target: the
ids of the effects, and how many attempts have failed."""

Admit = Callable[[str], Awaitable[None]]
"""Returns once an attempt may be made for this conversation, or never, if another process makes them now."""

Left = tuple[str, int, str]
"""A conversation, an effect and a target that the effect has not reached."""

_Key = tuple[str, str]
"""A conversation and a target."""


def _ignore_attempt(fault: str | None) -> None:
    """Report nothing after an attempt."""


@dataclass(eq=False)
class PendingEffect:
    """An outgoing effect of a conversation on its way to one target.

    `make_attempt` makes one attempt, and `report` is called after it with the reason why it failed, or None if the
    target has taken the effect. `attempts` are those that failed, and `due` is when the next one is made, None for at
    once. `begun` counts the processes that have died in an attempt at what an earlier process has left in the outbox,
    where such attempts are counted; None where they are not. `tried` is set when the effect was tried once, or waits
    behind one that has failed.
    """

    conversation_id: str
    effect_id: int
    target: str
    receipts: Receipts
    make_attempt: Attempt
    report: Callable[[str | None], None] = _ignore_attempt
    attempts: int = 0
    due: datetime | None = None
    begun: int | None = None
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    variables: Variables = field(default_factory=copy_context)
    """The context variables in which it was asked for."""
    is_under_way: bool = False
    """An attempt is being made."""
    behind: tuple[tuple[int, int], ...] = ()
    """What another engine had yet to send before, at the last look."""
    looks: int = 0
    """At how many looks in a row it was that."""

    @property
    def holds_up(self) -> bool:
        """Whether this, or something before it, has failed and is tried again later."""
        return bool(self.attempts) or any(attempts for _, attempts in self.behind)


def _left(pending: PendingEffect) -> Left:
    return pending.conversation_id, pending.effect_id, pending.target


def _wait_after(failures: int) -> float:
    return wait_after(max(failures, 1), FIRST_WAIT, LONGEST_WAIT)


@runtime_checkable
class Resumable(Protocol):
    """A sender that goes on with effects that an earlier process left in the outbox."""

    async def resume(
        self, effect: Any, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Queue the effect for this target after `attempts` that failed; the next one is made when it is `due`, None
        means at once. Does not wait for it. Returns false if this engine does not have the target. Raises
        `StoreError`."""
        ...


class RetryQueues:
    """The queues of all conversations, one for each target. `earlier` finds what other engines have yet to send, and
    `admit` is awaited before each attempt."""

    def __init__(self, clock: Clock, earlier: Earlier | None = None, admit: Admit | None = None) -> None:
        self._clock = clock
        self._earlier = earlier
        self._admit = admit
        self._stuck: dict[_Key, tuple[tuple[int, int], ...]] = {}
        """What other engines make no attempts at any more, and so holds nothing up."""
        self.left: set[Left] = set()
        """What had not arrived when the queues were closed."""
        self._queues: dict[_Key, deque[PendingEffect]] = {}
        self._workers: dict[_Key, asyncio.Task[None]] = {}
        self._is_closed = False
        self._alone = asyncio.Lock()
        """Held during an attempt at something in which a process may have died: if this one dies, too, it is known
        by which attempt."""

    async def submit(self, effects: Iterable[PendingEffect]) -> None:
        """Queue each effect, and return when each was tried once, or waits behind one that has failed. Once the queues
        are closed, nothing is tried: the effects stay in the outbox."""
        events = [self._enqueue(pending) for pending in effects]
        await asyncio.gather(*(event.wait() for event in events))

    def resume(self, pending: PendingEffect) -> None:
        """Queue an effect that an earlier process left in the outbox. Does not wait."""
        self._enqueue(pending)

    async def drop(self, conversation_id: str) -> None:
        """Stop sending for this conversation."""
        await self._stop([key for key in self._workers if key[0] == conversation_id])

    def is_busy(self, conversation_id: str, until: datetime) -> bool:
        """Whether an attempt is under way for this conversation, or one is due before `until`."""
        first = (queue[0] for key, queue in self._queues.items() if key[0] == conversation_id and queue)
        return any(one.is_under_way or one.due is None or one.due <= until for one in first)

    async def wait_until_tried(self) -> None:
        """Return when each queued effect was tried once, by this process or an earlier one, or waits behind one that
        has failed."""
        untried = [takewhile(lambda pending: not pending.attempts, queue) for queue in self._queues.values()]
        await asyncio.gather(*(pending.tried.wait() for queue in untried for pending in queue))

    async def stop(self, timeout: float) -> None:
        """Stop sending, once each effect was tried or after `timeout` seconds. Those that have not arrived stay in the
        outbox, and so does whatever is submitted later."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait_until_tried(), timeout)
        self._is_closed = True
        self.left.update(_left(pending) for queue in self._queues.values() for pending in queue)
        await self._stop(list(self._workers))

    def _enqueue(self, pending: PendingEffect) -> asyncio.Event:
        if self._is_closed:
            pending.tried.set()
            self.left.add(_left(pending))
            return pending.tried
        key = (pending.conversation_id, pending.target)
        queue = self._queues.setdefault(key, deque())
        place = len(queue)
        while place and queue[place - 1].effect_id > pending.effect_id and not queue[place - 1].is_under_way:
            place -= 1  # another engine has left it, and what comes later was asked for here
        if any(earlier.holds_up for earlier in islice(queue, place)):
            pending.tried.set()
        queue.insert(place, pending)
        if key not in self._workers:
            working = self._work(key, pending.variables)
            self._workers[key] = asyncio.get_running_loop().create_task(working, context=pending.variables)
        return pending.tried

    async def _work(self, key: _Key, variables: Variables) -> None:
        """Work through a queue, in these context variables."""
        queue = self._queues[key]
        try:
            while queue:
                await self._try_first(queue, variables)
        finally:
            self._remove(key, queue)

    async def _try_first(self, queue: deque[PendingEffect], variables: Variables) -> None:
        """Try the first effect of the queue once, when it is due."""
        pending = queue[0]
        if pending.due is not None:
            # A time that an earlier process stored may be far ahead if the clock was set back since.
            await self._clock.sleep_until(sooner(pending.due, self._clock.now(), _wait_after(pending.attempts)))
        if queue[0] is not pending or await self._waits_for_others(queue) or queue[0] is not pending:
            return
        if self._admit is not None:
            await self._admit(pending.conversation_id)
        pending.is_under_way = True
        fault = await self._attempt(pending, variables)
        pending.is_under_way = False
        if fault is None:
            self._acknowledge(queue)
        else:
            self._postpone(queue)
        pending.report(fault)
        pending.tried.set()

    async def _attempt(self, pending: PendingEffect, variables: Variables) -> str | None:
        """Make an attempt in the context variables of its effect, which may be others than these, of the worker."""
        if pending.variables is not variables:
            own = self._attempt(pending, pending.variables)
            return await asyncio.get_running_loop().create_task(own, context=pending.variables)
        return await (pending.make_attempt() if pending.begun is None else self._try_left(pending, pending.begun))

    async def _waits_for_others(self, queue: deque[PendingEffect]) -> bool:
        """Whether another engine has yet to send something before the first effect of this queue. If so, returns after
        `LOOK`."""
        if self._earlier is None:
            return False
        pending = queue[0]
        earlier = await self._earlier(pending.conversation_id, pending.effect_id, pending.target)
        pending.looks = pending.looks + 1 if earlier == pending.behind else 0
        pending.behind = earlier
        key = (pending.conversation_id, pending.target)
        if not earlier or self._stuck.get(key) == earlier:
            return False
        if pending.looks >= PATIENCE:
            self._stuck[key] = earlier
            return False
        if pending.holds_up:
            for waiting in queue:
                waiting.tried.set()
        await self._clock.sleep_until(later(self._clock.now(), LOOK))
        return True

    async def _try_left(self, pending: PendingEffect, begun: int) -> str | None:
        """Try what an earlier process has left, and note before that the attempt begins."""
        async with self._alone if begun else nullcontext():
            try:
                await pending.receipts.begin(pending.effect_id, pending.target, begun + 1)
            except StoreError as error:
                return error.sentence
            try:
                fault = await pending.make_attempt()
            except asyncio.CancelledError:  # the process goes on, or ends in order
                pending.receipts.postpone(pending.effect_id, pending.target, pending.attempts, self._clock.now())
                raise
        pending.begun = None
        return fault

    def _acknowledge(self, queue: deque[PendingEffect]) -> None:
        pending = queue.popleft()
        if pending.attempts:
            for waiting in queue:
                waiting.tried = asyncio.Event()  # no failed effect is in front of it any longer
        pending.receipts.acknowledge(pending.effect_id, pending.target)

    def _postpone(self, queue: deque[PendingEffect]) -> None:
        pending = queue[0]
        pending.attempts += 1
        pending.due = later(self._clock.now(), _wait_after(pending.attempts))
        pending.receipts.postpone(pending.effect_id, pending.target, pending.attempts, pending.due)
        for waiting in queue:
            waiting.tried.set()

    async def _stop(self, keys: list[_Key]) -> None:
        workers = [self._workers[key] for key in keys]
        for key, worker in zip(keys, workers, strict=True):
            worker.cancel()
            self._remove(key, self._queues[key])  # a task that has not begun yet does not run its `finally`
        if workers:
            await asyncio.wait(workers, timeout=CLOSING_GRACE)

    def _remove(self, key: _Key, queue: deque[PendingEffect]) -> None:
        """Forget this queue, and release those who wait for it."""
        for pending in queue:
            pending.tried.set()
        if self._queues.get(key) is queue:
            del self._queues[key], self._workers[key]


_MAX_DOUBLINGS = 30
"""After so many failures the wait no longer grows: it may go on for weeks, and 2 ** n would become huge."""


def wait_after(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures, at least one: `first`, doubled with each of them, up to
    `longest`. A short disturbance is overcome soon, and what is down for long is not flooded. `Pure.`"""
    return min(longest, first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
