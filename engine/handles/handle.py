"""The base of a handle on a conversation: the loop that it asks, and what it has last seen."""

from __future__ import annotations

import asyncio
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ...states.events import Event
from ...states.policy.policy import Policy
from ...states.states import State
from ...states.step import Step
from ..loop import Loop
from ..projections.turn import Turn
from .last_seen import LastSeen

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.records.entry import StoredEntry


class HandleHost(Protocol):
    """What a handle needs from the engine of its conversation."""

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`."""
        ...

    def now(self) -> datetime:
        """Return the current time."""
        ...

    def with_models(self, policy: Policy) -> Policy:
        """Return the policy with the models of the engine. Raises `InvalidInput`."""
        ...


class Handle:
    """The conversation of a loop, and what was last seen of it."""

    def __init__(self, host: HandleHost, loop: Loop) -> None:
        self._host = host
        self._loop = loop
        self._seen = LastSeen(loop.state)
        self._sending = asyncio.Lock()

    @property
    def id(self) -> str:
        """The id under which `Engine.get` finds this conversation again."""
        return self._loop.conversation_id

    @property
    def state(self) -> State:
        """The current state, as stored."""
        self._seen.note_state(self._loop.state)
        return self._loop.state

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._loop.projection.context.policy

    async def _ask(self, event: Event) -> Step:
        step = await self._loop.request(event)
        self._seen.note_state(step.state)
        return step

    async def _turn(self, step: Step) -> Turn:
        """Wait for the turn that this step belongs to."""
        number = step.state.book.turn if step.ended is None else step.ended.turn
        return self._note_seen(await self._loop.turns.of_turn(number))

    def _note_seen(self, turn: Turn) -> Turn:
        return self._seen.note_turn(turn, self._loop.state.book.seq)

    async def _read_entries(self, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        return await self._host.store.entries(self.id, after, up_to)


def new_id() -> str:
    """Return an id for a request that its caller gave none, or for a conversation."""
    return str(uuid.uuid4())
