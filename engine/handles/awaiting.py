"""Says what is missing where a caller forgot to await a method that returns an object.

`engine.create().send("Hello")` calls `send` of a coroutine, which Python explains in words that lead nowhere. So such
a method returns a coroutine of another type: it can be awaited, or given to `asyncio.create_task`, `gather` and the
like, and for everything else it says that it must be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from ...states.errors import NotAwaited

P = ParamSpec("P")
T = TypeVar("T")

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
    """A coroutine that raises `NotAwaited` if it is used as if it were what it returns."""

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
