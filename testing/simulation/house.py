"""The house of a simulated conversation: a real engine over a store in memory, opened and closed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ...states.errors import EngineClosed
from ...states.events import Event
from ...states.policy import ModelSpec, Policy
from ...states.states import State
from ...states.step import Step
from .clock import VirtualClock
from .disk import Disk, Row
from .notebook import Notebook
from .store import MemoryStore
from .world import World

if TYPE_CHECKING:
    from ...engine.conversation import Conversation
    from ...engine.engine import Engine
    from ...engine.loop import Loop
    from ...persistence.store import Store


class House:
    """Opens engines of the type given, one after the other, over one disk, with one conversation in it.

    `times_closed` counts those that were closed; `opened_at` is the step at which the newest took up the conversation.
    """

    def __init__(self, engine: type[Engine], clock: VirtualClock, disk: Disk, world: World, notebook: Notebook) -> None:
        self.clock = clock
        self.disk = disk
        self.notebook = notebook
        self.times_closed = 0
        self.opened_at = 1
        self._type = engine
        self._world = world
        self._store = MemoryStore(disk)
        self._engine: Engine | None = None
        self._loop: Loop | None = None
        self._id = ""

    async def open(self, models: tuple[ModelSpec, ...], feed: int, *, create: Policy | None = None) -> None:
        """Open an engine with these models, and go on; or with `create` begin a conversation under these rules.

        `feed` is how many updates are kept for watchers.
        """
        from ...effects.channels.courier import Courier
        from ...engine.bootstrap import Models

        asked: dict[str, Any] = {model.name: model for model in models}  # never asked: `World` performs the requests
        self._world.begun.clear()
        engine = self._type(
            "memory", Models(asked, models), self._world.performers(), Courier((), self.clock), Policy(), self.clock
        )
        self._store = MemoryStore(self.disk)
        engine._store = cast("Store", self._store)
        if create is not None:
            self._id = (await engine.create(policy=create, system="You book tables.")).id
        self._loop = (await engine.get(self._id))._loop
        self.opened_at = self.stored.book.seq
        self._prepare(self._loop, feed)
        self._engine = engine

    async def close(self, *, by_crash: bool = False) -> None:
        """Close the engine, whatever it is doing. In a crash nothing more is stored, not even the step in hand."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self.times_closed += 1
            self.notebook.story.tell("host", "dies" if by_crash else "closes the engine")
            if by_crash:
                self._store.die()
            await engine.close()
            self.notebook.story.tell("host", "is gone" if by_crash else "has closed the engine")

    async def handle(self) -> Conversation:
        """A new handle on the conversation. Raises `EngineClosed`."""
        if self._engine is None:
            raise EngineClosed
        return await self._engine.get(self._id)

    @property
    def loop(self) -> Loop:
        """What drives the conversation, or did so until the engine was closed."""
        assert self._loop is not None, "the house was never opened"
        return self._loop

    @property
    def stored(self) -> State:
        """Where the conversation rests, as stored."""
        return self.disk.head(self._id)

    @property
    def rows(self) -> Sequence[Row]:
        """All steps, as stored."""
        return self.disk.rows[self._id]

    def post(self, answer: Event) -> None:
        """Drop an answer straight into the mailbox, as a performer's comes."""
        self.loop._mailbox.post(answer)

    def _prepare(self, loop: Loop, feed: int) -> None:
        """Note all requests at its door, and let its feed keep so many updates."""
        from ...engine.feed import Feed

        request = loop.request

        async def door(event: Event) -> Step:
            return await self.notebook.door(event, request(event))

        loop.request = door  # type: ignore[method-assign]
        if not loop.feed.closed:
            loop.feed = Feed(feed)
