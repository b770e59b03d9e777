"""The conversations that an engine has in memory: each once, for as long as somebody needs it.

A loop lives while somebody holds a handle on it, while it waits for something, and for a while after it was asked for
last; then it is forgotten, and read from the store again when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

from ..states.errors import TurnwiseError
from ..states.events import Answer
from ..states.states import Closed, pending
from .loop import Loop

RECENT = 64
"""How many loops are kept although nobody holds them: a server asks for the same few conversations again and again,
and reading one costs as much as it is long. Ours."""


class ConversationRegistry:
    """Loops by the id of their conversation; `load` makes one from the store."""

    def __init__(self, load: Callable[[str], Awaitable[Loop]]) -> None:
        self._load = load
        self._loading = asyncio.Lock()
        self._loops: WeakValueDictionary[str, Loop] = WeakValueDictionary()
        self._waiting: set[Loop] = set()
        self._parting: dict[asyncio.Task[None], Loop] = {}
        self._ending: dict[str, Loop] = {}
        self._recent: deque[Loop] = deque(maxlen=RECENT)

    def __len__(self) -> int:
        return len(self._loops)

    async def get(self, conversation_id: str) -> Loop:
        """The loop of this conversation, loaded if need be. Raises what `load` raises."""
        async with self._loading:
            loop = self._loops.get(conversation_id)
            if loop is None:
                loop = await self._load(conversation_id)
                self.add(loop)
            elif loop in self._recent:
                self._recent.remove(loop)
            self._recent.append(loop)
            return loop

    def answer(self, conversation_id: str, answer: Answer) -> None:
        """Hand an answer to the loop of this conversation, also to one that is being closed."""
        loop = self._ending.get(conversation_id) or self._loops.get(conversation_id)
        if loop is not None:
            loop.answer(answer)

    def add(self, loop: Loop) -> None:
        """Take a loop in, and let it go on."""
        self._loops[loop.conversation_id] = loop
        loop.wake()

    def keep(self, loop: Loop) -> None:
        """Hold on to a loop while it waits for something. To be called after every step."""
        if self._loops.get(loop.conversation_id) is not loop:
            return
        if pending(loop.state):
            self._waiting.add(loop)
        else:
            self._waiting.discard(loop)
        if isinstance(loop.state, Closed):
            self._part_with(loop, loop.sent())

    def lose(self, loop: Loop, why: TurnwiseError) -> None:
        """Let go of a loop that cannot go on; who asks for the conversation next gets what is stored."""
        self._part_with(loop, loop.close(why, keeps=False))

    async def drop(self, conversation_id: str, why: TurnwiseError) -> None:
        """Stop driving a conversation that is gone: nothing more of it is stored, or goes out. Whoever waits for it
        gets `why`."""
        loops = {loop for loop in self._all() if loop.conversation_id == conversation_id}
        await asyncio.gather(*(self._end(loop, why, keeps=False, sends=False) for loop in loops))

    def _all(self) -> set[Loop]:
        return {*self._loops.values(), *self._parting.values()}

    def _part_with(self, loop: Loop, parting: Coroutine[Any, Any, None]) -> None:
        """Let go of a loop, but hold on to it until its `parting` is over: what was said in it still goes out."""
        self._forget(loop)
        task = asyncio.ensure_future(parting)
        self._parting[task] = loop
        task.add_done_callback(self._parting.pop)

    def _forget(self, loop: Loop) -> None:
        if self._loops.get(loop.conversation_id) is loop:
            del self._loops[loop.conversation_id]
        self._waiting.discard(loop)
        if loop in self._recent:
            self._recent.remove(loop)

    async def close(self, why: TurnwiseError) -> None:
        """Stop driving all conversations. What still finishes is stored, and what was said in them goes out."""
        await asyncio.gather(*(self._end(loop, why) for loop in self._all()))
        while self._parting:
            await asyncio.wait(self._parting)

    async def _end(self, loop: Loop, why: TurnwiseError, **how: bool) -> None:
        self._forget(loop)
        self._ending[loop.conversation_id] = loop
        await loop.close(why, **how)
        self._ending.pop(loop.conversation_id, None)
