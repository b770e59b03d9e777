"""Takes over what an earlier process left in the middle: its deliveries, its timers, and whatever else was in flight.

The store says which conversations wait, and hands out each of them once. Taking over only reports and enqueues; the
loops carry out what follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...effects.retry_queues import Resumable
from ...states.effects import Effect
from ...states.errors import EngineClosed, StoreError, TurnwiseError, UnknownConversation
from ...states.states import InTurn
from ..choices.models import WaitingTurns
from ..loop import Loop
from ..outbox import take_over_outbox
from ..recovery import known_effects
from .registry import ConversationRegistry

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.records.outbox import Undelivered

logger = logging.getLogger("turnwise.engine")

BATCH = 64
"""How many conversations are taken over at once when an engine opens: enough to keep a disk busy, few enough that the
first of them need not wait for all."""


class TakeOver:
    """Has conversations go on that were left in the middle. `resumers` go on with what is in their outbox, each with
    one type of effect. `end_orphan` ends a sub-agent for which nobody waits. `waiting` are turns that have to wait."""

    def __init__(
        self,
        resumers: Mapping[type[Effect], Resumable],
        end_orphan: Callable[[Loop], Awaitable[None]],
        waiting: WaitingTurns,
    ) -> None:
        self._waiting = waiting
        self._later: dict[str, asyncio.Task[None]] = {}
        """What takes conversations over once their models can be asked, by their ids."""
        self._resumers = resumers
        self._end_orphan = end_orphan
        self._undelivered: dict[str, list[Undelivered]] = {}
        self.claimed: set[str] = set()
        """The conversations that the store handed out, to be released when the engine has closed."""

    async def everything(self, store: Store, registry: ConversationRegistry) -> None:
        """Take over all conversations that wait, a batch at a time. When this returns, calls in doubt are listed so."""
        # A store that hands out a conversation twice must not make its tools run twice.
        while claimed := [
            each for each in dict.fromkeys(await self._claim(store, registry)) if each not in self.claimed
        ]:
            self.claimed.update(claimed)
            for one in await store.outbox(claimed):
                self._undelivered.setdefault(one.conversation_id, []).append(one)
            await asyncio.gather(*(self._conversation(registry, conversation_id) for conversation_id in claimed))

    async def _claim(self, store: Store, registry: ConversationRegistry) -> Sequence[str]:
        """Return the next batch, or nothing more once the engine closes."""
        return () if registry.has_ended else await store.claim(BATCH)

    async def _conversation(self, registry: ConversationRegistry, conversation_id: str) -> None:
        try:
            loop = await registry.take_over(conversation_id)
            await loop.handled()
        except (EngineClosed, UnknownConversation):
            pass  # closed or deleted meanwhile
        except StoreError as error:
            logger.warning("The conversation %s cannot be taken over: %s", conversation_id, error)

    async def loop(self, store: Store, loop: Loop) -> None:
        """Have the conversation of this loop go on: first with what it said and wrote, then with what it did."""
        undelivered = _each_once(self._undelivered.get(loop.conversation_id, []))
        read = partial(store.entries, loop.conversation_id)
        await take_over_outbox(undelivered, read, loop.effect_context(), self._resumers)
        self._undelivered.pop(loop.conversation_id, None)
        is_busy = bool(loop.state.in_flight()) or isinstance(loop.state, InTurn)
        if is_busy and await self._waiting.must_wait(loop.conversation_id, loop.projection.context):
            self.drop(loop.conversation_id)
            self._later[loop.conversation_id] = asyncio.ensure_future(self._when_askable(loop))
        else:
            await self._go_on(loop)

    async def _go_on(self, loop: Loop) -> None:
        await self._end_orphan(loop)
        await loop.take_over()

    async def _when_askable(self, loop: Loop) -> None:
        """Have the conversation go on once its model can be asked, unless its turn was cancelled meanwhile: each
        take-over counts as a try, so it is not taken over before."""
        left = known_effects(loop.state)

        def is_left() -> bool:
            return not loop.has_ended and known_effects(loop.state) == left

        await self._waiting.until_askable(loop.conversation_id, loop.projection.context, is_left)
        try:
            if is_left():
                await self._go_on(loop)
        except TurnwiseError as error:
            logger.warning("The conversation %s cannot be taken over: %s", loop.conversation_id, error)

    def drop(self, conversation_id: str) -> None:
        """Do not take this conversation over later: it was deleted, or is taken over again."""
        if (task := self._later.pop(conversation_id, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Take nothing more over."""
        for task in (tasks := list(self._later.values())):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _each_once(undelivered: list[Undelivered]) -> Iterator[Undelivered]:
    """Yield what is left, and take each off once it is dealt with: taking over may fail, and is tried again then."""
    while undelivered:
        yield undelivered[0]
        del undelivered[0]
