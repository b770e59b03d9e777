"""Creates conversations: those that an application asks for, and those that another conversation starts.

An application's conversation has a new id. One that another conversation starts has an id that follows from the effect
that starts it, so it is created once, however often it is asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from ...persistence.errors import StoreConflict
from ...states.events import Opened
from ...states.machine import begin
from ...states.policy.policy import Policy
from ..choices.choices import Choices
from ..choices.given_history import log_repairs
from ..choices.opening import ChosenOpening, opening_of
from ..choices.roles import owner_for
from ..lifetime import Lifetime
from ..loop import Loop
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

    async def begin(self, chosen: ChosenOpening) -> Loop:
        """Create the conversation that an application asks for, under a new id, and return its loop. Raises what
        `Engine.create` raises."""
        conversation_id = str(uuid.uuid4())
        opened = await opening_of(conversation_id, self._now(), self._choices, self._policy, chosen)
        if opened.works_for is not None:
            served = await self._registry.read(opened.works_for)
            opened = opened.replace(owner=owner_for(opened.owner, served.state, served.projection.context))
        opened = await self._redactor.opened(opened, wrote_system=bool(chosen.system))
        loop = await self.create(conversation_id, opened)
        log_repairs(conversation_id, opened.repairs)
        return loop

    async def create(self, conversation_id: str, opened: Opened) -> Loop:
        """Create a conversation with this id and first event, and return its loop. If the id is taken, the conversation
        that has it is returned as it is.

        The caller has removed secrets from the event. Raises `StoreError`, and `EngineClosed`.
        """
        store = self._store
        step = begin(opened)
        try:
            log = await store.create(conversation_id, opened, step)
        except StoreConflict:
            return await self._registry.read(conversation_id)
        self._lifetime.check_not_closed()
        if opened.next_wake is not None:
            self._note_wake(opened.next_wake)
        return self._registry.add(self._loops.created(store, conversation_id, log, opened, step))

    @property
    def _store(self) -> Store:
        return self._lifetime.store
