"""The engine for programs without an event loop: every call runs on an event loop in a thread, and is waited for.

No method is written twice. A line below takes a method of the asynchronous class, passes the call on to it, and keeps
its parameters and its docstring; type checkers see the same signature without the coroutine.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import datetime
from threading import RLock, Thread, current_thread
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from anyio.from_thread import BlockingPortal

from ..states.errors import EngineClosed, EngineElsewhere
from ..states.header import Header
from ..states.policy import Policy
from ..states.roles import Role
from ..states.states import AnyState
from ..states.values.acts import Schedule
from ..states.values.messages import Approver
from .choices import OfferedTool
from .conversation import A, B, C, Conversation, SendOptions
from .conversation import T as Answer
from .custody import CustodyCounts
from .engine import Engine
from .home import Home
from .opening import CreateOptions
from .outputs import AnyOutput, Output
from .turns import Turn

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


WITHIN_ITSELF = (
    "A blocking engine cannot be called in its own event loop, by an asynchronous tool for example: it would wait for"
    " itself."
)


class _Portal:
    """Calls functions in the thread of an engine, as long as the engine is open.

    Whatever an application holds of a blocking engine holds this. When nobody holds it any more, the engine is closed,
    beside whoever lets go last; and at the latest when the process ends.
    """

    def __init__(self, portal: BlockingPortal, ending: _Ending) -> None:
        self._portal = portal
        self._ending = ending
        # Not by the finalizer at exit: the threads of the store would end before the engine that needs them.
        weakref.finalize(self, ending.begin).atexit = False

    @property
    def open(self) -> bool:
        """Whether the engine can be called."""
        return not self._ending.has_begun

    def call(self, function: Callable[[], Any]) -> Any:
        """Call the function in the thread and return its result; a coroutine is awaited. Raises `EngineClosed` once the
        engine is closed, and `EngineElsewhere` in a forked process and in the thread of the engine itself.

        If the caller is interrupted (Ctrl-C), the call is cancelled.
        """
        self._ending.check_can_be_called()
        if self._ending.has_begun:
            raise EngineClosed
        try:
            result = self._portal.start_task_soon(function)
        except RuntimeError:  # it has ended in between
            raise EngineClosed from None
        try:
            return result.result()
        except BaseException:
            result.cancel()
            raise

    def iterate(self, iterator: Any) -> Iterator[Any]:
        """Yield what an asynchronous iterator yields, and close it at the end."""
        try:
            while True:
                try:
                    yield self.call(iterator.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            # There is nothing to close if the engine is closed, or if an interrupted call is just ending.
            with suppress(EngineClosed, EngineElsewhere, RuntimeError):
                self.call(iterator.aclose)

    def end(self) -> None:
        """Close the engine, and end its thread; return when both are done. Raises what `Engine.close` raises."""
        self._ending.check_can_be_called()
        self._ending()

    def leave(self) -> None:
        """End at the end of a `with` block. A forked child that leaves the block leaves the engine to its parent."""
        if not self._ending.is_forked:
            self.end()


class _Ending:
    """Closes a blocking engine and ends its thread, once, whoever asks for it first. It holds no `_Portal`, so that one
    that nobody holds can be collected."""

    def __init__(self, thread: Thread, portal: BlockingPortal, engine: Engine) -> None:
        self._thread = thread
        self._portal = portal
        self._engine = engine
        self._home = Home()
        self._lock = RLock()
        self.has_begun: bool = False
        # Behind the hooks of the store, so before them: hooks run in reverse order.
        atexit.register(self)

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the process that has opened the engine."""
        return self._home.is_forked

    def check_can_be_called(self) -> None:
        """Raise `EngineElsewhere` in a forked process, and in the thread of the engine."""
        self._home.check()
        if current_thread() is self._thread:
            raise EngineElsewhere(WITHIN_ITSELF)

    def __call__(self) -> None:
        """Close the engine and end its thread, and return when both are done. A second call waits for the first one,
        and a call in a forked process does nothing."""
        if self.is_forked:
            return
        with self._lock:
            if self.has_begun:
                return
            self.has_begun = True
            atexit.unregister(self)
            with _stopping(self._thread, self._portal):
                self._portal.call(self._engine.close)

    def begin(self) -> None:
        """Do that in a thread of its own: garbage is collected in any thread, also in those that closing waits for."""
        if not (self.has_begun or self.is_forked):
            Thread(target=self, name="turnwise-close").start()


