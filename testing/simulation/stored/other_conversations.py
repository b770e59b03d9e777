"""Other conversations in the same database, so that a writer has several steps to store at once.

They are told nothing but new rules, and write to the store without an engine. Two of them may share a conversation: the
one that is outrun reads it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....states.context import Context
from ....states.errors import StoreError
from ....states.events import Opened, PolicyChanged, Request
from ....states.machine import begin, transition
from ....states.policy.policy import Policy
from ..engine_host import EngineHost
from ..random_source import RandomSource
from .driver import Fate
from .file import FileStorage

if TYPE_CHECKING:
    from ....persistence.ports import Log
    from ....states.states import State


class OtherConversation:
    """Somebody who writes to the conversation `home`."""

    def __init__(self, name: str, home: str, dice: RandomSource, house: EngineHost, storage: FileStorage) -> None:
        self.name = name
        self.home = home
        self._dice = dice
        self._house = house
        self._storage = storage
        self._count = 0
        self._in_hand: str | None = None
        """The id of the step that was handed in last in this attempt, None before the first."""
        self._written_to: object = None
        self._process: Fate
        self._log: Log | None = None
        self._state: State

    async def move_in(self) -> None:
        """Make the conversation."""
        from ....persistence.sqlite.store import SqliteStore

        store = self._house.store
        assert isinstance(store, SqliteStore)
        opened = Opened(event_id=f"{self.home} opened", at=self._house.clock.now(), policy=Policy())
        await store.create(self.home, opened, begin(opened))

    async def live(self, steps: int) -> None:
        """Write so often, as well as that goes."""
        for _ in range(steps):
            await asyncio.sleep(self._dice.pick((0.0, self._dice.seconds())))
            try:
                await self._write(self._dice.number(1, 3))
            except StoreError:
                self._log = None
                self._check_refusal()

    async def _write(self, steps: int) -> None:
        """Go on from where the conversation stands, as far as that is known."""
        self._in_hand = None
        log = await self._read()
        for _ in range(steps if log is not None else 0):
            self._count += 1
            event = PolicyChanged(event_id=f"{self.name}-{self._count}", at=self._house.clock.now(), policy=Policy())
            step = transition(self._state, event, Context())
            assert log is not None
            self._in_hand = event.event_id
            await log.append(event, step)
            self._state = step.state

    async def _read(self) -> Log | None:
        from ....persistence.sqlite.store import SqliteStore

        store = self._house.store
        if isinstance(store, SqliteStore) and (self._log is None or self._written_to is not store):
            process = self._storage.fate
            loaded = await store.load(self.home)
            self._written_to, self._process, self._log, self._state = store, process, loaded.log, loaded.state
        return self._log

    def _check_refusal(self) -> None:
        """What was said not to be stored is not stored; what a dead process says does not count."""
        stored = {row.event.event_id for row in self._storage.disk.rows[self.home] if isinstance(row.event, Request)}
        if self._in_hand in stored and not self._process.is_dead:
            self._storage.disk.story.blame(f"{self._in_hand} was said not to be stored, and is")
