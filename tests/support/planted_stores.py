"""Writers and couriers with one bug each, for simulations over a real file that must find it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from turnwise.effects.channels.attempt import attempt
from turnwise.effects.channels.delivery_dispatcher import DeliveryDispatcher, PendingDelivery
from turnwise.persistence.errors import StoreConflict
from turnwise.persistence.sqlite import recorder, transaction
from turnwise.persistence.sqlite.log_position import Append, LogPosition
from turnwise.persistence.sqlite.receipts import PendingReceipts, Receipt
from turnwise.persistence.sqlite.recorder import Advance
from turnwise.persistence.sqlite.writer import Writer


class AcknowledgesBeforeTheCommit(Writer):
    """It says that a step is stored, and stores it with the next one."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._later: list[tuple[Append, Advance]] = []

    def _commit(self, steps: list[tuple[Append, Advance]]) -> list[Exception | None]:
        now, self._later = self._later, steps
        super()._commit(now)
        return [None] * len(steps)


class DropsAStep(Writer):
    """Of a batch it stores all steps but the last."""

    def _commit_together(self, steps: list[Advance]) -> None:
        super()._commit_together(steps[: max(1, len(steps) - 1)])


class FailsTogether(Writer):
    """What keeps one step of a batch from being stored is said to all."""

    def _commit(self, steps: list[tuple[Append, Advance]]) -> list[Exception | None]:
        errors = super()._commit(steps)
        return [next(filter(None, errors), None)] * len(steps)


class RunsAhead(Writer):
    """It takes a step for stored, whatever becomes of it."""

    def _commit(self, steps: list[tuple[Append, Advance]]) -> list[Exception | None]:
        super()._commit(steps)
        return [None] * len(steps)


class WritesByHalves(Writer):
    """Its statements are no transaction."""

    def _commit_together(self, steps: list[Advance]) -> None:
        recorder.advance(self._driver, steps)
        self._receipts.write(self._driver)
        self._receipts.clear()


class BelievesTheDisk(Writer):
    """It does not look whether a step is stored whose commit is said to have failed."""

    def _commit_alone(self, position: LogPosition, step: Advance) -> Exception | None:
        try:
            with transaction.writing(self._driver):
                moved = recorder.advance(self._driver, [step])
        except Exception as error:
            return error
        return None if moved else StoreConflict("The conversation has moved on.")


class ForgetsWhatGoesOut(Writer):
    """It stores a step without its deliveries."""

    def _commit_together(self, steps: list[Advance]) -> None:
        super()._commit_together([step._replace(outgoing=()) for step in steps])


class LosesReceipts(Writer):
    """It forgets those that the disk did not take."""

    def _commit_together(self, steps: list[Advance]) -> None:
        try:
            super()._commit_together(steps)
        finally:
            self._receipts.clear()


class _One(PendingReceipts):
    """An arrival takes the place of whatever else waits to be stored."""

    def add(self, receipt: Receipt) -> None:
        if receipt.postponement is None:
            self.clear()
        super().add(receipt)


class KeepsOneReceipt(Writer):
    """Of the deliveries that arrived since the last commit it knows only the newest."""

    def __init__(self, name: str, monotonic: Callable[[], float]) -> None:
        super().__init__(name, monotonic)
        self._receipts = _One(monotonic)


class ForgetsWhatWasLeft(DeliveryDispatcher):
    """What an earlier process could not deliver stays where it is."""

    def resume(self, target: str, pending: PendingDelivery) -> None:  # noqa: D102
        pass


class TakesUpBackwards(DeliveryDispatcher):
    """What an earlier process left is delivered beginning with what was said last."""

    def resume(self, target: str, pending: PendingDelivery) -> None:  # noqa: D102
        super().resume(target, pending)
        self._queues[pending.delivery.conversation_id, target].rotate(1)


class DeliversOutOfOrder(DeliveryDispatcher):
    """What cannot be delivered makes room for what comes behind it."""

    async def _try_first(self, target: str, queue: deque[PendingDelivery]) -> None:
        await super()._try_first(target, queue)
        queue.rotate(-1)


class GivesUp(DeliveryDispatcher):
    """It tries once."""

    async def _try_first(self, target: str, queue: deque[PendingDelivery]) -> None:
        pending = queue.popleft()
        await attempt(self._channels[target], pending.delivery)
        pending.receipts.acknowledge(pending.effect_id, target)
        pending.tried.set()


class AcknowledgesFirst(DeliveryDispatcher):
    """It takes the receipt before it hands over."""

    async def submit(self, deliveries: Iterable[tuple[str, PendingDelivery]]) -> None:  # noqa: D102
        given = tuple(deliveries)
        for target, pending in given:
            pending.receipts.acknowledge(pending.effect_id, target)
        await super().submit(given)


WRITERS = (
    AcknowledgesBeforeTheCommit,
    DropsAStep,
    FailsTogether,
    RunsAhead,
    WritesByHalves,
    BelievesTheDisk,
    ForgetsWhatGoesOut,
    LosesReceipts,
    KeepsOneReceipt,
)
COURIERS = (ForgetsWhatWasLeft, TakesUpBackwards, DeliversOutOfOrder, GivesUp, AcknowledgesFirst)
