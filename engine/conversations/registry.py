"""The conversations that an engine has in memory: each once, for as long as somebody needs it.

A loop lives while somebody holds a handle on it, while it waits for something, and for a while after it was last asked
for; then it is forgotten, and read from the store again when it is asked for.

Reading a conversation changes and reports nothing. Taking it over is another door: what an earlier process left in the
middle is reported to the machine, its timers run again, and its deliveries go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from ...states.errors import TurnwiseError, UnknownConversation
from ...states.events import Answer
from ...states.states import Closed
from ..loop import Loop
from ..projections.tree_feed import StreamingConversation

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