class _Blocking(Generic[T]):
    """Stands for an asynchronous object, `target`, which is only used in the thread of its engine."""

    def __init__(self, portal: _Portal, target: T) -> None:
        self._portal = portal
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target).replace("<", "<Blocking", 1)


class _Method(Generic[P, R]):
    """A method that passes each call on to a method of the asynchronous object."""

    def __init__(self, method: Callable[..., Any], finish: Callable[[_Portal, Any], R]) -> None:
        self._method = method
        self._finish = finish

    @overload
    def __get__(self, instance: None, owner: type) -> _Method[P, R]: ...

    @overload
    def __get__(self, instance: _Blocking[Any], owner: type) -> Callable[P, R]: ...

    def __get__(self, instance: _Blocking[Any] | None, owner: type) -> _Method[P, R] | Callable[P, R]:
        return self if instance is None else self._bound(instance)

    def _bound(self, instance: _Blocking[Any]) -> Callable[P, R]:
        @functools.wraps(self._method)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            asked = functools.partial(self._method, instance._target, *arguments, **options)
            return self._finish(instance._portal, instance._portal.call(asked))

        return call


def _returned(portal: _Portal, result: Any) -> Any:
    return result


def _handle(portal: _Portal, conversation: Conversation[T]) -> BlockingConversation[T]:
    return BlockingConversation(portal, conversation)


def _iterated(portal: _Portal, iterator: AsyncIterator[Any]) -> Iterator[Any]:
    return portal.iterate(iterator)


def _waits(method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> _Method[P, R]:
    """The method blocks until the coroutine has returned."""
    return _Method(method, _returned)


def _returns_handle(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, Conversation[T]]],
) -> _Method[P, BlockingConversation[T]]:
    """The method blocks, and returns a blocking handle on the conversation."""
    return _Method(method, _handle)


def _iterates(method: Callable[Concatenate[S, P], AsyncIterator[R]]) -> _Method[P, Iterator[R]]:
    """The method returns a plain iterator, which blocks until there is something to yield."""
    return _Method(method, _iterated)


class _Shown(Generic[R]):
    """A property that is read in the thread of the engine."""

    def __init__(self, shown: Any) -> None:
        self._read = shown.fget
        self.__doc__ = shown.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: _Blocking[Any], owner: type) -> R: ...

    def __get__(self, instance: _Blocking[Any] | None, owner: type) -> Self | R:
        if instance is None:
            return self
        shown: R = instance._portal.call(functools.partial(self._read, instance._target))
        return shown


