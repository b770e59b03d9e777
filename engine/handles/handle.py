"""The base of a handle on a conversation: the loop that it asks, and what it has last seen."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from copy import deepcopy
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ...states.errors import ConfigurationError
from ...states.events import (
    CompactionRequested,
    DoubtResolved,
    Event,
    Request,
    RetryRequested,
    ToolApproval,
    UserMessage,
    UserQuestionResponse,
)
from ...states.policy import Policy
from ...states.roles import Role
from ...states.states import AnyState, AwaitingApproval, Cancelling, InDoubt
from ...states.values.messages import Approver, Usage
from ..choices.choices import Choices
from ..lifetime import Homebound
from ..loop import Loop
from ..projections.turn import Turn
from ..projections.updates.update import Update
from ..projections.watcher import Watcher
from ..recent_requests import NOTHING_FILLED, Filled, HandledRequest, Outcome
from ..requests import make
from ..services.dispatcher_failures import dispatcher_failures_logged
from .iterations import iterations_until_done
from .last_seen import LastSeen

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.records import StoredEntry

ITERATIONS_TO_SEND = 32
"""For how many iterations of the event loop the caller of a turn lets channels take what was said in it. Several times
as many as a channel in the same process needs for a few texts; one that waits for a network is not waited for."""


ASKS_MODEL = (UserMessage, UserQuestionResponse, ToolApproval, DoubtResolved, RetryRequested, CompactionRequested)
"""The requests behind which a model is asked."""


class HandleHost(Protocol):
    """What a handle needs from the engine of its conversation."""

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`."""
        ...

    def now(self) -> datetime:
        """Return the current time."""
        ...

    @property
    def choices(self) -> Choices:
        """What conversations of the engine may choose."""
        ...

    def note_copy(self) -> None:
        """Note that a conversation was copied."""
        ...

    def check_home(self) -> None:
        """Raise `EngineElsewhere` unless this is called where the engine was opened."""
        ...

    def spent_on(self, conversation_id: str) -> Usage:
        """Return about what has been spent on the answers of this conversation that are under way here."""
        ...

    def check_may_write(self) -> None:
        """Raise `Refused` with `read_only` if the engine was opened for reading only."""
        ...


