"""Stores with one fault each, for simulations that must find it. Each wraps the store that an engine would use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from turnwise.persistence.errors import CustodyLost, StorageFailed, StoreConflict
from turnwise.persistence.ports import LoadedConversation, Log, Store
from turnwise.persistence.records import StoredEntry
from turnwise.states import Answer, Event, Opened, Refused, Request, Step


class WrappedLog:
    """A log that passes everything on; a fault overrides a method."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def seq(self) -> int:
        """The newest step."""
        return self.log.seq

    @property
    def chain(self) -> bytes:
        """The link of that step."""
        return self.log.chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step."""
        await self.log.append(event, step, targets)

    async def request(self, event_id: str) -> StoredEntry | None:
        """The step that took the request with this id."""
        return await self.log.request(event_id)

    async def catch_up(self) -> Any:
        """The steps that others have stored."""
        return await self.log.catch_up()

    def acknowledge(self, effect_id: int, target: str) -> None:
        """A delivery has arrived."""
        self.log.acknowledge(effect_id, target)

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """A delivery has failed."""
        self.log.postpone(effect_id, target, attempts, next_attempt)

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """An attempt at a delivery that an earlier process has left begins."""
        await self.log.begin(effect_id, target, begun)


class WrappedStore:
    """A store that passes everything on, and wraps each log; a fault overrides a method."""

    def __init__(self, store: Store, wrap: Callable[[Log], Log] = WrappedLog) -> None:
        self.store = store
        self.wrap = wrap

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def create(self, conversation_id: str, event: Opened, step: Step, **options: Any) -> Log:
        """Store a new conversation."""
        return self.wrap(await self.store.create(conversation_id, event, step, **options))

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation as it was left."""
        loaded = await self.store.load(conversation_id)
        return LoadedConversation(self.wrap(loaded.log), loaded.state, loaded.context)


# --- logs


class StoresLater(WrappedLog):
    """It reports a step as stored, and stores it afterwards."""

    storing: asyncio.Task[None] | None = None

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        if self.storing is not None:
            await asyncio.wait([self.storing])
        self.storing = asyncio.ensure_future(self.log.append(event, step, targets))
        self.storing.add_done_callback(lambda task: task.cancelled() or task.exception())


class DropsSteps(WrappedLog):
    """It stores nothing of every seventh step."""

    count = 0

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        self.count += 1
        if self.count % 7:
            await super().append(event, step, targets)


class StoresWithoutCustody(WrappedLog):
    """It goes on storing what was begun under a custody that is lost."""

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        try:
            await super().append(event, step, targets)
        except CustodyLost as lost:
            log: Any = self.log
            log.forget_custody()
            raise StoreConflict(lost.sentence) from lost


class HidesFailures(WrappedLog):
    """It reports a step as stored that the disk did not take."""

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        try:
            await super().append(event, step, targets)
        except StorageFailed:
            return


class RefusesAnswers(WrappedLog):
    """What keeps an answer from being stored is reported as if it would never pass."""

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        try:
            await super().append(event, step, targets)
        except StorageFailed:
            raise (Refused("storage") if isinstance(event, Answer) else StorageFailed("The disk is full.")) from None


class ReportsFailures(WrappedLog):
    """It reports a request as not stored that it stored."""

    count = 0

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        await super().append(event, step, targets)
        self.count += 1
        if isinstance(event, Request) and self.count % 3 == 0:
            raise StorageFailed("The disk is full.")


class ForgetsDeliveries(WrappedLog):
    """It stores a step without its deliveries."""

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        await super().append(event, step)


class ForgetsRequests(WrappedLog):
    """It knows of no request that was taken before."""

    async def request(self, event_id: str) -> StoredEntry | None:  # noqa: D102
        return None


class SeesNobodyElse(WrappedLog):
    """It does not show what others have stored."""

    async def catch_up(self) -> Any:  # noqa: D102
        await super().catch_up()
        return ()


class SkipsSteps(WrappedLog):
    """Of what others have stored it shows all but the first step."""

    async def catch_up(self) -> Any:  # noqa: D102
        return (await super().catch_up())[1:]


class OverwritesOthers(WrappedLog):
    """It does not report a conflict."""

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        try:
            await super().append(event, step, targets)
        except StoreConflict:
            return


class LosesReceipts(WrappedLog):
    """It does not note that a delivery has arrived."""

    def acknowledge(self, effect_id: int, target: str) -> None:  # noqa: D102
        pass


class KeepsTheNewestReceipt(WrappedLog):
    """Of two deliveries that arrived it notes the second."""

    waiting: tuple[int, str] | None = None

    def acknowledge(self, effect_id: int, target: str) -> None:  # noqa: D102
        if self.waiting is None:
            self.waiting = (effect_id, target)
        else:
            self.waiting = None
            super().acknowledge(effect_id, target)


# --- stores


class LeavesWorkBehind(WrappedStore):
    """It hands out no conversation that waits for work."""

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Nothing."""
        return ()


class HidesTheNewestStep(WrappedStore):
    """It reads all steps but the newest."""

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> Any:
        """The steps without the last one."""
        return (await self.store.entries(conversation_id, after, up_to))[:-1]


class ForgetsTheOutbox(WrappedStore):
    """It does not tell what an earlier process could not deliver."""

    async def outbox(self, conversation_ids: Iterable[str]) -> Any:
        """Nothing."""
        return ()


class ReadsTheOutboxBackwards(WrappedStore):
    """It lists what an earlier process left beginning with what was said last."""

    async def outbox(self, conversation_ids: Iterable[str]) -> Any:
        """The deliveries in the wrong order."""
        return (await self.store.outbox(conversation_ids))[::-1]
