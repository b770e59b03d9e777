"""Other conversations in the same database, so that a writer has several steps to store at once.

They take nothing but new policies, and are written without an engine. Two writers may share a conversation: the one
that is behind reads it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....states.context import Context
from ....states.errors import StoreError
from ....states.events import Opened, PolicyChanged, Request
from ....states.machine import begin, transition
from ....states.policy import Policy
from ..environment.clock import VirtualClock
from ..environment.random_source import RandomSource
from ..storage.disk import Disk
from ..storage.storage import Process

if TYPE_CHECKING:
    from ....persistence.ports import Log
    from ....states.states import State
    from ..engine_host import EngineHost


class OtherConversation:
    """A writer of the conversation `conversation_id`."""

    def __init__(self, name: str, conversation_id: str, chance: RandomSource, clock: VirtualClock, disk: Disk) -> None:
        self.name = name
        self.conversation_id = conversation_id
        self._chance = chance
        self._clock = clock
        self._disk = disk
        self._count = 0
        self._appended: str | None = None
        """The id of the step that was appended last in this attempt, None before the first."""
        self._process: Process
        self._log: Log | None = None
        self._state: State

    async def create(self, process: Process) -> None:
        """Create the conversation."""
        opened = Opened(event_id=f"{self.conversation_id} opened", at=self._clock.now(), policy=Policy())
        await process.store.create(self.conversation_id, opened, begin(opened))

    async def write(self, host: EngineHost, attempts: int) -> None:
        """Try so often to store some steps, through the newest process of the host."""
        for _ in range(attempts):
            await asyncio.sleep(self._chance.pick((0.0, self._chance.seconds())))
            try:
                await self._store_steps(host.process, self._chance.number(1, 3))
            except StoreError:
                self._log = None
                self._check_refusal()

    async def _store_steps(self, process: Process, steps: int) -> None:
        """Go on from where the conversation stands, as far as that is known."""
        self._appended = None
        log = await self._read(process)
        for _ in range(steps):
            self._count += 1
            event = PolicyChanged(event_id=f"{self.name}-{self._count}", at=self._clock.now(), policy=Policy())
            step = transition(self._state, event, Context())
            self._appended = event.event_id
            await log.append(event, step)
            self._state = step.state

    async def _read(self, process: Process) -> Log:
        if self._log is None or self._process is not process:
            self._process = process
            loaded = await process.store.load(self.conversation_id)
            self._log, self._state = loaded.log, loaded.state
        return self._log

    def _check_refusal(self) -> None:
        """What is reported as not stored is not stored; what a dead process reports does not count."""
        rows = self._disk.rows[self.conversation_id]
        stored = {row.event.event_id for row in rows if isinstance(row.event, Request)}
        if self._appended in stored and not self._process.is_dead:
            self._disk.trace.report_fault(f"{self._appended} is reported as not stored, and is stored")
