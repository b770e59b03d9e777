"""Takes over what an earlier process left in the middle: its deliveries, its timers, and whatever else was in flight.

The store says which conversations wait, and hands out each of them once. Taking over only reports and enqueues; the
loops carry out what follows.

Several engines may share one open store. One that closes hands over to another what it has left in the middle, so that
a turn goes on there, and whoever waits for it. And one asks before it delivers whether another has yet to deliver what
was said earlier.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...effects.retry_queues import Left, Resumable
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
    from ...persistence.records import Undelivered

logger = logging.getLogger("turnwise.engine")

BATCH = 64
"""How many conversations are taken over at once when an engine opens: enough to keep a disk busy, few enough that the
first of them need not wait for all."""


_SHARING: dict[int, list[TakeOver]] = {}
"""What takes conversations over in the engines that share a store, by the `id` of the store, which they hold."""


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
        self._shared: tuple[Store, ConversationRegistry, asyncio.AbstractEventLoop] | None = None

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

    # --- engines that share a store

    def join(self, store: Store, registry: ConversationRegistry) -> None:
        """Take over what the other engines over this open store leave, from now on until `leave`."""
        self._shared = store, registry, asyncio.get_running_loop()
        _SHARING.setdefault(id(store), []).append(self)

    def leave(self) -> None:
        """Take nothing more over from other engines."""
        if self._shared is not None:
            key, self._shared = id(self._shared[0]), None
            _SHARING[key].remove(self)
            if not _SHARING[key]:
                del _SHARING[key]

    def _others(self) -> list[TakeOver]:
        """Return those that share the store, in this event loop."""
        if self._shared is None:
            return []
        return [one for one in _SHARING[id(self._shared[0])] if one is not self and one._drives_in(self._shared[2])]

    def _drives_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._shared is not None and self._shared[2] is loop and not self._shared[1].has_ended

    async def left_by_others(self, conversation_id: str, effect_id: int, target: str) -> tuple[tuple[int, int], ...]:
        """Return what other engines have yet to send before this effect: the ids of the effects, and how many attempts
        have failed. The store is asked only while there are others."""
        if self._shared is None or not self._others():
            return ()
        try:
            undelivered = await self._shared[0].outbox([conversation_id])
        except StoreError:
            return ()  # the effect is not held up by what cannot be read
        earlier = (one for one in undelivered if one.target == target and one.effect_id < effect_id)
        return tuple((one.effect_id, one.attempts) for one in earlier)

    async def hand_over(self, waiting: Iterable[str], left: Set[Left]) -> Set[str]:
        """Have another engine go on with the conversations that are `waiting`, and with what is `left` to be sent, if
        there is one. Returns the conversations that it has taken over. To be called when nothing is carried out here
        any more."""
        others = self._others()
        conversation_ids = {*waiting, *(conversation_id for conversation_id, _, _ in left)}
        if not others or not conversation_ids:
            return frozenset()
        try:
            await others[0].accept(sorted(conversation_ids), left)
        except StoreError as error:
            logger.warning("The conversations of a closed engine could not be handed over: %s", error)
            return frozenset()
        return conversation_ids

    async def accept(self, conversation_ids: Sequence[str], left: Set[Left]) -> None:
        """Go on with these conversations, and with what another engine has `left` to be sent."""
        if self._shared is None:
            return
        store, registry, _ = self._shared
        held = {one for one in conversation_ids if registry.holds(one)}
        self.claimed.update(conversation_ids)
        for one in await store.outbox(conversation_ids):
            if one.conversation_id not in held or (one.conversation_id, one.effect_id, one.target) in left:
                self._undelivered.setdefault(one.conversation_id, []).append(one)
        for conversation_id in held:
            with suppress(TurnwiseError):  # it is followed at the next step
                await (await registry.read(conversation_id)).catch_up()
        await asyncio.gather(*(self._conversation(registry, conversation_id) for conversation_id in conversation_ids))

    async def loop(self, store: Store, loop: Loop) -> None:
        """Have the conversation of this loop go on: first with what it said and wrote, then with what it did."""
        undelivered = _each_once(self._undelivered.get(loop.conversation_id, []))
        read = partial(store.entries, loop.conversation_id)
        await take_over_outbox(undelivered, read, loop.effect_context(), self._resumers)
        self._undelivered.pop(loop.conversation_id, None)
        is_busy = bool(loop.state.in_flight()) or isinstance(loop.state, InTurn)
        if is_busy and await self._waiting.must_wait(loop.conversation_id, loop.projection.context, loop.state):
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

        await self._waiting.until_askable(loop.conversation_id, loop.projection.context, loop.state, is_left)
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
