"""Recovery: what an earlier process, or another engine, has left in the middle, and how it goes on.

Reading a conversation changes and reports nothing. Taking it over is another door: what was left is reported to the
machine, its timers run again, and its deliveries go on. The state says which effects were not answered; nothing is
guessed. The machine decides what follows from the reports: it asks again for what may be asked for again, and runs a
tool again or not, by its crash contract. Taking over only reports and enqueues; the loops carry out what follows.

The store says which conversations wait, and hands out each of them once. Several engines may share one open store. One
that closes hands over to another what it has left in the middle, so that a turn goes on there, and whoever waits for
it. And one asks before it delivers whether another has yet to deliver what was said earlier.

What became of a call in doubt may also be said by whoever looks after a database. Nothing is carried out then; the
program that the conversation belongs to goes on from there when it opens the database next.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ..effects.context import EffectLinks
from ..effects.retry_queues import Left, Resumable
from ..persistence.ports import Store
from ..persistence.records import StoredEntry
from ..states.effects import TOOL_RUNS, AwaitedEffect, ControlEffect, Effect, OutgoingEffect
from ..states.errors import (
    NOTHING_WAITS,
    EngineClosed,
    InvalidInput,
    Refused,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)
from ..states.events import DoubtResolved, Event, Report, Resolution, Resumed, ToolInterrupted, ToolReconciled
from ..states.machine import transition
from ..states.states import AwaitingUserResponse, Cancelling, InDoubt, InRound, InTurn, State, pending
from ..states.step import LogEntry, Step
from ..states.values.messages import ToolCall
from ..states.values.round import Round
from .models import BlockedTurns
from .outbox import take_over_outbox
from .projection import read_call
from .requests import make

if TYPE_CHECKING:
    from ..persistence.ports import LoadedConversation
    from ..persistence.records import Undelivered
    from .agents.sub_agents import Orphans
    from .loop import Loop
    from .projection import ReadEntries
    from .registry import ConversationRegistry

logger: logging.Logger = logging.getLogger("turnwise.engine")

BATCH = 64
"""How many conversations are taken over at once when an engine opens: enough to keep a disk busy, few enough that the
first of them need not wait for all."""

_SHARING: dict[int, list[Recovery]] = {}
"""The recoveries of the engines that share a store, by the `id` of the store, which they hold."""


class Recovery:
    """Has the conversations of one engine go on that were left in the middle.

    `resumers` go on with what is in their outbox, each with one type of effect. `orphans` ends a sub-agent for which
    nobody waits. `blocked` are turns that have to wait for their model.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        registry: ConversationRegistry,
        resumers: Mapping[type[Effect], Resumable],
        orphans: Orphans,
        blocked: BlockedTurns,
    ) -> None:
        self._store = store
        self._registry = registry
        self._resumers = resumers
        self._orphans = orphans
        self._blocked = blocked
        self._later: dict[str, asyncio.Task[None]] = {}
        """What takes conversations over once their models can be asked, by their ids."""
        self._undelivered: dict[str, list[Undelivered]] = {}
        self.claimed: set[str] = set()
        """The conversations that the store handed out, to be released when the engine has closed."""
        self._shared: tuple[Store, asyncio.AbstractEventLoop] | None = None

    async def take_over_all(self) -> None:
        """Take over all conversations that wait, a batch at a time. When this returns, calls in doubt are listed so."""
        store = self._store()
        # A store that hands out a conversation twice must not make its tools run twice.
        while claimed := [each for each in dict.fromkeys(await self._claim(store)) if each not in self.claimed]:
            self.claimed.update(claimed)
            for one in await store.outbox(claimed):
                self._undelivered.setdefault(one.conversation_id, []).append(one)
            await asyncio.gather(*map(self._take_over, claimed))

    async def _claim(self, store: Store) -> Sequence[str]:
        """Return the next batch, or nothing more once the engine closes."""
        return () if self._registry.has_ended else await store.claim(BATCH)

    async def _take_over(self, conversation_id: str) -> None:
        try:
            loop = await self._registry.take_over(conversation_id)
            await loop.handled()
        except (EngineClosed, UnknownConversation):
            pass  # closed or deleted meanwhile
        except StoreError as error:
            logger.warning("The conversation %s cannot be taken over: %s", conversation_id, error)

    async def resume(self, loop: Loop) -> None:
        """Have the conversation of this loop go on: first with what it said and wrote, then with what it did."""
        conversation_id = loop.conversation_id
        undelivered = _each_once(self._undelivered.get(conversation_id, []))
        read = partial(self._store().entries, conversation_id)
        await take_over_outbox(undelivered, read, loop.effect_context(), self._resumers)
        self._undelivered.pop(conversation_id, None)
        await self._go_on_once_askable(loop)

    async def _go_on_once_askable(self, loop: Loop) -> None:
        conversation_id, context = loop.conversation_id, loop.projection.context
        is_busy = bool(loop.state.in_flight()) or isinstance(loop.state, InTurn)
        if is_busy and await self._blocked.must_wait(conversation_id, context, loop.state):
            self.drop(conversation_id)
            self._later[conversation_id] = asyncio.ensure_future(self._resume_when_askable(loop))
        else:
            await self._go_on(loop)

    async def _go_on(self, loop: Loop) -> None:
        await self._orphans.end(loop)
        await loop.take_over()

    async def _resume_when_askable(self, loop: Loop) -> None:
        """Have the conversation go on once its model can be asked, unless its turn was cancelled meanwhile: each
        take-over counts as a try, so it is not taken over before."""
        left = known_effects(loop.state)

        def is_left() -> bool:
            return not loop.has_ended and known_effects(loop.state) == left

        await self._blocked.until_askable(loop.conversation_id, loop.projection.context, loop.state, is_left)
        try:
            if is_left():
                await self._go_on(loop)
        except TurnwiseError as error:
            logger.warning("The conversation %s cannot be taken over: %s", loop.conversation_id, error)

    # --- where several processes share the store

    async def resume_outbox(self, loop: Loop) -> None:
        """Go on with what is in the outbox of a conversation that this process has taken, up to the newest step that
        its loop knows. Raises `StorageFailed`."""
        undelivered = await self._store().outbox([loop.conversation_id])
        known = (one for one in undelivered if one.seq <= loop.projection.seq)
        read = partial(self._store().entries, loop.conversation_id)
        await take_over_outbox(known, read, loop.effect_context(), self._resumers)

    async def go_on(self, loop: Loop) -> None:
        """Have a conversation go on that this process has taken, although another one had not let go of it. Raises
        `StorageFailed`."""
        await self._orphans.end_children(loop)
        await self._go_on_once_askable(loop)

    def drop(self, conversation_id: str) -> None:
        """Do not take this conversation over later: it was deleted, or is taken over again."""
        if (task := self._later.pop(conversation_id, None)) is not None:
            task.cancel()

    async def stop(self) -> None:
        """Take nothing more over."""
        for task in (tasks := list(self._later.values())):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- engines that share a store

    def join(self, store: Store) -> None:
        """Take over what the other engines over this open store leave, from now on until `leave`."""
        self._shared = store, asyncio.get_running_loop()
        _SHARING.setdefault(id(store), []).append(self)

    def leave(self) -> None:
        """Take nothing more over from other engines."""
        if self._shared is not None:
            key, self._shared = id(self._shared[0]), None
            _SHARING[key].remove(self)
            if not _SHARING[key]:
                del _SHARING[key]

    def _others(self) -> list[Recovery]:
        """Return those that share the store, in this event loop."""
        if self._shared is None:
            return []
        store, loop = self._shared
        return [one for one in _SHARING[id(store)] if one is not self and one._drives_in(loop)]

    def _drives_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._shared is not None and self._shared[1] is loop and not self._registry.has_ended

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
        store, _ = self._shared
        held = {one for one in conversation_ids if self._registry.holds(one)}
        self.claimed.update(conversation_ids)
        for one in await store.outbox(conversation_ids):
            if one.conversation_id not in held or (one.conversation_id, one.effect_id, one.target) in left:
                self._undelivered.setdefault(one.conversation_id, []).append(one)
        for conversation_id in held:
            with suppress(TurnwiseError):  # it is followed at the next step
                await (await self._registry.get_loop(conversation_id)).catch_up()
        await asyncio.gather(*map(self._take_over, conversation_ids))


