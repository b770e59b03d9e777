"""The sub-agents of one engine: conversations that a turn of another conversation has started.

A sub-agent is driven like any other conversation. What is special is its id, the key of the effect that started it,
which says who waits for it, and that it ends when nobody does: its parent has gone on without it, was closed or was
deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ...effects.agents import ChildOutcome
from ...effects.clock import Clock
from ...effects.context import effect_of_key
from ...persistence.patience import until_stored
from ...persistence.summaries import ConversationFilter, checked_id
from ...states.dialogue import usage
from ...states.effects import NotifyParent, SpawnSubAgent
from ...states.errors import EngineClosed, Refused, StoreError, UnknownConversation
from ...states.events import CloseRequested, Event, Opened, SubAgentAsked, SubAgentFinished, UserMessage
from ...states.states import AwaitingSubAgents, Busy, Closed, Failed, State, pending
from ...states.step import Step
from ...states.transcript import Transcript
from ...states.values.messages import Usage
from ...states.values.questions import OpenQuestion
from ..loop import Loop
from ..registry import ConversationRegistry, child_of, children_of

if TYPE_CHECKING:
    from ...effects.agents import SubAgent, SubAgents
    from ...persistence.ports import Store
    from ..ports import Observer

logger: logging.Logger = logging.getLogger("turnwise.agents")


class EngineSubAgents:
    """The port `SubAgents`, filled by the conversations of an engine."""

    def __init__(self, registry: ConversationRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    async def find(self, child_id: str) -> _ChildConversation | None:
        """See `SubAgents`."""
        loop = await self._registry.find_loop(child_id)
        return None if loop is None else _ChildConversation(self._registry, loop, self._clock)

    async def create(self, child_id: str, opened: Opened) -> _ChildConversation:
        """See `SubAgents`."""
        checked_id(child_id)
        loop = await until_stored(lambda: self._create_once(child_id, opened))
        return _ChildConversation(self._registry, loop, self._clock)

    async def _create_once(self, child_id: str, opened: Opened) -> Loop:
        parent_id, _ = effect_of_key(child_id)
        async with self._registry.family(parent_id):
            return await self._registry.create(child_id, opened)

    async def report(self, parent_id: str, report: SubAgentAsked) -> None:
        """See `SubAgents`."""
        (await self._registry.get_loop(parent_id)).answer(report)

    async def reported(self, parent_id: str, effect_id: int) -> OpenQuestion | None:
        """See `SubAgents`."""
        state = (await self._registry.get_loop(parent_id)).state
        known = state.question_of(effect_id) if isinstance(state, AwaitingSubAgents) else None
        return None if known is None else OpenQuestion(known.call_id, known.questions, known.since)


CLOSED = "closed-by-parent"
"""The id under which a sub-agent is told to end, once."""


class _ChildConversation:
    """The port `SubAgent`, filled by a loop. A loop that has failed is replaced by the next one."""

    def __init__(self, registry: ConversationRegistry, loop: Loop, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._drive_by(loop)

    def _drive_by(self, loop: Loop) -> None:
        self._loop, self._interest = loop, loop.interest()

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
                self._drive_by(await self._registry.get_loop(self._loop.conversation_id))
            await self._loop.request(event)

        try:
            await until_stored(request)
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
                self._drive_by(await until_stored(lambda: self._registry.get_loop(self._loop.conversation_id)))

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
        text = failure if found.said is None else transcript.words(found.said)
        return ChildOutcome(found.status, text, found.is_json)

    async def usage(self) -> Usage:
        """See `SubAgent`."""
        return usage(await self._loop.projection.read_entries())


class Orphans:
    """The sub-agents of an engine for which nobody waits. It observes the steps of their parents, and looks at what
    earlier processes have left."""

    def __init__(self, registry: ConversationRegistry, store: Callable[[], Store], clock: Clock) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._closing: dict[asyncio.Task[None], None] = {}
        """The tasks that close sub-agents, in the order in which they began."""

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """End the sub-agents that the conversation has awaited and awaits no longer, though they have not answered."""
        if SpawnSubAgent not in before.IN_FLIGHT:
            return
        awaited = {effect_id for effect_id, kind in before.in_flight().items() if kind is SpawnSubAgent}
        answered = {event.effect_id} if isinstance(event, SubAgentFinished) else set()
        for effect_id in awaited - pending(step.state) - answered:
            self._close_later(self._close_child(conversation_id, effect_id))

    async def end_at_rest(self, store: Store) -> None:
        """End the sub-agents that an earlier process has created, though it had not given them their task, and for
        which nobody waits."""
        try:
            for summary in await store.list(ConversationFilter(role="sub_agent", state="idle")):
                await self.end(await self._registry.get_loop(summary.id))
        except StoreError as error:
            logger.warning("The sub-agents for which nobody waits cannot be listed: %s", error)

    async def end(self, loop: Loop) -> None:
        """End a sub-agent that an earlier process has left, if its parent does not await it."""
        if loop.projection.context.role != "sub_agent":
            return
        try:
            if await self._is_orphaned(loop):
                await loop.request(CloseRequested(event_id=CLOSED, at=self._clock.now()))
        except Refused:
            self._close_later(self._close(loop.conversation_id))  # the store takes nothing at the moment
        except StoreError as error:
            logger.warning("Who waits for the sub-agent %s is not known: %s", loop.conversation_id, error)

    async def end_children(self, loop: Loop) -> None:
        """End the sub-agents of a conversation that an earlier process has left, if it does not await them."""
        awaited = {loop.effect_context().key(effect_id) for effect_id in pending(loop.state)}
        for child in await children_of(self._store(), loop.conversation_id):
            if child.state != "closed" and child.id not in awaited:
                self._close_later(self._close(child.id))

    async def _is_orphaned(self, loop: Loop) -> bool:
        parent_id, effect_id = effect_of_key(loop.conversation_id)
        if parent_id != loop.projection.context.parent:
            return False  # a copy, for which nobody has ever waited
        try:
            parent = await self._registry.get_loop(parent_id)
        except UnknownConversation:
            return True
        is_awaited = effect_id in pending(parent.state)
        return not is_awaited or parent.effect_context().key(effect_id) != loop.conversation_id

    def _close_later(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(closing)
        self._closing[task] = None
        task.add_done_callback(self._closing.pop)

    async def _close_child(self, parent_id: str, effect_id: int) -> None:
        try:
            child_id = await child_of(self._store(), parent_id, effect_id)
        except EngineClosed:
            return
        except StoreError as error:
            logger.warning("A sub-agent of %s, for which nobody waits, cannot be found: %s", parent_id, error)
            return
        if child_id is not None:
            await self._close(child_id)

    async def _close(self, child_id: str) -> None:
        try:
            loop = await self._registry.get_loop(child_id)
            await _ChildConversation(self._registry, loop, self._clock).close()
        except (EngineClosed, UnknownConversation):
            pass
        except StoreError as error:
            logger.warning("The sub-agent %s, for which nobody waits, cannot be closed: %s", child_id, error)

    async def stop(self) -> None:
        """Stop ending sub-agents: those that are left are found when they are taken over."""
        for closing in self._closing:
            closing.cancel()
        if self._closing:
            await asyncio.wait(self._closing)


if TYPE_CHECKING:
    _FILLS: tuple[type[SubAgents], type[SubAgent], type[Observer]] = (EngineSubAgents, _ChildConversation, Orphans)