class Handle(Homebound):
    """The conversation of a loop, and what was last seen of it."""

    def __init__(self, host: HandleHost, loop: Loop) -> None:
        self._host = host
        self._loop = loop
        self._seen = LastSeen(loop.state)
        self._lock: asyncio.Lock | None = None

    def check_home(self) -> None:
        """Raise `EngineElsewhere` unless this is called where the engine was opened, as every method here does
        first."""
        self._host.check_home()

    def __repr__(self) -> str:
        state = self._loop.state
        turns = f"{state.book.turn} turn{'' if state.book.turn == 1 else 's'}"
        return f"<{type(self).__name__} {self.id!r}: {state.type}, {turns}>"

    @property
    def id(self) -> str:
        """The id under which `Engine.get` finds this conversation again."""
        return self._loop.conversation_id

    @property
    def state(self) -> AnyState:
        """The current state, as stored: one of the classes of `turnwise.states`, each with a `type` of its own."""
        self._seen.note_state(self._loop.state)
        return self._loop.state

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._loop.projection.context.policy

    @property
    def system(self) -> str:
        """The system prompt that was given; "" if there is none."""
        return self._loop.projection.context.system

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The names of the tools that the next turn may use; None stands for all that the engine has."""
        return self._loop.projection.context.tools_in(self._loop.state.book.turn + 1)

    @property
    def profile(self) -> str:
        """The name of the profile of the newest turn, also of one that is under way; "" before the first turn, and in a
        turn without profiles. While a profile is being chosen, this is the first one."""
        return self._loop.projection.profile

    @property
    def role(self) -> Role:
        """Whether this agent has a user ("foreground"), works for another agent ("background"), or was started by a
        turn of another agent ("sub_agent")."""
        return self._loop.projection.context.role

    @property
    def works_for(self) -> str | None:
        """The id of the conversation for which this background agent works, or None."""
        return self._loop.projection.context.works_for

    @property
    def parent(self) -> str | None:
        """The id of the conversation whose turn started this sub-agent, or None."""
        return self._loop.projection.context.parent

    @property
    def owner(self) -> str | None:
        """Whom the conversation belongs to, as its application said when it created it."""
        return self._loop.projection.context.owner

    @property
    def title(self) -> str | None:
        """The title that was given, or None. `Engine.list` shows the first message of a user where none was given."""
        title = self._loop.projection.context.title
        return title if title and title.strip() else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the application noted about the conversation: a copy of it."""
        return deepcopy(self._loop.projection.context.metadata)

    @property
    def approver(self) -> Approver | None:
        """Who may decide about the call that waits for approval, or for word of whether it ran; None if none does. A
        call is the operator's if it needs approval and its tool said so when it was made, or says so now."""
        state = self._loop.state
        if not isinstance(state, AwaitingApproval | InDoubt):
            return None
        call, registry = state.call, self._host.choices.registry
        tool, _ = registry.find_in(self._loop.projection.context, state.book.turn, call.name)
        present = registry.approver_at_source(call.name) if tool is None else tool.approval_by
        return "operator" if call.approval and "operator" in (call.approval_by, present) else "user"

    async def _request(
        self, kind: type[Request], request_id: str | None, filled: Iterable[str] = (), **fields: object
    ) -> HandledRequest:
        """Make a request of this kind, under a new id if its caller gave none. `filled` are the other fields that the
        caller left out. Raises `InvalidInput` and `Refused`."""
        event_id = new_id() if request_id is None else request_id
        request = make(kind, event_id=event_id, at=self._host.now(), **fields)
        outcome = await self._ask(request, frozenset(filled if request_id is not None else {*filled, "event_id"}))
        assert outcome.handled is not None, "the event was a request"
        return outcome.handled

    async def _ask(self, event: Event, filled: Filled = NOTHING_FILLED) -> Outcome:
        if isinstance(event, ASKS_MODEL):
            await self._check_models(event, filled)
        outcome = await self._loop.request(event, filled)
        self._seen.note_state(outcome.step.state)
        return outcome

    async def _check_models(self, request: Request, filled: Filled) -> None:
        """Raise `ConfigurationError` if the model that a turn asks first cannot be asked at all: it would fail for a
        reason that only another engine can mend. A request that was handled before may be repeated."""
        self._host.check_may_write()
        fault = await self._host.choices.find_model_fault(self._loop.state, self._loop.projection.context)
        if fault is not None and await self._loop.recent_requests.find(request, filled) is None:
            raise ConfigurationError(fault)

    async def _was_handled(
        self, kind: type[Request], request_id: str | None, filled: Iterable[str], **fields: object
    ) -> bool:
        """Whether this request was handled under its id before, although it could not be made now. Raises `Refused` if
        another one was handled under its id, `InvalidInput` and `StoreError`."""
        if request_id is None:
            return False
        request = make(kind, event_id=request_id, at=self._host.now(), **fields)
        return await self._loop.recent_requests.find(request, frozenset(filled)) is not None

    @property
    def _sending(self) -> asyncio.Lock:
        """Held while a message is being sent. It is made when it is first needed, since most handles only read."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _turn(self, handled: HandledRequest, *, wait: bool = True) -> Turn:
        """Wait for the turn that this request belongs to: until it stops for the first time after the request. Unless
        `wait`, return it as it is now."""
        turns = self._loop.turns
        if wait:
            return await self._stopped_turn(turns.after(handled.seq, handled.turn))
        return self._note_seen(await turns.current(handled.turn))

    async def _stopped_turn(self, stopped: Awaitable[Turn]) -> Turn:
        """Wait for this turn, and let channels that are quick take what was said in it."""
        turn = await stopped
        if self._loop.sends:
            with dispatcher_failures_logged():
                await iterations_until_done(self._loop.sent(), ITERATIONS_TO_SEND)
        return self._note_seen(turn)

    async def _stopped(self, handled: HandledRequest) -> None:
        """Wait while the turn of this request is being cancelled."""
        state = self._loop.state
        if isinstance(state, Cancelling) and state.turn.number == handled.turn:
            await self._turn(handled)

    def _note_seen(self, turn: Turn) -> Turn:
        return self._seen.note_turn(turn, self._loop.state.book.seq)

    def _watcher(self, after: str | None = None, caught_up: Callable[[int], object] | None = None) -> Watcher:
        """Return a watcher that begins after this update, or now. Raises `InvalidInput`."""
        return Watcher(self._loop.projection, self._loop.feed, self._read_entries, after, caught_up)

    async def _noted(self, updates: AsyncGenerator[Update, None]) -> AsyncGenerator[Update, None]:
        """Yield these updates, and note that this handle has shown them."""
        async with aclosing(updates):
            async for update in updates:
                self._seen.note_update(update)
                yield update

    async def _read_entries(self, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        return await self._host.store.entries(self.id, after, up_to)


def new_id() -> str:
    """Return an id for a request that its caller gave none, or for a conversation."""
    return str(uuid.uuid4())
