"""The conversations that an engine has in memory: each once, for as long as somebody needs it.

A loop lives while somebody holds a handle on it, while it waits for something, and for a while after it was asked for
last; then it is forgotten, and read from the store again when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from ..states.errors import TurnwiseError
from ..states.states import Closed, pending
from .loop import Loop

RECENT = 64
"""How many loops are kept although nobody holds them: a server asks for the same few conversations again and again,
and reading one costs as much as it is long. Ours."""


class Loops:
    """Loops by the id of their conversation; `load` makes one from the store."""

    def __init__(self, load: Callable[[str], Awaitable[Loop]]) -> None:
        self._load = load
        self._loading = asyncio.Lock()
        self._loops: WeakValueDictionary[str, Loop] = WeakValueDictionary()
        self._waiting: set[Loop] = set()
        self._ending: set[asyncio.Task[None]] = set()
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
            self._forget(loop)

    def lose(self, loop: Loop, why: TurnwiseError) -> None:
        """Let go of a loop that cannot go on; who asks for the conversation next gets what is stored."""
        self._forget(loop)
        ending = asyncio.ensure_future(loop.close(why))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def drop(self, conversation_id: str, why: TurnwiseError, *, at_once: bool = True) -> None:
        """Stop driving this conversation; whoever waits for it gets `why`. Nothing more of it goes out, unless not all
        is to happen `at_once`."""
        loop = self._loops.get(conversation_id)
        if loop is not None:
            self._forget(loop)
            await loop.close(why, at_once=at_once)

    def _forget(self, loop: Loop) -> None:
        self._loops.pop(loop.conversation_id, None)
        self._waiting.discard(loop)
        if loop in self._recent:
            self._recent.remove(loop)

    async def sent(self) -> None:
        """Return when all that was said so far has been tried on every channel."""
        await asyncio.gather(*(loop.sent() for loop in list(self._loops.values())))

    async def close(self, why: TurnwiseError, *, at_once: bool = False) -> None:
        """Stop driving all conversations. What was said in them goes out first, unless all is to happen `at_once`."""
        dropping = (self.drop(conversation_id, why, at_once=at_once) for conversation_id in list(self._loops))
        await asyncio.gather(*dropping, *self._ending)
