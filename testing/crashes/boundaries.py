"""The places where a process can die: around each commit, each call to the world, and each delivery.

Between two of these nothing happens that another process could see, so to die there is to die at one of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from .journal import Journal

if TYPE_CHECKING:
    from ...effects.channels.port import Channel, Delivery
    from ...effects.context import EffectContext
    from ...effects.dispatcher import InProcessDispatcher
    from ...engine.loop import Loop
    from ...persistence.sqlite.log import SqliteLog
    from ...states.events import Event, Request
    from ...states.step import Step


@dataclass(frozen=True)
class Boundary:
    """The `number`-th boundary that a process comes to, counted from 1, and what it is."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"boundary {self.number}, {self.name}"


class Boundaries:
    """Counts the boundaries of this process and writes them down; kills it at the one numbered `dies_at`."""

    def __init__(self, journal: Journal, dies_at: int | None) -> None:
        self._journal = journal
        self._dies_at = dies_at
        self._passed = 0

    def reach(self, name: str) -> None:
        """Come to a boundary, and perhaps no further."""
        self._passed += 1
        self._journal.add("boundary", name)
        if self._passed == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def watched(journal: Journal, dies_at: int | None = None) -> Iterator[None]:
    """While this holds, every engine of this process comes to boundaries, and what it does outside is written down."""
    from ...effects.channels import attempt, delivery_dispatcher
    from ...effects.dispatcher import InProcessDispatcher
    from ...engine import loop
    from ...persistence.sqlite.log import SqliteLog

    boundaries = Boundaries(journal, dies_at)
    with ExitStack() as patches:
        for owner, name, wrapped in (
            (SqliteLog, "append", _commit(boundaries, SqliteLog.append)),
            (InProcessDispatcher, "perform", _perform(boundaries, journal, InProcessDispatcher.perform)),
            (delivery_dispatcher, "attempt", _attempt(boundaries, journal, attempt.attempt)),
            (loop.Loop, "request", _request(journal, loop.Loop.request)),
        ):
            patches.enter_context(patch.object(owner, name, wrapped))
        yield


def _commit(boundaries: Boundaries, commit: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def watched_commit(log: SqliteLog, event: Event, step: Step, targets: Any = ()) -> None:
        boundaries.reach(f"before {event.type} is stored")
        await commit(log, event, step, targets)
        boundaries.reach(f"after {event.type} is stored")

    return watched_commit


def _perform(
    boundaries: Boundaries, journal: Journal, perform: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def watched_perform(dispatcher: InProcessDispatcher, effect: Any, context: EffectContext) -> Any:
        boundaries.reach(f"before {effect.type} is begun")
        journal.add("begun", context.conversation_id, effect.effect_id)
        answer = await perform(dispatcher, effect, context)
        boundaries.reach(f"after {effect.type} is done")
        return answer

    return watched_perform


def _attempt(
    boundaries: Boundaries, journal: Journal, attempt: Callable[..., Awaitable[str | None]]
) -> Callable[..., Awaitable[str | None]]:
    async def watched_attempt(channel: Channel, delivery: Delivery) -> str | None:
        boundaries.reach("before a delivery")
        fault = await attempt(channel, delivery)
        if fault is None:
            journal.add("arrived", delivery.conversation_id, channel.name, int(delivery.key.rpartition("/")[2]))
        boundaries.reach("after a delivery")
        return fault

    return watched_attempt


def _request(journal: Journal, request: Callable[..., Awaitable[Step]]) -> Callable[..., Awaitable[Step]]:
    async def watched_request(loop: Loop, event: Request) -> Step:
        step = await request(loop, event)
        if not step.ignored:
            journal.add("taken", loop.conversation_id, event.event_id)
        return step

    return watched_request
