"""Where an engine may be called: in the event loop in which it was opened, and nowhere else.

In another thread, in a second `asyncio.run` or in a forked process nothing would wake its callers, and a step could be
taken twice at once. So what an application holds of an engine is `Homebound`: each of its public methods checks where
it is called before it does anything else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import Any, TypeVar

from ..states.errors import EngineElsewhere

FORKED = (
    "This engine was opened before the process was forked, and belongs to the parent: open another one in the child,"
    " with `Engine.open` or `Engine.open_blocking`."
)

OPENED_BEFORE = (
    "This engine was opened before; make a new one with `Engine.open`, for example in a function that each test calls."
)


class Home:
    """Where an engine was opened: in this process and, unless every thread may call it, in this event loop."""

    __slots__ = ("_loop", "_process")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._process = Process.current

    def check(self, sentence: str = "") -> None:
        """Raise `EngineElsewhere`, with this `sentence` if one is given, unless this is called there."""
        if self._process is not Process.current:
            raise EngineElsewhere(FORKED)
        if self._loop is None:
            return
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if not is_here:
            raise EngineElsewhere(sentence)

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the process in which the engine was opened."""
        return self._process is not Process.current


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


class Homebound:
    """What may be used only where its engine was opened. Every public method that a subclass defines checks this first,
    without being told to: a coroutine when it is awaited, an iterator each time it is asked for more. Properties may be
    read anywhere, as they show what is stored."""

    _home: Home | None = None
    """Where the engine was opened; None until its opening has begun."""

    def __init__(self, home: Home | None = None) -> None:
        self._home = home

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if isfunction(member) and not name.startswith("_"):
                setattr(cls, name, _homebound(member))

    def _check_home(self) -> None:
        if self._home is not None:
            self._home.check()


def _homebound(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with a check in front of it."""
    if iscoroutinefunction(method):

        @wraps(method)
        async def awaited(self: Any, *arguments: Any, **options: Any) -> Any:
            if self._home is not None:
                self._home.check()
            return await method(self, *arguments, **options)

        return awaited

    @wraps(method)
    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        if self._home is not None:
            self._home.check()
        result = method(self, *arguments, **options)
        return HomeboundIterator(result, self._check_home) if isinstance(result, AsyncGenerator) else result

    return called


T = TypeVar("T")


class HomeboundIterator(AsyncGenerator[T, None]):
    """An asynchronous generator that goes on only where its engine was opened: `check_home` raises elsewhere, and the
    generator stays as it is. It may be closed while another task waits for its next item, which ends the iteration of
    that task."""

    def __init__(self, generator: AsyncGenerator[T, None], check_home: Callable[[], None]) -> None:
        self._generator = generator
        self._check_home = check_home
        self._waiting: asyncio.Task[Any] | None = None
        """The task that waits for the next item."""
        self._left: asyncio.Event | None = None
        """Set once the task that waited when the generator was closed has left it; None until then."""

    async def __anext__(self) -> T:
        self._check_home()
        if self._waiting is not None:
            return await self._generator.__anext__()  # raises, since the generator runs
        self._waiting = task = asyncio.current_task()
        assert task is not None, "an engine runs in asyncio"
        cancels = task.cancelling()
        try:
            return await self._generator.__anext__()
        except asyncio.CancelledError:
            if self._left is not None and task.cancelling() == cancels + 1:  # by `aclose`, and by nobody else
                raise StopAsyncIteration from None
            raise
        finally:
            self._waiting = None
            if self._left is not None and not self._left.is_set():
                task.uncancel()
                self._left.set()

    async def asend(self, value: None) -> T:
        """Go on, as `anext` does."""
        return await self.__anext__()

    async def athrow(self, *error: Any) -> Any:
        """Raise the error where the generator waits."""
        self._check_home()
        return await self._generator.athrow(*error)

    async def aclose(self) -> None:
        """End the generator, and the iteration of a task that waits for its next item. Returns when both have ended."""
        self._check_home()
        if self._waiting is not None:
            if self._left is None:
                self._left = asyncio.Event()
                self._waiting.cancel()
            await self._left.wait()
        await self._generator.aclose()