class BlockingConversation(_Blocking[Conversation[Answer]], Generic[Answer]):
    """A `Conversation` whose methods block until they are done: it has each of them under the same name, with the same
    parameters. `updates` and `stream` are plain iterators."""

    if TYPE_CHECKING:

        @overload
        def send(self, text: str, *, output: None = None, **options: Unpack[SendOptions]) -> Turn[Answer]: ...

        @overload
        def send(self, text: str, *, output: type[A] | Output[A], **options: Unpack[SendOptions]) -> Turn[A]: ...

        @overload
        def send(
            self, text: str, *, output: tuple[type[A], type[B]], **options: Unpack[SendOptions]
        ) -> Turn[A | B]: ...

        @overload
        def send(
            self, text: str, *, output: tuple[type[A], type[B], type[C]], **options: Unpack[SendOptions]
        ) -> Turn[A | B | C]: ...

        @overload
        def send(self, text: str, *, output: AnyOutput, **options: Unpack[SendOptions]) -> Turn: ...

        def send(self, text: str, *, output: Any = None, **options: Unpack[SendOptions]) -> Turn:
            """Send a message as `Conversation.send` does, and block until it returns."""
            ...

    else:
        send = _waits(Conversation.send)
    answer: Final = _waits(Conversation[Answer].answer)
    decline: Final = _waits(Conversation[Answer].decline)
    approve: Final = _waits(Conversation[Answer].approve)
    resolve: Final = _waits(Conversation[Answer].resolve)
    cancel: Final = _waits(Conversation.cancel)
    withdraw: Final = _waits(Conversation.withdraw)
    retry: Final = _waits(Conversation[Answer].retry)
    edit: Final = _waits(Conversation[Answer].edit)
    regenerate: Final = _waits(Conversation[Answer].regenerate)
    rewind: Final = _waits(Conversation.rewind)
    branches: Final = _waits(Conversation.branches)
    switch: Final = _waits(Conversation.switch)
    set_policy: Final = _waits(Conversation.set_policy)
    set_tools: Final = _waits(Conversation.set_tools)
    set_title: Final = _waits(Conversation.set_title)
    set_metadata: Final = _waits(Conversation.set_metadata)
    set_system: Final = _waits(Conversation.set_system)
    set_schedule: Final = _waits(Conversation.set_schedule)
    transfer_to: Final = _waits(Conversation.transfer_to)
    compact: Final = _waits(Conversation.compact)
    close: Final = _waits(Conversation.close)
    submit: Final = _waits(Conversation[Answer].submit)
    dispatch: Final = _waits(Conversation.dispatch)
    fork: Final = _returns_handle(Conversation[Answer].fork)
    updates: Final = _iterates(Conversation.updates)
    stream: Final = _iterates(Conversation.stream)
    wait: Final = _waits(Conversation[Answer].wait)
    turn_after: Final = _waits(Conversation[Answer].turn_after)
    transcript: Final = _waits(Conversation.transcript)
    messages: Final = _waits(Conversation.messages)
    file: Final = _waits(Conversation.file)
    read_file: Final = _waits(Conversation.read_file)
    keep_file: Final = _waits(Conversation.keep_file)
    repairs: Final = _waits(Conversation.repairs)
    usage: Final = _waits(Conversation.usage)
    events: Final = _waits(Conversation.events)
    turns: Final = _waits(Conversation[Answer].turns)
    children: Final = _waits(Conversation.children)
    view: Final = _waits(Conversation.view)
    updated_at: Final = _waits(Conversation.updated_at)
    steps: Final = _waits(Conversation.steps)
    step_of: Final = _waits(Conversation.step_of)
    model_request: Final = _waits(Conversation.model_request)
    origin: Final = _waits(Conversation.origin)
    history_mark: Final = _waits(Conversation.history_mark)
    outbox: Final = _waits(Conversation.outbox)
    replay: Final = _waits(Conversation.replay)

    @property
    def id(self) -> str:
        """The id under which `get` finds this conversation again."""
        return self._target.id

    state: Final = _Shown[AnyState](Conversation.state)
    policy: Final = _Shown[Policy](Conversation.policy)
    system: Final = _Shown[str](Conversation.system)
    tools: Final = _Shown[tuple[str, ...] | None](Conversation.tools)
    profile: Final = _Shown[str](Conversation.profile)
    schedule: Final = _Shown[Schedule | None](Conversation.schedule)
    next_wake: Final = _Shown[datetime | None](Conversation.next_wake)
    approver: Final = _Shown[Approver | None](Conversation.approver)
    header: Final = _Shown[Header](Conversation.header)
    owner: Final = _Shown[str | None](Conversation.owner)
    title: Final = _Shown[str | None](Conversation.title)
    metadata: Final = _Shown[Mapping[str, Any]](Conversation.metadata)
    role: Final = _Shown[Role](Conversation.role)
    works_for: Final = _Shown[str | None](Conversation.works_for)
    parent: Final = _Shown[str | None](Conversation.parent)