def _each_once(undelivered: list[Undelivered]) -> Iterator[Undelivered]:
    """Yield what is left, and take each off once it is dealt with: taking over may fail, and is tried again then."""
    while undelivered:
        yield undelivered[0]
        del undelivered[0]


def reports(state: State, at: datetime, left: frozenset[int], *, holds_call: bool = False) -> tuple[Report, ...]:
    """Return the reports about what is in flight in this state and was `left`, in order; none if nothing was.
    `holds_call` says that the call which waits for a person does so here. `Pure.`

    Calls that must not run twice come first. Nothing is tried again for them, so a process that ends before it has
    reported the rest does not count as a failed attempt, and a person is asked about them however often that happens.
    A call that was waiting for the answer of a person is lost with its process, and nothing else is in flight then but
    the deadline, which ends with the question.
    """
    if isinstance(state, AwaitingUserResponse) and state.suspends:
        return () if holds_call else (ToolInterrupted(at=at, call_id=state.call.call_id),)
    in_flight = {effect_id: kind for effect_id, kind in state.in_flight().items() if effect_id in left}
    if not isinstance(state, InRound):
        return _resumed(in_flight.keys(), at)
    running = [effect_id for effect_id, kind in in_flight.items() if kind in TOOL_RUNS]
    interrupted = {
        effect_id: ToolInterrupted(at=at, call_id=state.round.call(effect_id).call_id) for effect_id in running
    }
    first = frozenset() if isinstance(state, Cancelling) else _never_again(state.round) & interrupted.keys()
    rest = [report for effect_id, report in interrupted.items() if effect_id not in first]
    doubts = [report for effect_id, report in interrupted.items() if effect_id in first]
    return (*doubts, *_resumed(in_flight.keys() - first, at), *rest)


