"""The conversations that an engine has in memory: each once, for as long as somebody needs it.

A loop lives while somebody holds a handle on it, while it waits for something, and for a while after it was last asked
for; then it is forgotten, and read from the store again when it is asked for.

Conversations are created and deleted here as well, because nobody may ask for one meanwhile that is half of each. The
first step makes a conversation, and it is made once, however often it is asked for under one id. What is deleted goes
with the sub-agents that its turns have started: conversations whose ids are the keys of the effects that started them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from sys import intern
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..effects.context import EffectLinks, effect_of_key
from ..effects.files import PreparedFile
from ..persistence.errors import StorageFailed, StoreConflict, TracesLeft
from ..persistence.ports import Log, Store
from ..persistence.records import StoredEntry
from ..persistence.summaries import ConversationFilter, Details, Summary, summary_in_state
from ..states.context import Context
from ..states.errors import Refused, StoreError, TurnwiseError, UnknownConversation
from ..states.events import Answer, Opened
from ..states.machine import begin
from ..states.policy import Policy
from ..states.states import Busy, Closed, Failed
from ..states.step import LogEntry, Step
from ..states.values.turn import Owed, Waiting
from .loop import Loop, LoopServices
from .projection import ConversationHistory, ConversationProjection, ReadEntries, profile_of_last_turn
from .recovery import links_of
from .watching import StreamingConversation

logger: logging.Logger = logging.getLogger("turnwise.engine")

RECENT = 64
"""How many loops are kept although nobody holds them: a server asks for the same few conversations again and again."""


class ConversationRegistry:
    """Loops by the id of their conversation. Set `services`, which all of them share, before the first is asked for.

    `store` returns the open store, or raises `EngineClosed`. `note_loaded` is told of each conversation that is read.
    `resume` has one go on with what an earlier process left. `forget` forgets what is kept of one that was deleted, and
    tells the agents whose messages it had not read; it is given these, and the link of the newest step.
    """

    services: LoopServices

    def __init__(
        self,
        store: Callable[[], Store],
        *,
        note_loaded: Callable[[str, Context], None],
        resume: Callable[[Loop], Awaitable[None]],
        forget: Callable[[str, Sequence[Waiting | Owed], bytes], Awaitable[None]],
    ) -> None:
        self._store = store
        self._note_loaded = note_loaded
        self._resume = resume
        self._forget_deleted = forget
        self._contexts = SharedContexts()
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

    def find_in_memory(self, conversation_id: str) -> Loop | None:
        """Return the loop of this conversation if it is in memory."""
        return self._held(conversation_id)

    def is_loading(self, conversation_id: str) -> bool:
        """Whether this conversation is being read from the store."""
        return conversation_id in self._loading

    def loops(self) -> tuple[Loop, ...]:
        """Return the loops of all conversations that are in memory."""
        return tuple(self._loops.values())

    def followed(self) -> tuple[Loop, ...]:
        """Return the loops that wait for something, and those that somebody watches or waits for."""
        return tuple(loop for loop in self._loops.values() if loop.is_followed or loop.conversation_id in self._waiting)

    def streaming(self) -> Iterator[StreamingConversation]:
        """Yield the conversations whose models write answers at this moment."""
        for conversation_id, loop in self._waiting.items():
            tokens = tuple(loop.feed.streamed.tokens())
            yield StreamingConversation(conversation_id, loop.projection.context.owner, tokens)

    # --- reading and taking over

    async def get_loop(self, conversation_id: str) -> Loop:
        """Return the loop of this conversation, loaded if need be. Raises `UnknownConversation` and `StoreError`.

        Reading changes and reports nothing: nothing is taken over, unless the conversation was to be before and could
        not be, or its loop has failed since.
        """
        if conversation_id in self._due:
            return await self.take_over(conversation_id)
        return await self._get(conversation_id)

    async def get_loop_to_catch_up(self, conversation_id: str) -> Loop:
        """Return the loop of this conversation as `get_loop` does, but one that `is_behind` as it is: for who has it
        catch up next."""
        loop = self._loops.get(conversation_id)
        if loop is None:
            return await self.get_loop(conversation_id)
        self._note_use(loop)
        return loop

    async def find_loop(self, conversation_id: str) -> Loop | None:
        """Return the loop of this conversation, as `get_loop` does; None if there is no such conversation."""
        try:
            return await self.get_loop(conversation_id)
        except UnknownConversation:
            return None

    async def take_over(self, conversation_id: str) -> Loop:
        """Return the loop of this conversation, which goes on with what an earlier process left in the middle. If it
        cannot be loaded, it is taken over when it is asked for next. Raises what `get_loop` raises."""
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
            await self._resume(loop)
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
        _retrieve(task)

    async def _get(self, conversation_id: str) -> Loop:
        loop = self._loops.get(conversation_id)
        if loop is None:
            loop = await self._loaded(conversation_id)
        elif loop.is_behind:
            await _follow_announced(loop)
        self._note_use(loop)
        return loop

    def _note_use(self, loop: Loop) -> None:
        if loop in self._recent:
            self._recent.remove(loop)
        self._recent.append(loop)

    async def _loaded(self, conversation_id: str) -> Loop:
        """Load a conversation. Whoever asks for it meanwhile waits for the same load; others do not wait for it."""
        self._check_not_ended()
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
        store = self._store()
        loaded = await store.load(conversation_id)
        read, state = partial(store.entries, conversation_id), loaded.state
        last_profile = await profile_of_last_turn(state, loaded.context, read)
        context = self._contexts.shared(loaded.context)
        projection = ConversationProjection(state, context, read, last_profile=last_profile)
        loop = self._make_loop(conversation_id, projection, loaded.log, *await links_of(state, read))
        self._check_not_ended()
        self._note_loaded(conversation_id, loaded.context)
        return self._add(loop)

    def _make_loop(
        self,
        conversation_id: str,
        projection: ConversationProjection,
        log: Log,
        links: EffectLinks,
        newest: Sequence[StoredEntry] = (),
    ) -> Loop:
        history = ConversationHistory(projection, projection.read_entries)
        if (custody := self.services.custody) is not None:
            log = custody.proving_log(conversation_id, log)
        return Loop(conversation_id, projection, log, history, self.services, links, newest)

    def _has_loaded(self, conversation_id: str, loading: asyncio.Task[Loop]) -> None:
        del self._loading[conversation_id]
        if not loading.cancelled():
            loading.exception()  # retrieved here, in case that nobody waits any longer

    def _add(self, loop: Loop) -> Loop:
        """Take a loop in, and return it. It is kept for a while, as if it had been asked for. If the conversation has a
        loop already, because it was created and loaded at the same time, that one is kept and returned."""
        kept = self._loops.setdefault(loop.conversation_id, loop)
        self._note_use(kept)
        if not self._shows_updates:
            kept.feed.end_updates()
        return kept

    def _check_not_ended(self) -> None:
        """Raise why nothing is loaded any more: nobody would end what begins now."""
        if self._end is not None:
            raise self._end

    # --- creating and deleting

    def family(self, conversation_id: str) -> asyncio.Lock:
        """Return the lock that is held while a conversation is created under this id, or a sub-agent of it, and while
        the conversation is deleted with its sub-agents: none is created that the deletion does not find, and a new one
        under this id only when nothing of the old one is dropped any more."""
        return self._families.setdefault(conversation_id, asyncio.Lock())

    async def create(self, conversation_id: str, opened: Opened) -> Loop:
        """Create a conversation with this id and first event, and return its loop. If the id is taken, the conversation
        that has it is returned as it is.

        The caller has removed secrets from the event. Raises `UnknownConversation` if its parent was deleted,
        `StoreError`, and `EngineClosed`.
        """
        async with self.family(conversation_id):
            return await self.create_new(conversation_id, opened) or await self.get_loop(conversation_id)

    async def create_new(self, conversation_id: str, opened: Opened, files: Iterable[PreparedFile] = ()) -> Loop | None:
        """Create a conversation as `create` does, with the files of its history, for a caller that holds the lock of
        its `family`; None if the id is taken."""
        opened = opened.replace(nonce=uuid.uuid4().hex)
        step, store = begin(opened), self._store()
        for file in files:
            if file.data is not None:
                await store.files.keep(None, file.reference.sha256, file.data)
        try:
            log = await store.create(conversation_id, opened, step)
        except StoreConflict:
            return None
        self._check_not_ended()
        read = partial(store.entries, conversation_id)
        return self._add(self._created_loop(conversation_id, read, log, opened, step))

    def _created_loop(self, conversation_id: str, read: ReadEntries, log: Log, opened: Opened, step: Step) -> Loop:
        """Return the loop of a conversation whose first step was just stored."""
        if self.services.tree.is_watched:
            details = Details().after(opened)
            self.services.tree.open(summary_in_state(conversation_id, step.state, opened.at, details))
        context, entries = self._contexts.shared(Context().after(opened)), (LogEntry.of(opened, step),)
        projection = ConversationProjection(step.state, context, read, entries)
        return self._make_loop(conversation_id, projection, log, EffectLinks())

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. Its sub-agents go first, so that one whose deletion fails is found again. It starts
        none meanwhile; those that another engine has it start go last, and once it is gone the store takes none.

        A conversation that waits for sub-agents is not driven meanwhile: their end would have it go on. Its callers
        learn that it is gone once it is; if it cannot be deleted, they go on waiting. A caller of this method that is
        cancelled stops waiting. Raises `UnknownConversation` and `StoreError`; `TracesLeft`, which is one, once it is
        gone all the same.
        """
        traces: list[TracesLeft] = []
        task = asyncio.ensure_future(self._delete(conversation_id, traces))
        task.add_done_callback(_retrieve)
        await asyncio.shield(task)
        if traces:
            raise traces[-1]

    async def _delete(self, conversation_id: str, traces: list[TracesLeft]) -> None:
        async with self.family(conversation_id):
            await self._delete_family(conversation_id, traces)
        await self._delete_all(await children_of(self._store(), conversation_id), traces)

    async def _delete_family(self, conversation_id: str, traces: list[TracesLeft]) -> None:
        children = await children_of(self._store(), conversation_id)
        is_waiting = any(child.state != "closed" for child in children)
        if is_waiting and (custody := self.services.custody) is not None:
            async with custody.interrupted(conversation_id):
                await self._delete_all(children, traces)
                await self._delete_one(conversation_id, traces)
            return
        if is_waiting and (loop := self._held(conversation_id)) is not None:
            await loop.halt()
        try:
            await self._delete_all(children, traces)
            await self._delete_one(conversation_id, traces)
        except UnknownConversation as error:  # another engine has deleted it
            if is_waiting:
                await self._drop(conversation_id, error)
            raise
        except Exception:  # a store of the application may raise anything
            if is_waiting:
                await self.take_over(conversation_id)
            raise

    async def _delete_one(self, conversation_id: str, traces: list[TracesLeft]) -> None:
        unread, link = await self._unread(conversation_id)
        try:
            await self._store().delete(conversation_id)
        except TracesLeft as error:  # it is gone all the same
            traces.append(error)
        await self._drop(conversation_id, UnknownConversation(conversation_id))
        await self._forget_deleted(conversation_id, unread, link)

    async def _unread(self, conversation_id: str) -> tuple[Sequence[Waiting | Owed], bytes]:
        """Return the messages that wait or have yet to be passed on, and the link of the newest step; none if the
        conversation cannot be read: what is damaged can be deleted, too."""
        try:
            loaded = await self._store().load(conversation_id)
        except (StoreError, UnknownConversation):
            return (), b""
        state = loaded.state
        return (*state.book.owed, *(state.inbox if isinstance(state, Busy | Failed) else ())), loaded.log.chain

    async def _delete_all(self, conversations: Iterable[Summary], traces: list[TracesLeft]) -> None:
        for conversation in conversations:
            with suppress(UnknownConversation):  # somebody else has deleted it
                await self._delete(conversation.id, traces)

    async def drop_deleted(self, conversation_id: str) -> None:
        """Stop driving a conversation that another process has deleted, as `delete` does."""
        await self._drop(conversation_id, UnknownConversation(conversation_id))

    async def _drop(self, conversation_id: str, why: TurnwiseError) -> None:
        """Stop driving a conversation that is gone: nothing more of it is stored, or goes out. Whoever waits for it
        gets `why`."""
        self._due.discard(conversation_id)
        loops = [loop for loop in self._all() if loop.conversation_id == conversation_id]
        await self._close(loops, why, answers=False, deliver=False)

    # --- what loops say

    def moved(self, conversation_id: str) -> None:
        """Hold on to a loop while it waits for something. Called after every step."""
        loop = self._held(conversation_id)
        if loop is None:
            return
        state = loop.projection.state
        custody = self.services.custody
        if (state.in_flight() or state.ends_with_process) and (custody is None or custody.drives(conversation_id)):
            self._waiting[conversation_id] = loop
            return
        self._waiting.pop(conversation_id, None)
        loop.feed.forget_at_rest()
        loop.recent_requests.forget_at_rest()
        if isinstance(state, Closed):
            self._forget(loop)
            self._ended[loop] = None
            self._hold_until(loop, loop.sent())

    async def until_closed(self, conversation_id: str) -> None:
        """Return when the loops of this conversation that are being closed have ended."""
        if closing := [task for task, loop in self._closing.items() if loop.conversation_id == conversation_id]:
            await asyncio.wait(closing)

    def _held(self, conversation_id: str) -> Loop | None:
        # Those that wait are asked first: a dictionary of weak references calls Python to look something up.
        return self._waiting.get(conversation_id) or self._loops.get(conversation_id)

    def failed(self, conversation_id: str, why: TurnwiseError) -> None:
        """Close a loop that cannot go on; whoever asks for the conversation next gets what is stored, taken over."""
        loop = self._loops.get(conversation_id)
        if loop is not None:
            if not isinstance(why, UnknownConversation) and self.services.custody is None:
                self._due.add(conversation_id)
            self._forget(loop)
            self._hold_until(loop, loop.shut_down(why, answers=False))

    def answer(self, conversation_id: str, answer: Answer) -> bool:
        """Hand an answer to the loop of this conversation, also to one that is being closed. Returns whether there is
        one."""
        loop = self._held(conversation_id)
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
            loop.feed.end_updates()

    async def shut_down(self, why: TurnwiseError) -> None:
        """Stop driving all conversations. What still finishes is stored, and what was said in them goes out."""
        self.stop_loading(why)
        await self._close(self._all(), why)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _close(self, loops: list[Loop], why: TurnwiseError, **how: bool) -> None:
        for loop in loops:
            self._forget(loop)
        closing = [self._hold_until(loop, loop.shut_down(why, **how)) for loop in loops]
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


