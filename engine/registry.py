"""The conversations that an engine has in memory: each once, for as long as somebody needs it.

A loop lives while somebody holds a handle on it, while it waits for something, and for a while after it was last asked
for; then it is forgotten, and read from the store again when it is asked for.

Reading a conversation changes and reports nothing. Taking it over is another door: what an earlier process left in the
middle is reported to the machine, its timers run again, and its deliveries go on. The store says which conversations
wait, and hands out each of them once. Taking over only reports and enqueues; the loops carry out what follows.

Several engines may share one open store. One that closes hands over to another what it has left in the middle, so that
a turn goes on there, and whoever waits for it. And one asks before it delivers whether another has yet to deliver what
was said earlier.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime
from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..effects.channels.port import TurnEndListener
from ..effects.context import EffectLinks
from ..effects.retry_queues import Left, Resumable
from ..persistence.errors import StoreConflict, TracesLeft
from ..persistence.ports import LoadedConversation, Log, Store
from ..persistence.records import StoredEntry
from ..persistence.summaries import Details, summary_in_state
from ..states.context import Context
from ..states.effects import Effect
from ..states.errors import EngineClosed, Refused, StoreError, TurnwiseError, UnknownConversation
from ..states.events import Answer, Event, Opened
from ..states.machine import begin
from ..states.policy import Policy
from ..states.states import Busy, Closed, Failed, InTurn, State
from ..states.step import LogEntry, Step
from ..states.values.turn import Owed, Waiting
from .agents.children import children_of
from .choices import Choices, ChosenOpening, log_repairs, opening_of, owner_for
from .lifetime import Lifetime
from .loop import Loop, LoopServices, known_effects, links_of
from .models import WaitingTurns
from .outbox import take_over_outbox
from .projection import ConversationHistory, ConversationProjection, ReadEntries, profile_of_last_turn
from .redactor import EventRedactor
from .requests import checked_new_id
from .watching import StreamingConversation

if TYPE_CHECKING:
    from ..persistence.records import Undelivered
    from ..persistence.summaries import Summary

logger = logging.getLogger("turnwise.engine")

RECENT = 64
"""How many loops are kept although nobody holds them: a server asks for the same few conversations again and again."""


class ConversationRegistry:
    """Loops by the id of their conversation. `load` makes one from the store, and `take_over` has one go on with what
    an earlier process left."""

    def __init__(self, load: Callable[[str], Awaitable[Loop]], take_over: Callable[[Loop], Awaitable[None]]) -> None:
        self._load = load
        self._take_over = take_over
        self._loading: dict[str, asyncio.Task[Loop]] = {}
        self._loops: WeakValueDictionary[str, Loop] = WeakValueDictionary()
        self._waiting: dict[str, Loop] = {}
        self._due: set[str] = set()
        """Conversations to be taken over as soon as they are asked for."""
        self._taking_over: set[asyncio.Task[None]] = set()
        self._end: TurnwiseError | None = None
        self._closing: dict[asyncio.Task[None], Loop] = {}
        self._recent: deque[Loop] = deque(maxlen=RECENT)
        self._ended: WeakKeyDictionary[Loop, None] = WeakKeyDictionary()
        """The loops of closed conversations that somebody still holds, in the order in which they closed: they answer
        until the engine closes."""
        self._shows_updates = True
        self._families: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._loops)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The ids of the conversations that wait for a model, a tool, a timer or the like."""
        return tuple(self._waiting)

    def holds(self, conversation_id: str) -> bool:
        """Whether this conversation is in memory."""
        return conversation_id in self._loops

    def streaming(self) -> Iterator[StreamingConversation]:
        """Yield the conversations whose models write answers at this moment."""
        for conversation_id, loop in self._waiting.items():
            tokens = tuple(loop.feed.streamed.tokens())
            yield StreamingConversation(conversation_id, loop.projection.context.owner, tokens)

    # --- two doors

    async def read(self, conversation_id: str) -> Loop:
        """Return the loop of this conversation, loaded if need be. Raises what `load` raises.

        Nothing is taken over, unless the conversation was to be before and could not be, or its loop has failed since.
        """
        if conversation_id in self._due:
            return await self.take_over(conversation_id)
        return await self._get(conversation_id)

    async def take_over(self, conversation_id: str) -> Loop:
        """Return the loop of this conversation, which goes on with what an earlier process left in the middle. If it
        cannot be loaded, it is taken over when it is asked for next. Raises what `load` raises."""
        self._due.add(conversation_id)
        loop = await self._get(conversation_id)
        if conversation_id in self._due:
            # Before the rest: what is taken over may ask for conversations that ask for this one.
            self._due.discard(conversation_id)
            await self._until_done(self._go_on(loop))
        return loop

    async def _go_on(self, loop: Loop) -> None:
        """Take the conversation over; if that fails, it is tried again when the conversation is asked for next."""
        try:
            await self._take_over(loop)
        except BaseException:
            self._due.add(loop.conversation_id)
            raise
        self.moved(loop.conversation_id)

    async def _until_done(self, taking_over: Coroutine[Any, Any, None]) -> None:
        """Wait for this, which goes on although its caller is cancelled: nobody else would do it."""
        task = asyncio.ensure_future(taking_over)
        self._taking_over.add(task)
        task.add_done_callback(self._has_taken_over)
        await asyncio.shield(task)

    def _has_taken_over(self, task: asyncio.Task[None]) -> None:
        self._taking_over.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, in case that nobody waits any longer

    async def _get(self, conversation_id: str) -> Loop:
        loop = self._loops.get(conversation_id)
        if loop is None:
            loop = await self._loaded(conversation_id)
        self._note_use(loop)
        return loop

    def _note_use(self, loop: Loop) -> None:
        if loop in self._recent:
            self._recent.remove(loop)
        self._recent.append(loop)

    async def _loaded(self, conversation_id: str) -> Loop:
        """Load a conversation. Whoever asks for it meanwhile waits for the same load; others do not wait for it."""
        if self._end is not None:
            raise self._end
        loading = self._loading.get(conversation_id)
        if loading is None:
            loading = asyncio.ensure_future(self._load_and_add(conversation_id))
            self._loading[conversation_id] = loading
            loading.add_done_callback(lambda done: self._has_loaded(conversation_id, done))
        try:
            return await asyncio.shield(loading)
        except asyncio.CancelledError:
            if self._end is not None and loading.cancelled():
                raise self._end from None
            raise

    async def _load_and_add(self, conversation_id: str) -> Loop:
        return self.add(await self._load(conversation_id))

    def _has_loaded(self, conversation_id: str, loading: asyncio.Task[Loop]) -> None:
        del self._loading[conversation_id]
        if not loading.cancelled():
            loading.exception()  # retrieved here, in case that nobody waits any longer

    def add(self, loop: Loop) -> Loop:
        """Take a loop in, and return it. It is kept for a while, as if it had been asked for. If the conversation has a
        loop already, because it was created and loaded at the same time, that one is kept and returned."""
        kept = self._loops.setdefault(loop.conversation_id, loop)
        self._note_use(kept)
        if not self._shows_updates:
            kept.feed.close()
        return kept

    # --- what loops say

    def moved(self, conversation_id: str) -> None:
        """Hold on to a loop while it waits for something. Called after every step."""
        loop = self._loop_of(conversation_id)
        if loop is None:
            return
        state = loop.projection.state
        if state.in_flight() or state.ends_with_process:
            self._waiting[conversation_id] = loop
            return
        self._waiting.pop(conversation_id, None)
        loop.feed.rest()
        loop.recent_requests.rest()
        if isinstance(state, Closed):
            self._forget(loop)
            self._ended[loop] = None
            self._hold_until(loop, loop.sent())

    def _loop_of(self, conversation_id: str) -> Loop | None:
        # Those that wait are asked first: a dictionary of weak references calls Python to look something up.
        return self._waiting.get(conversation_id) or self._loops.get(conversation_id)

    def failed(self, conversation_id: str, why: TurnwiseError) -> None:
        """Close a loop that cannot go on; whoever asks for the conversation next gets what is stored, taken over."""
        loop = self._loops.get(conversation_id)
        if loop is not None:
            if not isinstance(why, UnknownConversation):
                self._due.add(conversation_id)
            self._forget(loop)
            self._hold_until(loop, loop.close(why, answers=False))

    def answer(self, conversation_id: str, answer: Answer) -> bool:
        """Hand an answer to the loop of this conversation, also to one that is being closed. Returns whether there is
        one."""
        loop = self._loop_of(conversation_id)
        if loop is None and self._closing:
            closing = (loop for loop in self._closing.values() if loop.conversation_id == conversation_id)
            loop = next(closing, None)
        if loop is not None:
            loop.answer(answer)
        return loop is not None

    # --- the end

    @property
    def has_ended(self) -> bool:
        """Whether nothing is loaded any more."""
        return self._end is not None

    def stop_loading(self, why: TurnwiseError) -> None:
        """Load nothing more. Whoever waits for a conversation to be loaded, or asks for one later, gets `why`."""
        self._end = why
        for task in (*self._loading.values(), *self._taking_over):
            task.cancel()

    def stop_updates(self) -> None:
        """End what shows the updates of conversations, also of those that are loaded later."""
        self._shows_updates = False
        for loop in self._all():
            loop.feed.close()

    def family(self, conversation_id: str) -> asyncio.Lock:
        """Return the lock that is held while a conversation is created under this id, or a sub-agent of it, and while
        the conversation is deleted with its sub-agents: none is created that the deletion does not find, and a new one
        under this id only when nothing of the old one is dropped any more."""
        return self._families.setdefault(conversation_id, asyncio.Lock())

    async def halt(self, conversation_id: str) -> None:
        """Stop driving a conversation until it is taken over or dropped. Whoever waits for it goes on waiting."""
        if (loop := self._loop_of(conversation_id)) is not None:
            await loop.halt()

    async def drop(self, conversation_id: str, why: TurnwiseError) -> None:
        """Stop driving a conversation that is gone: nothing more of it is stored, or goes out. Whoever waits for it
        gets `why`."""
        self._due.discard(conversation_id)
        loops = [loop for loop in self._all() if loop.conversation_id == conversation_id]
        await self._close(loops, why, answers=False, deliver=False)

    async def close(self, why: TurnwiseError) -> None:
        """Stop driving all conversations. What still finishes is stored, and what was said in them goes out."""
        self.stop_loading(why)
        await self._close(self._all(), why)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _close(self, loops: list[Loop], why: TurnwiseError, **how: bool) -> None:
        for loop in loops:
            self._forget(loop)
        closing = [self._hold_until(loop, loop.close(why, **how)) for loop in loops]
        await asyncio.gather(*closing)

    def _all(self) -> list[Loop]:
        return list(dict.fromkeys([*self._loops.values(), *self._closing.values(), *self._ended]))

    def _hold_until(self, loop: Loop, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Hold on to a loop that is forgotten until it has ended."""
        task = asyncio.ensure_future(ending)
        self._closing[task] = loop
        task.add_done_callback(self._closing.pop)
        return task

    def _forget(self, loop: Loop) -> None:
        if self._loops.get(loop.conversation_id) is loop:
            del self._loops[loop.conversation_id]
        self._waiting.pop(loop.conversation_id, None)
        if loop in self._recent:
            self._recent.remove(loop)


class Creation:
    """Creates conversations in the store of an engine. `policy` holds the rules of conversations that choose none.
    `note_wake` is called with the first wake-up of each conversation that has a schedule.

    An application's conversation has a new id, unless the application gives it one, so that it can ask again where it
    has received no answer. One that another conversation starts has an id that follows from the effect that starts it.
    Both are created once, however often they are asked for.
    """

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


class LoopFactory:
    """Makes loops that share the services of their engine."""

    def __init__(self, services: LoopServices) -> None:
        self._services = services
        self._contexts = SharedContexts()

    def created(self, store: Store, conversation_id: str, log: Log, opened: Opened, step: Step) -> Loop:
        """Return the loop of a conversation whose first step was just stored."""
        read = _StoredEntries(store, conversation_id)
        entries = (LogEntry.of(opened, step),)
        if self._services.tree.is_watched:
            details = Details().after(opened)
            self._services.tree.open(summary_in_state(conversation_id, step.state, opened.at, details))
        projection = ConversationProjection(step.state, self._contexts.shared(Context().after(opened)), read, entries)
        return self._loop(conversation_id, projection, log, read, EffectLinks())

    async def loaded(self, store: Store, conversation_id: str, loaded: LoadedConversation) -> Loop:
        """Return the loop of a conversation whose head was read from the store. Raises `StoreError`."""
        read = _StoredEntries(store, conversation_id)
        last_profile = await profile_of_last_turn(loaded.state, loaded.context, read)
        context = self._contexts.shared(loaded.context)
        projection = ConversationProjection(loaded.state, context, read, last_profile=last_profile)
        return self._loop(conversation_id, projection, loaded.log, read, await links_of(loaded.state, read))

    def _loop(
        self,
        conversation_id: str,
        projection: ConversationProjection,
        log: Log,
        read: ReadEntries,
        links: EffectLinks,
    ) -> Loop:
        return Loop(conversation_id, projection, log, ConversationHistory(projection, read), self._services, links)


class _StoredEntries:
    """Reads the entries of one log: a `ReadEntries`."""

    __slots__ = ("_conversation_id", "_store")

    def __init__(self, store: Store, conversation_id: str) -> None:
        self._store = store
        self._conversation_id = conversation_id

    async def __call__(self, after: int = 0, up_to: int | None = None) -> Sequence[StoredEntry]:
        """Read the entries that follow the step `after`, up to and including the step `up_to`."""
        return await self._store.entries(self._conversation_id, after, up_to)


class SharedContexts:
    """The contexts and policies that were used last.

    A policy takes many times the memory of everything else that a resting conversation needs, and most conversations of
    an engine have one of a few. Each of them reads or makes its own; here equal ones become one object.
    """

    def __init__(self) -> None:
        self._contexts: list[Context] = []
        self._policies: list[Policy] = []

    def shared(self, context: Context) -> Context:
        """Return an equal context, which shares what it can with those of other conversations."""
        rules = {"policy": self._shared_policy(context.policy), "system": intern(context.system)}
        lean = context.replace(**rules)
        return next((known for known in self._contexts if known == lean), None) or _kept(self._contexts, lean)

    def _shared_policy(self, policy: Policy) -> Policy:
        for known in self._policies:
            # Which fields were given decides which of them a change of the rules keeps.
            if known.model_fields_set == policy.model_fields_set and known == policy:
                return known
        return _kept(self._policies, policy)


T = TypeVar("T")

KEPT = 16
"""How many policies, and how many contexts, are compared with a new one. Chosen so that the comparison takes some tens
of microseconds."""


def _kept(known: list[T], new: T) -> T:
    known.insert(0, new)
    del known[KEPT:]
    return new


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


Forget = Callable[[str], Awaitable[None]]
"""Forgets whatever is kept of a conversation that is gone."""

_ReturnMail = Callable[[str, Sequence[Waiting | Owed], bytes], Awaitable[None]]
"""Tells the agents whose messages waited in a conversation that is gone, or had yet to be passed on. It is given the
link of the newest step, too. Must not raise."""


class Deletion:
    """Deletes conversations from a store. `forget` is called for each, then `return_mail`.

    With a conversation go the sub-agents that its turns have started.
    """

    def __init__(self, store: Store, registry: ConversationRegistry, forget: Forget, return_mail: _ReturnMail) -> None:
        self._store = store
        self._registry = registry
        self._forget = forget
        self._return_mail = return_mail
        self._traces: TracesLeft | None = None

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. Its sub-agents go first, so that one whose deletion fails is found again. It starts
        none meanwhile; those that another engine has it start go last, and once it is gone the store takes none.

        A conversation that waits for sub-agents is not driven meanwhile: their end would have it go on. Its callers
        learn that it is gone once it is; if it cannot be deleted, they go on waiting. A caller of this method that is
        cancelled stops waiting. Raises `UnknownConversation` and `StoreError`.
        """
        await asyncio.shield(asyncio.ensure_future(self._delete(conversation_id)))
        if self._traces is not None:
            raise self._traces

    async def _delete(self, conversation_id: str) -> None:
        async with self._registry.family(conversation_id):
            await self._delete_family(conversation_id)
        await self._delete_all(await children_of(self._store, conversation_id))

    async def _delete_family(self, conversation_id: str) -> None:
        children = await children_of(self._store, conversation_id)
        is_waiting = any(child.state != "closed" for child in children)
        if is_waiting:
            await self._registry.halt(conversation_id)
        try:
            await self._delete_all(children)
            await self._delete_one(conversation_id)
        except UnknownConversation as error:  # another engine has deleted it
            if is_waiting:
                await self._registry.drop(conversation_id, error)
            raise
        except Exception:  # a store of the application may raise anything
            if is_waiting:
                await self._registry.take_over(conversation_id)
            raise

    async def _delete_one(self, conversation_id: str) -> None:
        unread, link = await self._unread(conversation_id)
        try:
            await self._store.delete(conversation_id)
        except TracesLeft as error:  # it is gone all the same
            self._traces = error
        await self._registry.drop(conversation_id, UnknownConversation(conversation_id))
        await self._forget(conversation_id)
        await self._return_mail(conversation_id, unread, link)

    async def _unread(self, conversation_id: str) -> tuple[Sequence[Waiting | Owed], bytes]:
        """Return the messages that wait or have yet to be passed on, and the link of the newest step; none if the
        conversation cannot be read: what is damaged can be deleted, too."""
        try:
            loaded = await self._store.load(conversation_id)
        except (StoreError, UnknownConversation):
            return (), b""
        state = loaded.state
        return (*state.book.owed, *(state.inbox if isinstance(state, Busy | Failed) else ())), loaded.log.chain

    async def _delete_all(self, conversations: Iterable[Summary]) -> None:
        for conversation in conversations:
            with suppress(UnknownConversation):  # somebody else has deleted it
                await self._delete(conversation.id)


channels_logger = logging.getLogger("turnwise.channels")


class TurnEnds:
    """Observes the steps of an engine, and tells each of the `channels` that is a `TurnEndListener` how turns end.

    A channel alone cannot know whether more will be said in a turn. One that speaks needs to, because an assistant
    begins to listen again when everything was spoken.
    """

    def __init__(self, channels: Iterable[object]) -> None:
        self._listeners = [channel for channel in channels if isinstance(channel, TurnEndListener)]

    def __bool__(self) -> bool:
        """Whether any channel listens."""
        return bool(self._listeners)

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """Tell the channels if the turn ended. Every error of a channel is logged."""
        if step.ended is None:
            return
        for listener in self._listeners:
            try:
                listener.turn_ended(conversation_id, step.ended)
            except BaseException:  # nothing here waits, so it is the channel's own, and must not end the event loop
                channels_logger.warning("A channel failed at the end of a turn.", exc_info=True)


if TYPE_CHECKING:
    from .ports import Observer

    _FILLS: type[Observer] = TurnEnds