def _resumed(open_: Set[int], at: datetime) -> tuple[Report, ...]:
    return (Resumed(at=at, open=tuple(sorted(open_))),) if open_ else ()


def _never_again(round_: Round) -> frozenset[int]:
    """Return the effects whose calls must not run twice."""
    return frozenset(one.effect_id for one in round_.running if round_.must_not_run_twice(round_.named(one.call_id)))


def known_effects(state: State) -> frozenset[int]:
    """Return the effects that were asked for and may be carried out, or asked for again: those in flight, and those as
    which the calls that run were first started. `Pure.`"""
    running = state.round.running if isinstance(state, InRound | AwaitingUserResponse) else ()
    return pending(state) | {one.first_id for one in running}


_FIRST_BLOCK = 8
"""How many steps are read at first to find those that asked for what is in flight: they are nearly always the newest.
Each further block is four times as long."""


async def links_of(state: State, read_entries: ReadEntries) -> tuple[EffectLinks, Sequence[StoredEntry]]:
    """Return the links of the steps that first asked for the effects which this state waits for, and the newest steps,
    if any were read. They are read from the end of the log, no further than to the oldest of them. Raises
    `StoreError`."""
    wanted, found = set(known_effects(state)), dict[int, bytes]()
    newest: Sequence[StoredEntry] = ()
    last, block = state.book.seq, _FIRST_BLOCK
    while wanted and last > 0:
        entries = await read_entries(max(last - block, 0), last)
        for entry in reversed(entries):
            wanted -= _note_asked(entry, wanted, found)
        newest = newest or entries
        last, block = last - block, block * 4
    return EffectLinks(sorted(found.items())), newest


