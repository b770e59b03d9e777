"""A user of the simulated conversation.

Each has a handle of its own, which may lie behind what happens. Whatever a user does runs beside the rest: a user who
sends something may do something else before the reply is there, or never wait for it at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....states.events import Event, Request
from ....states.states import State
from ...generation.vocabulary import Vocabulary
from ..engine_host import EngineHost
from ..environment.clock import VirtualClock
from ..environment.random_source import RandomSource
from ..storage.disk import Disk
from ..storage.storage import Process
from ..world.vocabulary import SIMULATED
from .call_recorder import Asked, Call, CallRecorder
from .watch_record import WatchRecord

if TYPE_CHECKING:
    from ....engine.conversation import Conversation


@dataclass(frozen=True)
class Handle:
    """A handle on the conversation, and the process in which it works."""

    conversation: Conversation
    process: Process


class SimulatedUser:
    """Somebody who uses one conversation on one host. `begin` and `watch` start what runs beside the rest."""

    def __init__(
        self,
        name: str,
        chance: RandomSource,
        host: EngineHost,
        disk: Disk,
        clock: VirtualClock,
        recorder: CallRecorder,
        conversation_id: str = "",
        vocabulary: Vocabulary = SIMULATED,
    ) -> None:
        self.name = name
        self.conversation_id = conversation_id
        self.vocabulary = vocabulary
        self.chance = chance
        self.host = host
        self.disk = disk
        self.recorder = recorder
        self.messages: list[str] = []
        """The ids of the messages that were sent."""
        self.watches: list[WatchRecord] = []
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._handle: Handle | None = None
        self._ids = 0

    @property
    def stored(self) -> State:
        """The state that the conversation rests in, as stored."""
        return self.disk.head(self.conversation_id)

    @property
    def is_done(self) -> bool:
        """Whether everything that this user did, apart from watching, has come to an end."""
        return all(task.done() for task in self._tasks)

    def begin(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do this beside everything else."""
        task = asyncio.ensure_future(doing)
        self._tasks.append(task)
        task.add_done_callback(self._report)
        return task

    def _report(self, task: asyncio.Task[None]) -> None:
        """Nothing that a user does may fail otherwise than by an error that is recorded."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.disk.trace.report_fault(f"{self.name} failed: {error!r}")

    def watch(self, handle: Handle, after: str | None) -> None:
        """Watch beside everything else, from now on or from the update `after` on."""
        record = WatchRecord(self.name, after, handle.process)
        self.watches.append(record)
        watching = record.watch(handle.conversation, self.disk, self.chance)
        self._watching.append(asyncio.ensure_future(self.call(handle, f"watch after {after}", watching)))

    async def call(
        self,
        handle: Handle,
        what: str,
        calling: Coroutine[Any, Any, Any],
        event: Event | None = None,
        request_id: str = "",
    ) -> None:
        """Make a call and record how it ends."""
        await self.recorder.record(Call(self.name, what, handle.process, event, request_id), calling)

    async def dispatch(self, handle: Handle, event: Event) -> None:
        """Hand over an event of one's own making."""
        request_id = event.event_id if isinstance(event, Request) else ""
        await self.call(handle, f"dispatch {event.type}", handle.conversation.dispatch(event), event, request_id)

    async def ask(
        self, handle: Handle, what: str, ask: Callable[[Conversation, str], Coroutine[Any, Any, Any]]
    ) -> None:
        """Ask for something under a new id."""
        asked = Asked(self.new_id(), what, ask)
        self.recorder.asked.append(asked)
        await self.ask_again(handle, asked)

    async def ask_again(self, handle: Handle, asked: Asked) -> None:
        """Ask for the same under the same id, by whatever handle."""
        asking = asked.ask(handle.conversation, asked.request_id)
        await self.call(handle, f"{asked.what} {asked.request_id}", asking, request_id=asked.request_id)

    def new_id(self) -> str:
        """The id of a new request."""
        self._ids += 1
        new_id = f"{self.name}-{self._ids}"
        self.recorder.ids.add(new_id)
        return new_id

    def new_request(self) -> dict[str, Any]:
        """The id of a new request, and when it is made."""
        return {"event_id": self.new_id(), "at": self._clock.now()}

    async def handle(self) -> Handle:
        """The handle, a new one if its engine was closed; most often after a look at the state.

        Raises `EngineClosed`.
        """
        process = self.host.process
        if self._handle is None or self._handle.process is not process:
            self._handle = Handle(await self.host.handle(self.conversation_id), process)
        if self.chance.probably(0.8):
            _ = self._handle.conversation.state
        return self._handle
