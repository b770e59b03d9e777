"""The points at which a process can die: around each commit, each call to the outside world, and each delivery.

Between two of these nothing happens that another process could see, so to die there is to die at one of them. The
points are found by wrapping the ports of every engine that the process opens.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ...states.effects import Effect
from ...states.events import Event, Opened, Request
from ...states.step import Step
from .journal import Journal

if TYPE_CHECKING:
    from ...effects.channels.port import Channel, Delivery
    from ...effects.context import EffectContext
    from ...effects.dispatcher import Performer, Sender
    from ...persistence.ports import LoadedConversation, Log, Store


@dataclass(frozen=True)
class Boundary:
    """The `number`-th boundary that a process reaches, counted from 1, and what it is."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"boundary {self.number}, {self.name}"


class Boundaries:
    """Counts the boundaries of this process and writes them into the journal. At number `dies_at` it dies."""

    def __init__(self, journal: Journal, dies_at: int | None) -> None:
        self.journal = journal
        self._dies_at = dies_at
        self._reached = 0

    def reach(self, name: str) -> None:
        """Reach a boundary, and perhaps die there."""
        self._reached += 1
        self.journal.add("boundary", name)
        if self._reached == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def observed(journal: Journal, dies_at: int | None = None) -> Iterator[None]:
    """While this holds, every engine that is opened reaches boundaries, and what it does outside is written down."""
    from ...effects.dispatcher import Sender, with_abort_of
    from ...engine.composition import PortWrappers, wrapped_ports

    boundaries = Boundaries(journal, dies_at)

    def observed_performer(one: Performer) -> Performer:
        if isinstance(one, Sender):
            return _ObservedSender(one, boundaries)
        return with_abort_of(one, _ObservedPerformer(one, boundaries))

    def performers(given: Mapping[type[Effect], Performer]) -> Mapping[type[Effect], Performer]:
        return {kind: observed_performer(one) for kind, one in given.items()}

    def channels(given: tuple[Channel, ...]) -> Iterable[Channel]:
        return [_ObservedChannel(channel, boundaries) for channel in given]

    def store(given: Store) -> Store:
        return cast("Store", _ObservedStore(given, boundaries))

    with wrapped_ports(PortWrappers(store=store, performers=performers, channels=channels)):
        yield


class _ObservedStore:
    """A store whose logs reach boundaries."""

    def __init__(self, store: Store, boundaries: Boundaries) -> None:
        self._store = store
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        log = await self._store.create(conversation_id, event, step)
        return self._observed(log, conversation_id)

    async def load(self, conversation_id: str) -> LoadedConversation:
        from ...persistence.ports import LoadedConversation

        loaded = await self._store.load(conversation_id)
        return LoadedConversation(self._observed(loaded.log, conversation_id), loaded.state, loaded.context)

    def _observed(self, log: Log, conversation_id: str) -> Log:
        needs_no_task = getattr(type(log), "NEEDS_NO_TASK", False)
        kind = _ObservedLogWithoutTask if needs_no_task else _ObservedLog
        return cast("Log", kind(log, conversation_id, self._boundaries))


class _ObservedLog:
    """A log that reaches a boundary before and after each commit."""

    def __init__(self, log: Log, conversation_id: str, boundaries: Boundaries) -> None:
        self._log = log
        self._conversation_id = conversation_id
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        self._boundaries.reach(f"before {event.type} is stored")
        await self._log.append(event, step, targets)
        if isinstance(event, Request):
            self._boundaries.journal.add("taken", self._conversation_id, event.event_id)
        self._boundaries.reach(f"after {event.type} is stored")


class _ObservedLogWithoutTask(_ObservedLog):
    """The same for a log that needs no task of its own."""

    NEEDS_NO_TASK = True


class _ObservedPerformer:
    """A performer that reaches a boundary before it begins and after it has ended."""

    def __init__(self, performer: Performer, boundaries: Boundaries) -> None:
        self._performer = performer
        self._boundaries = boundaries

    async def __call__(self, effect: Any, context: EffectContext) -> Any:
        self._boundaries.reach(f"before {effect.type} is begun")
        self._boundaries.journal.add("begun", context.conversation_id, effect.effect_id)
        answer = await self._performer(effect, context)
        self._boundaries.reach(f"after {effect.type} is done")
        return answer


class _ObservedSender(_ObservedPerformer):
    """The same for an effect that stands in the outbox."""

    def __init__(self, sender: Sender, boundaries: Boundaries) -> None:
        super().__init__(sender, boundaries)
        self._sender = sender

    def targets_of(self, effect: Any) -> Sequence[str]:
        return self._sender.targets_of(effect)


class _ObservedChannel:
    """A channel that reaches a boundary before and after each attempt to deliver."""

    def __init__(self, channel: Channel, boundaries: Boundaries) -> None:
        self.name = channel.name
        self._channel = channel
        self._boundaries = boundaries

    async def deliver(self, delivery: Delivery) -> None:
        self._boundaries.reach("before a delivery")
        try:
            delivering: Any = self._channel.deliver(delivery)
            if inspect.isawaitable(delivering):
                await delivering
            from ...effects.context import effect_of_key

            _, effect_id = effect_of_key(delivery.key)
            self._boundaries.journal.add("arrived", delivery.conversation_id, self.name, effect_id)
        finally:
            self._boundaries.reach("after a delivery")