async def effects_in_flight(
    state: State, newest: Sequence[StoredEntry], read_entries: ReadEntries, after: int
) -> tuple[tuple[int, Sequence[Effect]], ...]:
    """Return what this state waits for and steps behind `after` have asked for last, as the log has it, with what was
    to stop it since: the effects of each such step with its number, in order. `newest` are the steps up to this state
    that need not be read. Raises `StoreError`."""
    missing, found = set(pending(state)), list[tuple[int, Sequence[Effect]]]()
    entries: Sequence[StoredEntry] = newest if newest and newest[-1].seq == state.book.seq else ()
    before, block = entries[0].seq - 1 if entries else state.book.seq, _FIRST_BLOCK
    while True:
        for entry in reversed(entries):
            wanted = [one for one in entry.effects if _effect_of(one) in missing] if entry.seq > after else []
            missing.difference_update(one.effect_id for one in wanted if isinstance(one, AwaitedEffect))
            found += [(entry.seq, wanted)] if wanted else []
        if not missing or before <= after:
            return tuple(reversed(found))
        last, before = before, max(before - block, after)
        entries, block = await read_entries(before, last), block * 4


def _effect_of(effect: Effect) -> int | None:
    """Return the id of the effect that is to be carried out, awaited by a state, or to be stopped."""
    return effect.effect_id if isinstance(effect, AwaitedEffect | ControlEffect) else None


_REPEATING = (Resumed, ToolInterrupted, ToolReconciled)
"""The events by which an effect that an earlier step asked for is asked for again."""


def _note_asked(entry: StoredEntry, wanted: Set[int], found: dict[int, bytes]) -> set[int]:
    """Note the link of a step for the effects that it asks for. Returns the effects for which no earlier step did."""
    asked = asked_for(entry)
    found.update((effect_id, entry.chain) for effect_id in wanted & asked)
    if not asked or isinstance(entry.event, _REPEATING):
        return set()
    return {effect_id for effect_id in wanted if effect_id >= min(asked)}


def asked_for(entry: LogEntry) -> set[int]:
    """Return the ids of the effects that a step asks for, for the first time or again. `Pure.`"""
    return {effect.effect_id for effect in entry.effects if isinstance(effect, AwaitedEffect | OutgoingEffect)}


# --- calls in doubt, settled without an engine


async def calls_in_doubt(store: Store, conversation_id: str, at: datetime) -> tuple[ToolCall, ...]:
    """Return the calls of which nobody knows whether they ran, also those that no program has reported yet. Stores
    nothing. Raises `UnknownConversation`."""
    state, _ = _recover(await store.load(conversation_id), at)
    read = partial(store.entries, conversation_id)
    return tuple([await read_call(read, state.round.named(call_id)) for call_id in _doubtful(state)])  # type: ignore[attr-defined]


async def resolve(store: Store, conversation_id: str, call_id: str | None, verdict: Resolution, at: datetime) -> State:
    """Store what became of a call in doubt, and return where the conversation rests then. Without a `call_id` it is
    the one that has been in doubt for longest.

    Raises `UnknownConversation`; `Refused` with `wrong_state` unless this call is in doubt; `InvalidInput` where the
    turn would end and something would be delivered, which only the program can do that the conversation belongs to.
    """
    loaded = await store.load(conversation_id)
    state, steps = _recover(loaded, at)
    doubtful = _doubtful(state)
    if not doubtful or call_id not in (None, *doubtful):
        raise Refused("wrong_state", sentence=NOTHING_WAITS["doubt_resolved"])
    event_id = f"resolved-{uuid.uuid4()}"
    resolved = make(DoubtResolved, event_id=event_id, at=at, call_id=call_id or doubtful[0], verdict=verdict)
    steps.append((resolved, transition(state, resolved, loaded.context)))
    if any(isinstance(effect, OutgoingEffect) for _, step in steps for effect in step.effects):
        raise InvalidInput("This ends a turn that has something to deliver; resolve it where the conversation runs.")
    for event, step in steps:
        await loaded.log.append(event, step)
    return steps[-1][1].state


def _recover(loaded: LoadedConversation, at: datetime) -> tuple[State, list[tuple[Event, Step]]]:
    """Return where the conversation rests once what was in flight is reported, and the steps to there, which are not
    stored."""
    state = loaded.state
    steps: list[tuple[Event, Step]] = []
    for report in reports(loaded.state, at, pending(loaded.state)):
        step = transition(state, report, loaded.context)
        if not step.ignored:
            state = step.state
            steps.append((report, step))
    return state, steps


def _doubtful(state: State) -> tuple[str, ...]:
    return state.round.doubtful if isinstance(state, InDoubt) else ()
