"""Creates conversations: those that an application asks for, and those that another conversation starts.

An application's conversation has a new id, unless the application gives it one, so that it can ask again where it has
received no answer. One that another conversation starts has an id that follows from the effect that starts it. Both are
created once, however often they are asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from ...persistence.errors import StoreConflict
from ...states.errors import Refused, UnknownConversation
from ...states.events import Opened
from ...states.machine import begin
from ...states.policy import Policy
from ..choices.choices import Choices
from ..choices.given_history import log_repairs
from ..choices.opening import ChosenOpening, opening_of
from ..choices.roles import owner_for
from ..lifetime import Lifetime
from ..loop import Loop
from ..requests import checked_new_id
from ..services.event_redactor import EventRedactor
from .loop_factory import LoopFactory
from .registry import ConversationRegistry

if TYPE_CHECKING:
    from ...persistence.ports import Store


class Creation:
    """Creates conversations in the store of an engine. `policy` holds the rules of conversations that choose none.
    `note_wake` is called with the first wake-up of each conversation that has a schedule."""

    def __init__(
        self,
        policy: Policy,
        choices: Choices,
        redactor: EventRedactor,
        loops: LoopFactory,
        registry: ConversationRegistry,
        lifetime: Lifetime,
        now: Callable[[], datetime],
        note_wake: Callable[[datetime], None],
    ) -> None:
        self._policy = policy
        self._choices = choices
        self._redactor = redactor
        self._loops = loops
        self._registry = registry
        self._lifetime = lifetime
        self._now = now
        self._note_wake = note_wake

    async def begin(self, chosen: ChosenOpening, conversation_id: str | None = None) -> Loop:
        """Create the conversation that an application asks for, under a new id or the one given, and return its loop.
        If there is one with this id that was asked for in the same way, it is returned as it is. While one with this id
        is deleted, it waits for that. Raises what `Engine.create` raises."""
        if conversation_id is None:
            return await self._begin(chosen)
        async with self._registry.family(checked_new_id(conversation_id)):
            return await self._begin(chosen, conversation_id)

    async def _begin(self, chosen: ChosenOpening, conversation_id: str | None = None) -> Loop:
        new_id = str(uuid.uuid4()) if conversation_id is None else conversation_id
        opened = await opening_of(new_id, self._now(), self._choices, self._policy, chosen)
        loop = None if conversation_id is None else await self._find(conversation_id)
        if loop is None and opened.works_for is not None:
            served = await self._registry.read(opened.works_for)
            opened = opened.replace(owner=owner_for(opened.owner, served.state, served.projection.context))
        opened = await self._redactor.opened(opened, wrote_system=bool(chosen.system))
        if loop is None:
            loop = await self._create_new(new_id, opened)
            if loop is not None:
                log_repairs(new_id, opened.repairs)
                return loop
            loop = await self._registry.read(new_id)
        if conversation_id is not None and await loop.recent_requests.find(opened, chosen.filled) is None:
            raise Refused("event_id_reused")  # the conversation was not opened under this id: it is a copy
        return loop

    async def _find(self, conversation_id: str) -> Loop | None:
        try:
            return await self._registry.read(conversation_id)
        except UnknownConversation:
            return None

    async def create(self, conversation_id: str, opened: Opened) -> Loop:
        """Create a conversation with this id and first event, and return its loop. If the id is taken, the conversation
        that has it is returned as it is.

        The caller has removed secrets from the event. Raises `UnknownConversation` if its parent was deleted,
        `StoreError`, and `EngineClosed`.
        """
        async with self._registry.family(conversation_id):
            return await self._create_new(conversation_id, opened) or await self._registry.read(conversation_id)

    async def _create_new(self, conversation_id: str, opened: Opened) -> Loop | None:
        """Create a conversation, and return its loop; None if the id is taken."""
        store = self._store
        opened = opened.replace(nonce=uuid.uuid4().hex)
        step = begin(opened)
        try:
            log = await store.create(conversation_id, opened, step)
        except StoreConflict:
            return None
        self._lifetime.check_not_closed()
        if opened.next_wake is not None:
            self._note_wake(opened.next_wake)
        return self._registry.add(self._loops.created(store, conversation_id, log, opened, step))

    @property
    def _store(self) -> Store:
        return self._lifetime.store
