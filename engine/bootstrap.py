"""What an engine is put together from, and what may stand around its ports.

Which performer carries out which effect is decided in `composition/performers.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..effects.channels.delivery import DeliveryDispatcher
from ..effects.channels.port import Channel
from ..effects.clock import Clock
from ..effects.dispatcher import InProcessDispatcher, Performer
from ..effects.retry_queues import Earlier
from ..persistence.opening import open_store
from ..persistence.ports import Store
from ..states.effects import Effect
from ..states.errors import ConfigurationError, StoreError
from ..states.events import Answer
from .conversations.turn_ends import TurnEnds
from .ports import Dispatcher, Observer

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .tracing.tracing import Tracing

logger = logging.getLogger("turnwise.engine")

T = TypeVar("T")

Performers = Mapping[type[Effect], Performer]
"""The performer of each kind of effect. An effect without one is answered with a failure."""

DispatcherFactory = Callable[[Performers, Clock, Callable[[str, Answer], None]], Dispatcher]
"""Makes the dispatcher of an engine from its performers, its clock, and `Engine.answer`."""

NOT_A_DISPATCHER = "A dispatcher is an object that implements the port `Dispatcher`, or a function that makes one."


@dataclass(frozen=True)
class PortWrappers:
    """What stands around the ports of an engine: each function is given what the engine would use, and returns what it
    is to use instead. `store` is called when the engine opens, the others when it is made."""

    store: Callable[[Store], Store] | None = None
    performers: Callable[[Performers], Performers] | None = None
    channels: Callable[[tuple[Channel, ...]], Iterable[Channel]] | None = None
    dispatcher: Callable[[Dispatcher], Dispatcher] | None = None


_WRAPPERS: ContextVar[tuple[PortWrappers, ...]] = ContextVar("turnwise-port-wrappers", default=())


@contextmanager
def wrapped_ports(wrappers: PortWrappers) -> Iterator[None]:
    """Wrap the ports of every engine that is opened while this holds, whoever opens it. For test kits that observe or
    disturb programs which open their own engines."""
    token = _WRAPPERS.set((*_WRAPPERS.get(), wrappers))
    try:
        yield
    finally:
        _WRAPPERS.reset(token)


def wrap(port: str, given: T) -> T:
    """Return what an engine uses for this port, a field of `PortWrappers`, in place of what it was given."""
    for wrappers in _WRAPPERS.get():
        wrapper = getattr(wrappers, port)
        if wrapper is not None:
            given = wrapper(given)
    return given


# --- checking what was given


@dataclass(frozen=True)
class Source:
    """Where the store of an engine comes from: a URL, or whoever has opened it.

    Raises `ConfigurationError` unless exactly one of them is given.
    """

    url: str | Path | None
    store: Store | None
    read_only: bool = False

    def __post_init__(self) -> None:
        if (self.url is None) == (self.store is None):
            raise ConfigurationError("An engine takes either the URL of a database or an open store.")
        if self.store is not None and not implements(self.store, Store):
            raise ConfigurationError("A store is an object that implements the port `Store`.")
        if self.read_only and self.store is not None:
            raise ConfigurationError(
                "An engine that only reads takes the URL of a database, and opens the store itself."
            )

    def __str__(self) -> str:
        return type(self.store).__name__ if self.url is None else str(self.url)

    async def open(self) -> Store:
        """Return the open store. Raises `StoreError`."""
        store = self.store
        if store is None:
            assert self.url is not None
            store = await open_store(self.url, read_only=self.read_only)
        return wrap("store", store)

    async def close(self, store: Store, claimed: Iterable[str]) -> None:
        """Close the store. One that belongs to whoever has opened it stays open, and what was claimed of it is released
        for the next engine."""
        if self.store is None:
            await store.close()
            return
        try:
            await store.release(claimed)
        except StoreError as error:
            logger.warning("The conversations of a closed engine could not be released: %s", error)


def checked_performers(performers: object) -> Performers:
    """Return performers given by type of effect. Raises `ConfigurationError`."""
    if performers is None:
        return {}
    if not isinstance(performers, Mapping):
        raise ConfigurationError("Performers are given as a mapping from types of effect.")
    for kind, performer in performers.items():
        if not (isclass(kind) and issubclass(kind, Effect)) or isclass(performer) or not callable(performer):
            raise ConfigurationError("A performer is a function of an effect and its context, under a type of effect.")
    return performers


def checked_dispatcher(dispatcher: Dispatcher | DispatcherFactory | None) -> DispatcherFactory:
    """Return what makes the dispatcher. It raises `ConfigurationError` if that is not one, and so does this."""
    if dispatcher is None:
        return InProcessDispatcher
    given: Any = dispatcher
    if not implements(given, Dispatcher) and not callable(given):
        raise ConfigurationError(NOT_A_DISPATCHER)

    def make(performers: Performers, clock: Clock, answer: Callable[[str, Answer], None]) -> Dispatcher:
        made = given if implements(given, Dispatcher) else given(performers, clock, answer)
        if not implements(made, Dispatcher):
            raise ConfigurationError(NOT_A_DISPATCHER)
        dispatcher: Dispatcher = made
        return dispatcher

    return make


def implements(given: object, port: type) -> bool:
    """Whether an object has every method of a port. Methods that it gets by delegation count."""
    methods = (name for name, member in vars(port).items() if callable(member) and not name.startswith("_"))
    return not isclass(given) and all(callable(getattr(given, name, None)) for name in methods)


# --- building


def build_channels(
    channels: Iterable[Channel],
    clock: Clock,
    tracing: Tracing | None,
    earlier: Earlier | None = None,
    *,
    speaks: bool = True,
) -> DeliveryDispatcher:
    """Return the dispatcher of deliveries to these channels; unless it `speaks`, without speech channels. `earlier`
    finds what other engines have yet to deliver.

    Raises `ConfigurationError`.
    """
    if not isinstance(channels, Iterable):
        raise ConfigurationError("The channels are given as a list.")
    used = tuple(channel for channel in channels if speaks or not getattr(channel, "is_speech", False))
    return DeliveryDispatcher(wrap("channels", used), clock, None if tracing is None else tracing.attempt, earlier)


def build_observers(
    tracing: Tracing | None, deliveries: DeliveryDispatcher, agents: Iterable[Observer]
) -> tuple[Observer, ...]:
    """Return what sees the steps of conversations: the tracing, the channels that want to know when turns end, and what
    belongs to the `agents`."""
    turn_ends = TurnEnds(deliveries.channels)
    return (*((tracing,) if tracing is not None else ()), *((turn_ends,) if turn_ends else ()), *agents)


def build_tracing(provider: TracerProvider | None) -> Tracing | None:
    """Return the tracing of a host that asks for it; otherwise nothing is imported. Raises `ConfigurationError`."""
    if provider is None:
        return None
    try:
        from .tracing.tracing import Tracing
    except ModuleNotFoundError:
        raise ConfigurationError('Tracing needs the package opentelemetry-api: pip install "turnwise[otel]".') from None
    return Tracing(provider)
