"""The people of a simulation: they speak, answer, change their minds, and do it at the worst moments.

Each has a handle of its own, which may lie behind what happens. Whatever somebody does runs beside the rest: who sends
something may do something else before the answer is there, or never wait for it at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ...states.errors import EngineClosed
from ...states.events import Event
from ...states.states import Failed, Idle
from .engine_host import EngineHost
from .random_source import RandomSource
from .user_actions import MENU, Act, attend, retry, say, waits_for_person
from .watch_record import WatchRecord

if TYPE_CHECKING:
    from ...engine.conversation import Conversation


class SimulatedUser:
    """Somebody who uses the conversation."""

    def __init__(self, name: str, dice: RandomSource, house: EngineHost) -> None:
        self.name = name
        self.dice = dice
        self.house = house
        self.messages: list[str] = []
        """The ids of what was said."""
        self.sights: list[WatchRecord] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._handle: Conversation | None = None
        self._engine = 0
        self._ids = 0

    async def live(self, acts: int) -> None:
        """Do one thing after the other, or several at once."""
        for _ in range(acts):
            await asyncio.sleep(self.dice.seconds())
            task = self.begin(self._choose())
            if self.dice.chance(0.4):
                await asyncio.wait([task], timeout=self.dice.seconds())
            if self.dice.chance(0.04):
                task.cancel()

    def begin(self, act: Act) -> asyncio.Task[None]:
        """Do this beside everything else."""
        task = asyncio.ensure_future(self._do(act))
        self._tasks.append(task)
        return task

    @property
    def is_done(self) -> bool:
        """Whether all that this person did, but for watching, has come to an end."""
        return all(task.done() for task in self._tasks)

    def watch(self, handle: Conversation) -> None:
        """Watch beside everything else, from now or from where the last watch ended."""
        seen = [update.id for sight in self.sights for update in sight.updates if update.id is not None]
        sight = WatchRecord(self.name, seen[-1] if seen else None, self.house.times_closed)
        self.sights.append(sight)
        watching = sight.watch(handle, self.house, self.dice)
        self._watching.append(asyncio.ensure_future(self.call(f"watch after {sight.after}", watching)))

    async def call(self, what: str, calling: Coroutine[Any, Any, Any]) -> None:
        """Call something and note what comes of it."""
        await self.house.notebook.call(self.name, what, calling)

    async def dispatch(self, handle: Conversation, event: Event) -> None:
        """Hand over an event of one's own making."""
        await self.call(f"dispatch {event.type}", handle.dispatch(event))

    def new_request(self) -> dict[str, Any]:
        """The id of a request, and when it is made."""
        self._ids += 1
        return {"event_id": f"{self.name}-{self._ids}", "at": self.house.clock.now()}

    def _choose(self) -> Act:
        """What moves the conversation on, or else what anybody may do at any time."""
        state = self.house.stored
        if self.dice.chance(0.6):
            if waits_for_person(state):
                return attend
            if isinstance(state, Failed) and self.dice.chance(0.5):
                return retry
            if isinstance(state, Idle | Failed):
                return say
        return self.dice.weighted(MENU)

    async def _do(self, act: Act) -> None:
        try:
            handle = await self._hold()
        except EngineClosed:
            return  # there is nobody to do it with
        await act(self, handle)

    async def _hold(self) -> Conversation:
        """The handle, a new one where the engine is; most often with a look at where things stand."""
        if self._handle is None or self._engine != self.house.times_closed:
            self._handle, self._engine = await self.house.handle(), self.house.times_closed
        if self.dice.chance(0.8):
            _ = self._handle.state
        return self._handle
