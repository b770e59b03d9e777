"""When an engine is open, from when its store was opened until it begins to close, and where it may be called.

An engine opens once and closes once, however many callers ask for it, and whichever of them are cancelled meanwhile.

It may be called in the event loop in which it was opened, and nowhere else. In another thread, in a second
`asyncio.run` or in a forked process nothing would wake its callers, and a step could be taken twice at once. So what an
application holds of an engine is `Homebound`: each of its public methods checks where it is called before it does
anything else.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from ..states.errors import EngineClosed, EngineElsewhere, EngineNotOpen, NotAwaited

if TYPE_CHECKING:
    from ..persistence.ports import Store


class Lifetime:
    """Opens by calling `begin`, and closes by calling `end`, each once. `begin` sets the store, `end` takes it."""

    def __init__(
        self, begin: Callable[[], Coroutine[Any, Any, None]], end: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._begin = begin
        self._end = end
        self.home: Home | None = None
        """Where the engine was opened, once its opening has begun."""
        self._opening: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._store: Store | None = None

    async def open(self) -> None:
        """Return when the engine is open. Raises what `begin` raises, or `EngineClosed`; then the engine is closed."""
        self.check_home()
        self.check_not_closed()
        if self._opening is None:
            self.home = Home(asyncio.get_running_loop())
            self._opening = asyncio.ensure_future(self._begin())
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.close()
            raise
        self.check_not_closed()

    async def close(self) -> None:
        """Return when the engine is closed. A caller that is cancelled stops waiting, but it closes all the same."""
        self.check_home()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._end())
        await asyncio.shield(self._closing)

    def check_home(self) -> None:
        """Raise `EngineElsewhere` unless this is called where the engine was opened, or it has not been opened."""
        if self.home is not None:
            self.home.check()

    @property
    def is_open(self) -> bool:
        """Whether opening has ended, and closing has not begun."""
        return self._opening is not None and self._opening.done() and self._closing is None

    @property
    def is_closing(self) -> bool:
        """Whether the engine closes, or has closed."""
        return self._closing is not None

    def check_not_closed(self) -> None:
        """Raise `EngineClosed` if the engine was closed in the meantime: nothing would end what begins now."""
        if self._closing is not None:
            raise EngineClosed

    def check_open(self) -> None:
        """Raise `EngineClosed` if the engine closes or has closed, and `EngineNotOpen` if it was never opened."""
        self.check_not_closed()
        if self._store is None:
            raise EngineNotOpen

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`, or `EngineNotOpen`, which is one."""
        if self._store is None:
            raise EngineNotOpen if self._closing is None else EngineClosed
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    @property
    def is_opening(self) -> bool:
        """Whether opening was begun, and perhaps has ended."""
        return self._opening is not None

    async def finish_opening(self) -> None:
        """Return when opening has ended, also if it failed or was never begun."""
        if self._opening is not None:
            await asyncio.wait([self._opening])

    def take_store(self) -> Store | None:
        """Return the open store, which the caller closes. From now on there is none."""
        store, self._store = self._store, None
        return store


FORKED = (
    "This engine was opened before the process was forked, and belongs to the parent: open another one in the child,"
    " with `Engine.open` or `Engine.open_blocking`."
)


