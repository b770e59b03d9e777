"""A host of the simulated conversation: it opens an engine, closes it, and opens the next one.

Everything goes in by the public doors of `Engine.open`. A process that dies goes on as a zombie until its engine is
closed: its store fails every call, its channels deliver nothing, and what it tells its callers does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...states.errors import EngineClosed, Refused, StoreError, UnknownConversation
from ...states.policy import ModelSpec
from .environment.event_trace import EventTrace
from .environment.random_source import RandomSource
from .storage.disk import Row
from .storage.storage import Process, Storage
from .world.channels import SimulatedChannel
from .world.performers import OpenEngine, OpensEngines

if TYPE_CHECKING:
    from ...effects.clock import Clock
    from ...engine.conversation import Conversation
    from ...engine.engine import Engine


class EngineHost:
    """Opens engines one after the other on the same store. `times_closed` counts those that were closed."""

    def __init__(
        self,
        name: str,
        chance: RandomSource,
        open_engine: OpenEngine,
        storage: Storage,
        world: OpensEngines,
        clock: Clock,
        trace: EventTrace,
        channels: Sequence[SimulatedChannel] = (),
    ) -> None:
        self.name = name
        self.times_closed = 0
        self.process: Process
        """The newest process."""
        self._chance = chance
        self._open_engine = open_engine
        self._storage = storage
        self._world = world
        self._clock = clock
        self._trace = trace
        self._channels = channels
        self._engine: Engine | None = None
        self._behind: list[str] = []
        """The conversations of which others have stored steps."""
        self._is_behind = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def open(self, models: Sequence[ModelSpec], kept_updates: int) -> None:
        """Open an engine with these models, which keeps so many updates for watchers."""
        from ...engine.settings import Settings

        process = self.process = await self._storage.open(f"{self.name}{self.times_closed + 1}")
        opening = self._world.open_engine(
            process,
            self._open_engine,
            models,
            store=process.store,
            channels=[channel.of(process) for channel in self._channels],
            clock=self._clock,
            settings=Settings(kept_updates=kept_updates),
        )
        self._trace.record("host", f"opens {process.name}")
        self._engine = await opening
        self._following = asyncio.ensure_future(self._follow(self._engine, process))

    @property
    def engine(self) -> Engine:
        """The engine that is open. Raises `EngineClosed`."""
        if self._engine is None:
            raise EngineClosed
        return self._engine

    async def create(self, **options: Any) -> str:
        """Create a conversation, as `Engine.create` does. Returns its id."""
        return (await self.engine.create(system="You book tables.", **options)).id

    async def handle(self, conversation_id: str) -> Conversation:
        """A new handle on a conversation. Raises `EngineClosed`."""
        return await self.engine.get(conversation_id)

    def answer(self, conversation_id: str, answer: Any) -> None:
        """Hand in the answer to an effect, as a performer in another process would. Raises `EngineClosed`."""
        self.engine.answer(conversation_id, answer)

    async def close(self, *, by_crash: bool = False) -> None:
        """Close the engine, whatever it is doing. In a crash the process dies first, between two statements."""
        if self._engine is None:
            return
        engine, self._engine = self._engine, None
        self._trace.record("host", f"{self.process.name} {'dies' if by_crash else 'is closed'}")
        if by_crash:
            await self._die()
        self.times_closed += 1
        if self._following is not None:
            self._following.cancel()
        await engine.close()
        await self.process.store.close()
        self._trace.record("host", f"{self.process.name} is gone")

    async def _die(self) -> None:
        self.process.die_after(self._chance.number(0, 4))
        if not self.process.is_dead:
            await asyncio.sleep(self._chance.pick((0.0, 0.02, 1.0)))
        self.process.die_after(0)

    # --- what others store

    def follow(self, conversation_id: str, row: Row) -> None:
        """Somebody has stored a step: if it was another process, this host's engine is to catch up."""
        if row.writer != self.process.name:
            if conversation_id not in self._behind:
                self._behind.append(conversation_id)
            self._is_behind.set()

    async def _follow(self, engine: Engine, process: Process) -> None:
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            await asyncio.sleep(self._chance.seconds())
            behind, self._behind = self._behind, []
            for conversation_id in behind:
                try:
                    await engine.refresh(conversation_id)
                except EngineClosed:
                    return
                except UnknownConversation:
                    continue  # deleted meanwhile
                except (Refused, StoreError):
                    if process.is_dead:
                        return
                    self._behind.append(conversation_id)
                    self._is_behind.set()
