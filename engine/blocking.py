"""The engine for programs without an event loop: every call runs on an event loop in a thread, and is waited for.

The blocking objects pass each call on to the asynchronous ones, whatever its name, so no method is written twice.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..states.errors import EngineClosed
from .conversation import Conversation


class _Portal:
    """Calls functions in the thread of the engine, as long as the engine is open."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self.open = True

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function in the thread and return its result; a coroutine is awaited. Raises `EngineClosed` once the
        engine is closed.

        If the caller is interrupted (Ctrl-C), the call is cancelled.
        """
        if not self.open:
            raise EngineClosed
        result = self._portal.start_task_soon(function, *arguments)
        try:
            return result.result()
        except BaseException:
            result.cancel()
            raise


class _Blocking:
    """Passes each attribute on. Coroutines are waited for, and asynchronous iterators become plain ones."""

    def __init__(self, portal: _Portal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(inspect.getattr_static(type(self._target), name, None), property):
            return self._portal.call(getattr, self._target, name)
        found = getattr(self._target, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        result = self._portal.call(partial(function, *arguments, **options))
        if isinstance(result, AsyncIterator):
            return self._iterate(result)
        return BlockingConversation(self._portal, result) if isinstance(result, Conversation) else result

    def _iterate(self, iterator: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._portal.call(iterator.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            # There is nothing to close if the engine is closed, or if an interrupted call is just ending.
            with suppress(EngineClosed, RuntimeError):
                self._portal.call(iterator.aclose)


class BlockingConversation(_Blocking):
    """A `Conversation` whose methods block until they are done; `updates` is a plain iterator."""


class BlockingEngine(_Blocking):
    """An `Engine` whose methods block until they are done. Get it from `Engine.open_blocking`."""


@contextmanager
def run_in_thread(engine: AbstractAsyncContextManager[Any]) -> Iterator[BlockingEngine]:
    """Open the engine on an event loop in a thread of its own, and close it at the end."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(engine) as opened:
        calls = _Portal(portal)
        try:
            yield BlockingEngine(calls, opened)
        finally:
            calls.open = False