class Home:
    """Where an engine was opened: in this process and, unless every thread may call it, in this event loop."""

    __slots__ = ("_loop", "_process")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._process = Process.current

    def check(self) -> None:
        """Raise `EngineElsewhere` unless this is called there."""
        if self._process is not Process.current:
            raise EngineElsewhere(FORKED)
        if self._loop is not None and _running_loop() is not self._loop:
            raise EngineElsewhere

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the process in which the engine was opened."""
        return self._process is not Process.current


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Process:
    """The process that runs. A forked child finds another `current` one in its copy of the memory, which costs its
    methods nothing to compare."""

    current: object = object()

    @classmethod
    def begin(cls) -> None:
        """Note that this is another process than before."""
        cls.current = object()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=Process.begin)


class Homebound(ABC):
    """What may be used only where its engine was opened. Every public method that a subclass defines checks this first,
    without being told to: a coroutine when it is awaited, an iterator each time it is asked for more. Properties may be
    read anywhere, as they show what is stored."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            is_method = isfunction(member) and not getattr(member, "__isabstractmethod__", False)
            if is_method and not name.startswith("_") and name != Homebound.check_home.__name__:
                setattr(cls, name, _homebound(member))

    @abstractmethod
    def check_home(self) -> None:
        """Raise `EngineElsewhere` unless this is called where the engine was opened, or it has not been opened."""


def _homebound(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with a check in front of it."""
    remade: Callable[..., Any] | None = getattr(method, "remade", None)  # of a method that `must_be_awaited`
    if remade or iscoroutinefunction(method):

        @wraps(method)
        async def awaited(self: Homebound, *arguments: Any, **options: Any) -> Any:
            self.check_home()
            return await method(self, *arguments, **options)

        return remade(awaited) if remade else awaited

    @wraps(method)
    def called(self: Homebound, *arguments: Any, **options: Any) -> Any:
        self.check_home()
        result = method(self, *arguments, **options)
        return HomeboundIterator(result, self.check_home) if isinstance(result, AsyncGenerator) else result

    return called


T = TypeVar("T")


class HomeboundIterator(AsyncGenerator[T, None]):
    """An asynchronous generator that goes on only where its engine was opened: `check_home` raises elsewhere, and the
    generator stays as it is."""

    def __init__(self, generator: AsyncGenerator[T, None], check_home: Callable[[], None]) -> None:
        self._generator = generator
        self._check_home = check_home

    async def __anext__(self) -> T:
        self._check_home()
        return await self._generator.__anext__()

    async def asend(self, value: None) -> T:
        """Go on, as `anext` does."""
        self._check_home()
        return await self._generator.asend(value)

    async def athrow(self, *error: Any) -> Any:
        """Raise the error where the generator waits."""
        self._check_home()
        return await self._generator.athrow(*error)

    async def aclose(self) -> None:
        """End the generator."""
        self._check_home()
        await self._generator.aclose()


P = ParamSpec("P")

CoroutineFunction = Callable[P, Coroutine[Any, Any, T]]
"""A function that is declared with `async def`."""


def must_be_awaited(sentence: str) -> Callable[[CoroutineFunction[P, T]], CoroutineFunction[P, T]]:
    """Make a call of a coroutine function raise `NotAwaited`, with this sentence, if it is used without `await`."""

    def decorate(function: CoroutineFunction[P, T]) -> CoroutineFunction[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
            return HintingCoroutine(function(*args, **kwargs), sentence)

        vars(call)["remade"] = decorate  # `Homebound` puts a check within what is awaited
        return call

    return decorate


class HintingCoroutine(Coroutine[Any, Any, T]):
    """A coroutine that raises `NotAwaited` if it is used as if it were what it returns.

    `engine.create().send("Hello")` calls `send` of a coroutine, which Python explains in words that lead nowhere. This
    one can be awaited, or given to `asyncio.create_task`, `gather` and the like, and for everything else it says that
    it must be awaited."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], sentence: str) -> None:
        self._coroutine = coroutine
        self._sentence = sentence

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        """Continue the coroutine, as an event loop does. An event loop only sends None; anything else is meant for a
        method `send` of what the coroutine returns."""
        if value is not None or args or kwargs:
            self._refuse()
        return self._coroutine.send(None)

    def throw(self, *error: Any) -> Any:
        """Raise the error where the coroutine waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        """Return what is known of the coroutine itself; asyncio and debuggers ask for it."""
        if name.startswith("cr_") or name in ("__name__", "__qualname__"):
            return getattr(self._coroutine, name)
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotAwaited(self._sentence)
