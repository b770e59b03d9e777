"""Custody: which conversations this process looks after, where several processes share a store.

Any process may append to any log; the log decides. But the effects of a conversation are carried out by one process at
a time, the one that has its custody, whoever has stored the step. A job of the store says that somebody must look after
a conversation. Whoever gets it takes the custody, begins what is in flight, carries on until the conversation rests,
and lets go. With a store that belongs to one process there is no custody, and nothing of this is used.

    take       a fence begins: appends of earlier holders are refused from now on
    pick up    follow the log, go on with the outbox; then either begin what is in flight and was begun by nobody, or,
               if an earlier holder has not let go, report what it has left, as `recovery.py` does after a crash
    drive      the loop carries out the effects of each step, also of those that other processes store
    let go     when nothing is under way here, and what comes next comes from outside, or is due later

A process may lose a custody, because it stood still for so long that it counted as dead. It learns that when it appends
a step, or when it confirms the custody before it touches the world. It begins nothing more then, stops what runs, and
drops its answers. Between the look and the act it may still stand still, so what must happen at most once holds for
each custody; the next one finds it in doubt.

Between two events of a conversation nobody else moves it here. So it is picked up, and let go, between two events: no
step is carried out twice, and none by nobody. A step that another process stores meanwhile has called for a job of its
own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

from ..effects.dispatcher import Performer, Sender, with_abort_of
from ..persistence.errors import StorageFailed
from ..persistence.patience import FIRST_WAIT, NEVER, Moment, storage_failures_passed_over, until_stored
from ..states.effects import AwaitedEffect, Effect, OutgoingEffect, StartTimer
from ..states.errors import (
    ConfigurationError,
    EngineClosed,
    InvalidInput,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)
from ..states.events import Request
from ..states.states import AwaitingSubAgents
from ..states.values.value import later

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects.clock import Clock
    from ..effects.context import EffectContext
    from ..effects.retry_queues import Admit, RetryQueues
    from ..persistence.ports import Log, SharedStore, Taken
    from ..states.events import Answer, Event
    from ..states.step import LogEntry, Step
    from .agents.wake_ups import WakeUps
    from .loop import Interest, Loop
    from .ports import Custodian
    from .recovery import Recovery
    from .registry import ConversationRegistry

logger: logging.Logger = logging.getLogger("turnwise.engine")

T = TypeVar("T")

LOOK = 0.5
"""Seconds between two looks at a conversation that is held: has it ended, or is something due by now?"""

SOON = timedelta(seconds=5)
"""A conversation whose timer, wake-up or delivery is due within this is not let go before. A store calls for it up to
three seconds before: to take it and to let it go again and again until then would cost more than to wait."""

FIRST_REST, LONGEST_REST = 1.0, 300.0
"""Seconds until a conversation is called for again that cannot be looked after, as one whose log is damaged; doubled
each time."""


_OWNERS: WeakValueDictionary[int, Custody] = WeakValueDictionary()
"""Which engine uses an open store, by the `id` of the store, which it holds. A store takes what is appended to the log
of a conversation that it holds for a step of the holder."""


@dataclass(frozen=True)
class CustodyCounts:
    """How a process fares that looks after conversations, for those who watch it.

    `held` are looked after now. Since the engine was opened it has `taken` so many, of which so many were `taken_over`
    from a process that had not let go of them, and has `lost` so many to others. `fault` is a sentence that says why it
    gets no more to look after, if so. `name` is what the names of its custodies begin with, as the database has them:
    its host, the number of its process there, and a mark that no other one has.
    """

    held: int = 0
    taken: int = 0
    taken_over: int = 0
    lost: int = 0
    fault: str | None = None
    name: str = ""


class _Phase(Enum):
    """How far a custody is. Of `LET_GO` and `GONE` the store knows."""

    TAKEN = "nothing has begun here yet"
    PERFORMED = "the effects of its steps are carried out here"
    STOPPING = "nothing more begins here, and what runs is being stopped"
    RESTED = "the same, and nothing was under way"
    LET_GO = "it was let go"
    LOST = "another custody has begun"
    GONE = "another custody has begun, and nothing is left to be told of this one"


@dataclass(eq=False)
class _Held:
    """The custody of one conversation. `moved` is set when the conversation has moved."""

    taken: Taken
    proof: Moment
    phase: _Phase = _Phase.TAKEN
    loop: Loop | None = None
    interest: Interest | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    refused_wake: tuple[datetime, int | None] | None = None
    """The wake-up that the conversation did not take, and the step at which it did not; None if its schedule cannot be
    read here."""

    @property
    def is_performed(self) -> bool:
        return self.phase is _Phase.PERFORMED

    @property
    def is_lost(self) -> bool:
        return self.phase is _Phase.LOST or self.phase is _Phase.GONE

    @property
    def is_over(self) -> bool:
        return self.phase is _Phase.LET_GO or self.phase is _Phase.GONE

    @property
    def conversation_id(self) -> str:
        return self.taken.conversation_id


class Custody:
    """The conversations that one engine looks after. Fills the port `Custodian`.

    `queues` hold what is sent for conversations. `slots` is how many are looked after at once, and `lease` the seconds
    after which a process counts as dead whose heart has not beaten.
    """

    def __init__(
        self,
        store: Callable[[], SharedStore],
        registry: ConversationRegistry,
        recovery: Recovery,
        wake_ups: WakeUps,
        queues: Sequence[RetryQueues],
        clock: Clock,
        *,
        slots: int,
        lease: float,
    ) -> None:
        self._store = store
        self._registry = registry
        self._recovery = recovery
        self._wake_ups = wake_ups
        self._queues = queues
        self._clock = clock
        self._slots = slots
        self._lease = lease
        self._name = f"{_host()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self._held: dict[str, _Held] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._serving: list[asyncio.Task[None]] = []
        self._takes = True
        self._is_ending = False
        self._is_idle = asyncio.Event()
        self._left_alone: dict[str, float] = {}
        """For how long conversations that cannot be looked after were left alone last."""
        self._resting: set[asyncio.Task[None]] = set()
        self._taken = self._taken_over = self._lost = 0
        self._fault: str | None = None

    @property
    def counts(self) -> CustodyCounts:
        """How this process fares."""
        return CustodyCounts(len(self._held), self._taken, self._taken_over, self._lost, self._fault, self._name)

    # --- what the loops ask

    def note_step(self, conversation_id: str, by_others: LogEntry | None) -> bool:
        """See `Custodian`. What others store are requests; an answer may be that of a holder behind this one, so the
        custody is to be confirmed before anything else begins."""
        held = self._held.get(conversation_id)
        if held is None:
            return False
        if by_others is not None and by_others.seq > held.taken.seq and not isinstance(by_others.event, Request):
            held.proof = NEVER
        held.moved.set()
        return held.is_performed

    def drives(self, conversation_id: str) -> bool:
        """Whether the effects of this conversation are carried out here now."""
        held = self._held.get(conversation_id)
        return held is not None and held.is_performed

    async def lose(self, conversation_id: str) -> None:
        """See `Custodian`."""
        if (held := self._held.get(conversation_id)) is not None:
            self._lose(held)
            with suppress(StorageFailed):  # there is nothing to be stored: another custody has begun
                await self._let_go(held, at_rest=False)
            held.phase = _Phase.GONE

    def _lose(self, held: _Held) -> None:
        if not held.is_lost and not held.is_over:
            logger.warning("Another process looks after the conversation %s now.", held.conversation_id)
            self._lost += 1
            self._interrupt(held, _Phase.LOST)

    def _interrupt(self, held: _Held, phase: _Phase) -> None:
        """Have nothing more begin, and what runs be stopped, without its answers."""
        held.phase = phase
        if held.loop is not None:
            held.loop.lose()
        held.moved.set()

    def proving_log(self, conversation_id: str, log: Log) -> Log:
        """Return the log, each append to which proves the custody."""
        return _ProvingLog(log, partial(self._held.get, conversation_id), self._now)

    # --- before the world is touched

    async def confirm(self, conversation_id: str) -> None:
        """Return if this process may touch the world for the conversation now. If not, does not return: whatever runs
        for the conversation here is cancelled."""
        held = self._held.get(conversation_id)
        while held is not None and not held.is_lost and not held.is_over:
            if self._is_proven(held):
                return
            try:
                await self._prove(held)
            except StorageFailed:
                await asyncio.sleep(FIRST_WAIT)
        await _until_cancelled()

    def _is_proven(self, held: _Held) -> bool:
        return self._now().since(held.proof) <= self._lease / 2

    async def _prove(self, held: _Held) -> None:
        """Ask the store whether this is still the custody. Raises `StorageFailed`."""
        began = self._now()
        if await self._store().confirm(held.taken):
            held.proof = began
        else:
            self._lose(held)

    def _now(self) -> Moment:
        return Moment(asyncio.get_running_loop().time(), self._clock.now().timestamp())

    # --- from one process to the next

    def claim_store(self) -> None:
        """Note that this engine uses the store. Raises `ConfigurationError` if another one uses it."""
        if _OWNERS.setdefault(id(self._store()), self) is not self:
            raise ConfigurationError(
                "Another engine uses this store; open another one over the same database for each."
            )

    def serve(self) -> None:
        """Begin to look after the conversations that have work, until `stop`."""
        self._serving.append(asyncio.ensure_future(self._serve()))

    def _make_room(self) -> None:
        """Look after more conversations if all that are held wait for sub-agents: nobody might have room for these."""
        if self._takes and len(self._serving) * self._slots <= sum(map(_waits_for_sub_agents, self._held.values())):
            self.serve()

    async def _serve(self) -> None:
        try:
            await self._store().jobs.serve(self.look_after, slots=self._slots, lease=self._lease)
        except StoreError as error:
            self._fault = error.sentence
            logger.error("This process looks after no more conversations: %s", error)

    async def drain(self, seconds: float) -> None:
        """Take no more conversations, and return when those that are held have come to rest, or after so many
        seconds."""
        if self._takes:
            for serving in self._serving:
                serving.cancel()  # once: it waits then until what it has begun has ended
        self._takes = False
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._held:
                    self._is_idle.clear()
                    await self._is_idle.wait()

    async def stop(self) -> None:
        """Look after nothing any more. What is not at rest is called for at once."""
        self._is_ending = True
        for held in self._held.values():
            held.moved.set()
        await self.drain(0.0)
        while self._held:
            self._is_idle.clear()
            await self._is_idle.wait()
        for task in self._resting:
            task.cancel()
        if waits := [*self._resting, *self._serving]:
            await asyncio.wait(waits)

    async def look_after(self, conversation_id: str) -> None:
        """Take the custody of a conversation, have it go on until it rests, and let go. Returns when that is done, or
        when another process has it. Raises `StoreError` if the engine closes while the store takes nothing; whoever
        has called is to call again then."""
        async with self._locks.setdefault(conversation_id, asyncio.Lock()):
            if not self._takes:
                await self._until_stored(partial(self._store().jobs.call, conversation_id))
            elif (held := await self._take(conversation_id)) is not None:
                self._held[conversation_id] = held
                try:
                    await self._hold(held)
                finally:
                    del self._held[conversation_id]
                    self._is_idle.set()

    async def _take(self, conversation_id: str) -> _Held | None:
        """Take the custody. The name of it is made once, so that an attempt whose answer was lost is not taken for
        another process."""
        holder, began = self._new_holder(), self._now()

        async def take() -> Taken | None:
            nonlocal began
            began = self._now()
            return await self._store().take(conversation_id, holder)

        taken = await self._until_stored(take)
        if taken is None:
            return None
        self._taken += 1
        self._taken_over += taken.was_left
        return _Held(taken, began)

    def _new_holder(self) -> str:
        return f"{self._name}/{uuid.uuid4().hex[:12]}"

    async def _hold(self, held: _Held) -> None:
        """Have a conversation go on that was taken, until it is let go."""
        fault: str | None = None
        try:
            loop = held.loop = await self._until_stored(
                partial(self._registry.get_loop_to_catch_up, held.conversation_id)
            )
            held.interest = loop.interest()
            await self._until_stored(partial(loop.between_events, partial(self._pick_up, held, loop)))
            if held.taken.was_left and held.is_performed:
                await self._until_stored(partial(self._recovery.go_on, loop))
            await self._drive(held, loop)
        except (UnknownConversation, EngineClosed):
            pass  # deleted, or the engine closes
        except TurnwiseError as error:
            fault = None if self._is_ending else error.sentence
        except Exception:
            logger.exception("The conversation %s cannot be looked after.", held.conversation_id)
            fault = "something broke inside the program that runs it"
        finally:
            await asyncio.shield(asyncio.ensure_future(self._give_up(held, fault)))

    async def _pick_up(self, held: _Held, loop: Loop) -> None:
        """Go on with what is in the outbox, and begin what nobody has begun. Between two events. May be done again when
        it has failed: nothing has begun then."""
        taken = held.taken
        await loop.catch_up_to(taken.seq)
        if taken.has_deliveries or loop.projection.seq > taken.seq:
            await self._drop_sending(held.conversation_id)
            await self._recovery.resume_outbox(loop)

        def begin() -> None:
            if held.phase is _Phase.TAKEN:
                held.phase = _Phase.PERFORMED

        await loop.begin(taken.seq if taken.was_left else 0, begin)
        self._registry.moved(held.conversation_id)

    async def _drive(self, held: _Held, loop: Loop) -> None:
        """Return when the conversation is at rest and was let go, when the custody is lost, or the loop or this process
        ends."""
        look = self._now().monotonic + LOOK
        while held.is_performed and not loop.has_ended and not self._is_ending:
            held.moved.clear()
            with storage_failures_passed_over():
                if self._rests(held, loop):
                    await self._let_go_once_sent(held, loop)
                else:
                    await self._wake(held, loop)
            if _waits_for_sub_agents(held):
                self._make_room()
            if not held.is_performed:
                return
            look = await self._until_moved(held, look)

    async def _until_moved(self, held: _Held, look: float) -> float:
        """Wait until the conversation has moved, or it is time to look whether something is due, and whether it is
        still held. Returns when to look next."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(look):
                await held.moved.wait()
                return look
        if not self._is_proven(held):  # what runs for long is stopped, too, once another process has it
            with storage_failures_passed_over():
                await self._prove(held)
        return self._now().monotonic + LOOK

    def _rests(self, held: _Held, loop: Loop) -> bool:
        until = self._clock.now() + SOON
        return loop.rests(until) and not self._is_to_wake(held, loop, until) and not self._sends(held, until)

    def _sends(self, held: _Held, until: datetime) -> bool:
        return any(queues.is_busy(held.conversation_id, until) for queues in self._queues)

    def _is_to_wake(self, held: _Held, loop: Loop, until: datetime) -> bool:
        wake, seq = loop.state.book.wake, loop.state.book.seq
        return wake is not None and wake <= until and held.refused_wake not in ((wake, seq), (wake, None))

    async def _wake(self, held: _Held, loop: Loop) -> None:
        """Have the conversation wake up if that is due. One that cannot take it now is asked again when it has moved,
        and one whose schedule cannot be read by a later custody: it does everything else."""
        if not self._is_to_wake(held, loop, self._clock.now()):
            return
        wake = loop.state.book.wake
        assert wake is not None, "the wake-up is due"
        try:
            if not await self._wake_ups.wake(held.conversation_id, wake):
                held.refused_wake = wake, loop.state.book.seq
        except (InvalidInput, ConfigurationError) as error:
            logger.warning("The conversation %s could not be woken: %s", held.conversation_id, error)
            held.refused_wake = wake, None

    # --- the end of a custody

    async def _let_go_once_sent(self, held: _Held, loop: Loop) -> None:
        """Let go once all that was said was tried on every channel. While that takes long, returns now and then: it
        never ends if the custody is lost."""
        seq = loop.projection.seq
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await loop.sent()
            await loop.between_events(partial(self._let_go_at_rest, held, loop, seq))

    async def _let_go_at_rest(self, held: _Held, loop: Loop, seq: int) -> None:
        """Let go if the conversation still rests at this step. Between two events."""
        if not held.is_performed or loop.projection.seq != seq or not self._rests(held, loop):
            return
        held.phase = _Phase.RESTED
        await self._stop(loop, answers=False)
        await self._let_go(held, at_rest=True)

    async def _give_up(self, held: _Held, fault: str | None) -> None:
        """Stop what still runs here, and let go."""
        loop, conversation_id = held.loop, held.conversation_id
        if held.phase is _Phase.TAKEN or held.is_performed:
            held.phase = _Phase.STOPPING
        sends = self._sends(held, self._clock.now() + SOON)
        self._recovery.drop(conversation_id)
        if loop is not None and held.phase is not _Phase.RESTED and held.phase is not _Phase.LET_GO:
            await self._stop(loop, answers=not (held.is_lost or fault))
        if fault is not None and not held.is_lost:
            self._leave_alone(held, fault)
        else:
            self._left_alone.pop(conversation_id, None)
            await self._until_let_go(held, loop, sends=sends)
        if loop is not None and not loop.has_ended:
            loop.let_go()
            self._registry.moved(conversation_id)

    async def _stop(self, loop: Loop, *, answers: bool) -> None:
        if loop.has_ended:
            await self._registry.until_closed(loop.conversation_id)
        else:
            await loop.stop(answers=answers)
        await self._drop_sending(loop.conversation_id)

    async def _drop_sending(self, conversation_id: str) -> None:
        """Send nothing more for the conversation here. What has not arrived is in the outbox."""
        for queues in self._queues:
            await queues.drop(conversation_id)

    async def _until_let_go(self, held: _Held, loop: Loop | None, *, sends: bool) -> None:
        """Tell the store that the custody is over, between two events, so that a step which is stored here before or
        behind it is one of a process with or without custody. While the engine ends it is told once. Raises
        `StorageFailed` if it could not be: then it is taken over as after a crash."""

        async def let_go() -> None:
            is_known = loop is not None and not loop.has_ended and not held.is_lost
            at_rest = held.phase is _Phase.RESTED or (
                is_known and loop is not None and not sends and self._rests(held, loop)
            )
            await self._let_go(held, at_rest=at_rest)

        try:
            if loop is None or loop.has_ended:
                await self._until_stored(let_go)
            else:
                await self._until_stored(partial(loop.between_events, let_go))
        except TurnwiseError as error:
            raise StorageFailed(f"A conversation could not be let go: {error}") from error

    async def _let_go(self, held: _Held, *, at_rest: bool) -> None:
        if not held.is_over:
            await self._store().let_go(held.taken, at_rest=at_rest)
            held.phase = _Phase.GONE if held.is_lost else _Phase.LET_GO

    def _leave_alone(self, held: _Held, fault: str) -> None:
        """Keep the custody of a conversation that cannot go on for a while, so that it is not called for at once
        again."""
        before = self._left_alone.get(held.conversation_id, FIRST_REST / 2)
        seconds = self._left_alone[held.conversation_id] = min(2 * before, LONGEST_REST)
        logger.warning(
            "The conversation %s cannot be looked after, and is tried again in %g s: %s",
            held.conversation_id,
            seconds,
            fault,
        )
        task = asyncio.ensure_future(self._let_go_later(held, seconds))
        self._resting.add(task)
        task.add_done_callback(self._resting.discard)

    async def _let_go_later(self, held: _Held, seconds: float) -> None:
        try:
            await self._clock.sleep_until(later(self._clock.now(), seconds))
        finally:
            with storage_failures_passed_over():
                await self._until_let_go(held, None, sends=True)

    @asynccontextmanager
    async def interrupted(self, conversation_id: str) -> AsyncIterator[None]:
        """While this lasts, no process carries out anything for the conversation. Then it is called for, if it is still
        there. Raises `StoreError`."""
        if (held := self._held.get(conversation_id)) is not None:
            self._interrupt(held, _Phase.GONE)  # the custody that begins now ends it
        async with self._locks.setdefault(conversation_id, asyncio.Lock()):
            taken = await self._store().take(conversation_id, self._new_holder())
            try:
                yield
            finally:
                if taken is not None:
                    await self._until_stored(partial(self._store().let_go, taken, at_rest=False))

    async def _until_stored(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what the attempt returns, made again for as long as the store takes nothing and the engine does not
        close."""
        return await until_stored(attempt, lambda: self._is_ending)


def _host() -> str:
    """Return the name of this machine, in a form that a line or a query can be made of."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:_LONGEST_HOST]


_LONGEST_HOST = 40


def once_confirmed(performers: Mapping[type[Effect], Performer], confirm: Admit) -> dict[type[Effect], Performer]:
    """Return the performers, each of which begins once the custody of its conversation is confirmed. A timer touches
    nothing outside, so it need not be."""
    return {kind: _once_confirmed(kind, perform, confirm) for kind, perform in performers.items()}


def _once_confirmed(kind: type[Effect], perform: Performer, confirm: Admit) -> Performer:
    if not issubclass(kind, AwaitedEffect | OutgoingEffect) or kind is StartTimer:
        return perform

    async def performed_once_confirmed(effect: Any, context: EffectContext) -> Answer | None:
        await confirm(context.conversation_id)
        return await perform(effect, context)

    if isinstance(perform, Sender):
        return _ConfirmingSender(perform, performed_once_confirmed)
    return with_abort_of(perform, performed_once_confirmed)


def _waits_for_sub_agents(held: _Held) -> bool:
    return held.loop is not None and isinstance(held.loop.state, AwaitingSubAgents)


async def _until_cancelled() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody sets this future")


class _ConfirmingSender:
    """A `Sender` that begins once the custody of its conversation is confirmed."""

    def __init__(self, sender: Sender, perform: Callable[[Any, EffectContext], Awaitable[Any]]) -> None:
        self.targets_of = sender.targets_of
        self._perform = perform

    async def __call__(self, effect: Any, context: EffectContext) -> None:
        await self._perform(effect, context)


class _ProvingLog:
    """A log, each append to which proves the custody of its conversation, if this process has that."""

    def __init__(self, log: Log, held: Callable[[], _Held | None], now: Callable[[], Moment]) -> None:
        self._log = log
        self._held = held
        self._now = now
        self.request = log.request
        self.catch_up = log.catch_up
        self.acknowledge = log.acknowledge
        self.postpone = log.postpone
        self.begin = log.begin

    @property
    def seq(self) -> int:
        """See `Log`."""
        return self._log.seq

    @property
    def chain(self) -> bytes:
        """See `Log`."""
        return self._log.chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """See `Log`. What counts is when the append began: the process may stand still before it hears of the end."""
        began, held = self._now(), self._held()
        await self._log.append(event, step, targets)
        if held is not None:
            held.proof = began


if TYPE_CHECKING:
    _FILLS: tuple[type[Custodian], type[Sender]] = (Custody, _ConfirmingSender)