async def _follow_announced(loop: Loop) -> None:
    """Have a loop follow the steps of other processes that were heard of while nobody looked at it."""
    try:
        await loop.catch_up()
    except Refused as refused:
        raise StorageFailed(refused.sentence) from refused


_PAGE = 100
"""How many sub-agents are looked up at once: more than a conversation usually has."""


async def children_of(store: Store, conversation_id: str) -> tuple[Summary, ...]:
    """Return the sub-agents that this conversation has started, the first one first. A copy that somebody made of one
    has an id of its own and is left out. Raises `StoreError`."""
    found: dict[str, Summary] = {}
    before: str | None = None
    while page := await store.list(ConversationFilter(parent=conversation_id, limit=_PAGE, before=before)):
        found.update((summary.id, summary) for summary in page if effect_of_key(summary.id)[0] == conversation_id)
        before = page[-1].cursor
    return tuple(found[each] for each in sorted(found, key=lambda child_id: effect_of_key(child_id)[1]))


async def child_of(store: Store, parent_id: str, effect_id: int) -> str | None:
    """Return the id of the sub-agent that this effect has started, or None. Of several, the newest is that of the
    conversation that has the id of the parent now. Raises `StoreError`."""
    candidates = await store.ids(f"{parent_id}/{effect_id}")
    return next((each for each in reversed(candidates) if effect_of_key(each) == (parent_id, effect_id)), None)


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


def _retrieve(task: asyncio.Task[None]) -> None:
    """Take the error of a task that has ended: asyncio would report it if the caller was cancelled meanwhile."""
    if not task.cancelled():
        task.exception()


T = TypeVar("T")

KEPT = 16
"""How many policies, and how many contexts, are compared with a new one. Chosen so that the comparison takes some tens
of microseconds."""


def _kept(known: list[T], new: T) -> T:
    known.insert(0, new)
    del known[KEPT:]
    return new