class BlockingEngine(_Blocking[Engine]):
    """An `Engine` whose methods block until they are done, in whatever thread they are called. Get it from
    `Engine.open_blocking`.

    It is open, and closes at the end of a `with` block; without one it closes when it is told to, when nobody holds it
    or one of its conversations any more, or when the process ends.
    """

    if TYPE_CHECKING:

        @overload
        def create(self, *, output: None = None, **options: Unpack[CreateOptions]) -> BlockingConversation: ...

        @overload
        def create(
            self, *, output: type[A] | Output[A], **options: Unpack[CreateOptions]
        ) -> BlockingConversation[A]: ...

        @overload
        def create(
            self, *, output: tuple[type[A], type[B]], **options: Unpack[CreateOptions]
        ) -> BlockingConversation[A | B]: ...

        @overload
        def create(
            self, *, output: tuple[type[A], type[B], type[C]], **options: Unpack[CreateOptions]
        ) -> BlockingConversation[A | B | C]: ...

        @overload
        def create(self, *, output: AnyOutput, **options: Unpack[CreateOptions]) -> BlockingConversation: ...

        def create(self, *, output: Any = None, **options: Unpack[CreateOptions]) -> BlockingConversation[Any]:
            """Create a conversation as `Engine.create` does, and return a blocking handle on it."""
            ...

    else:
        create = _returns_handle(Engine.create)
    get: Final = _returns_handle(Engine.get)
    list: Final = _waits(Engine.list)
    delete: Final = _waits(Engine.delete)
    delivered: Final = _waits(Engine.delivered)
    updates: Final = _iterates(Engine.updates)
    refresh: Final = _waits(Engine.refresh)
    check: Final = _waits(Engine.check)
    drain: Final = _waits(Engine.drain)

    def close(self) -> None:
        """Close the engine as `Engine.close` does, and end its thread. A second call waits for the first one."""
        self._portal.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._portal.leave()

    @property
    def is_open(self) -> bool:
        """Whether the engine has opened, and has not begun to close."""
        return self._portal.open and self._target.is_open

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models that a conversation may choose; see `Engine.model_names`."""
        return self._target.model_names

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The names of the channels; see `Engine.channel_names`."""
        return self._target.channel_names

    tools: Final = _Shown[tuple[OfferedTool, ...]](Engine.tools)
    tool_names: Final = _Shown[tuple[str, ...]](Engine.tool_names)
    loading: Final = _Shown[tuple[str, ...]](Engine.loading)
    custody_counts: Final = _Shown[CustodyCounts](Engine.custody_counts)


def open_blocking(engine: Engine) -> BlockingEngine:
    """Open an engine on an event loop in a thread of its own. Raises what opening it raises; then nothing stays."""
    thread, portal = _start_thread()
    with ExitStack() as undo:
        undo.enter_context(_stopping(thread, portal))
        portal.call(engine.__aenter__)
        undo.pop_all()
    return BlockingEngine(_Portal(portal, _Ending(thread, portal, engine)), engine)


def _start_thread() -> tuple[Thread, BlockingPortal]:
    """Start a thread that runs an event loop, and return it with what calls functions there.

    `anyio.from_thread.start_blocking_portal` does this, too, but a forked child that exits would wait for the thread.
    """
    started: Future[BlockingPortal] = Future()

    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # whoever waits for the start gets it
            if not started.done():
                started.set_exception(error)

    thread = Thread(target=run, name="turnwise-engine", daemon=True)
    thread.start()
    return thread, started.result()


class _stopping(AbstractContextManager[None, None]):
    """Stops the event loop of a thread at the end of the block, and waits for the thread. What still runs there is
    awaited, or cancelled if the block raises. It is no generator, which a forked child would run to its end."""

    def __init__(self, thread: Thread, portal: BlockingPortal) -> None:
        self._thread = thread
        self._portal = portal

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(RuntimeError):  # it has stopped
            self._portal.call(self._portal.stop, kind is not None)
        self._thread.join()
