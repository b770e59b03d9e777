"""The engine for programs without an event loop: every call runs on an event loop in a thread, and is waited for.

No method is written twice. A line below takes a method of the asynchronous class, passes the call on to it, and keeps
its parameters and its docstring; type checkers see the same signature without the coroutine.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..states.errors import EngineClosed, EngineNotOpen
from ..states.policy.policy import Policy
from ..states.policy.roles import Role
from ..states.states import AnyState
from ..states.values.messages import Approver
from ..states.values.schedule import Schedule
from .choices.offered_tools import OfferedTool
from .conversation import Conversation
from .running import RunningEngine

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class _Portal:
    """Calls functions in the thread of the engine, as long as the engine is open."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self.open = True

    def call(self, function: Callable[[], Any]) -> Any:
        """Call the function in the thread and return its result; a coroutine is awaited. Raises `EngineClosed` once the
        engine is closed.

        If the caller is interrupted (Ctrl-C), the call is cancelled.
        """
        if not self.open:
            raise EngineClosed
        result = self._portal.start_task_soon(function)
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
            with suppress(EngineClosed, RuntimeError):
                self.call(iterator.aclose)


class _Blocking(Generic[T]):
    """Stands for an asynchronous object, `target`, which is only used in the thread of its engine."""

    def __init__(self, portal: _Portal, target: T) -> None:
        self._portal = portal
        self._target = target


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


def _handle(portal: _Portal, conversation: Conversation) -> BlockingConversation:
    return BlockingConversation(portal, conversation)


def _iterated(portal: _Portal, iterator: AsyncIterator[Any]) -> Iterator[Any]:
    return portal.iterate(iterator)


def _waits(method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> _Method[P, R]:
    """The method blocks until the coroutine has returned."""
    return _Method(method, _returned)


def _returns_handle(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, Conversation]],
) -> _Method[P, BlockingConversation]:
    """The method blocks, and returns a blocking handle on the conversation."""
    return _Method(method, _handle)


def _iterates(method: Callable[Concatenate[S, P], AsyncIterator[R]]) -> _Method[P, Iterator[R]]:
    """The method returns a plain iterator, which blocks until there is something to yield."""
    return _Method(method, _iterated)


class BlockingConversation(_Blocking[Conversation]):
    """A `Conversation` whose methods block until they are done. `updates` and `stream` are plain iterators."""

    send = _waits(Conversation.send)
    answer = _waits(Conversation.answer)
    decline = _waits(Conversation.decline)
    approve = _waits(Conversation.approve)
    resolve = _waits(Conversation.resolve)
    cancel = _waits(Conversation.cancel)
    withdraw = _waits(Conversation.withdraw)
    retry = _waits(Conversation.retry)
    set_policy = _waits(Conversation.set_policy)
    set_tools = _waits(Conversation.set_tools)
    set_title = _waits(Conversation.set_title)
    set_metadata = _waits(Conversation.set_metadata)
    set_schedule = _waits(Conversation.set_schedule)
    transfer_to = _waits(Conversation.transfer_to)
    compact = _waits(Conversation.compact)
    close = _waits(Conversation.close)
    dispatch = _waits(Conversation.dispatch)
    fork = _returns_handle(Conversation.fork)
    updates = _iterates(Conversation.updates)
    stream = _iterates(Conversation.stream)
    wait = _waits(Conversation.wait)
    turn_after = _waits(Conversation.turn_after)
    transcript = _waits(Conversation.transcript)
    messages = _waits(Conversation.messages)
    repairs = _waits(Conversation.repairs)
    usage = _waits(Conversation.usage)
    events = _waits(Conversation.events)
    turns = _waits(Conversation.turns)
    children = _waits(Conversation.children)
    view = _waits(Conversation.view)
    updated_at = _waits(Conversation.updated_at)
    steps = _waits(Conversation.steps)
    step_of = _waits(Conversation.step_of)
    model_request = _waits(Conversation.model_request)
    outbox = _waits(Conversation.outbox)
    replay = _waits(Conversation.replay)

    @property
    def id(self) -> str:
        """The id under which `get` finds this conversation again."""
        return self._target.id

    @property
    def state(self) -> AnyState:
        """The current state, as stored: one of the classes of `turnwise.states`, each with a `type` of its own."""
        state: AnyState = self._portal.call(lambda: self._target.state)
        return state

    @property
    def policy(self) -> Policy:
        """The current policy."""
        policy: Policy = self._portal.call(lambda: self._target.policy)
        return policy

    @property
    def system(self) -> str:
        """The system prompt that was given; "" if there is none."""
        system: str = self._portal.call(lambda: self._target.system)
        return system

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The names of the tools that the next turn may use; None stands for all that the engine has."""
        tools: tuple[str, ...] | None = self._portal.call(lambda: self._target.tools)
        return tools

    @property
    def profile(self) -> str:
        """The name of the profile of the newest turn, or an empty text; see `Conversation.profile`."""
        profile: str = self._portal.call(lambda: self._target.profile)
        return profile

    @property
    def schedule(self) -> Schedule | None:
        """When the conversation wakes up of its own accord, and with what task; None if it has no schedule."""
        schedule: Schedule | None = self._portal.call(lambda: self._target.schedule)
        return schedule

    @property
    def next_wake(self) -> datetime | None:
        """The next moment of the schedule, in UTC, or None; see `Conversation.next_wake`."""
        next_wake: datetime | None = self._portal.call(lambda: self._target.next_wake)
        return next_wake

    @property
    def role(self) -> Role:
        """The role of this agent; see `Conversation.role`."""
        return self._target.role

    @property
    def works_for(self) -> str | None:
        """The id of the conversation for which this background agent works, or None."""
        return self._target.works_for

    @property
    def parent(self) -> str | None:
        """The id of the conversation whose turn started this sub-agent, or None."""
        return self._target.parent

    @property
    def approver(self) -> Approver | None:
        """Who may decide about the call that waits for it, or None; see `Conversation.approver`."""
        approver: Approver | None = self._portal.call(lambda: self._target.approver)
        return approver

    @property
    def owner(self) -> str | None:
        """Whom the conversation belongs to, as its application said when it created it."""
        return self._target.owner

    @property
    def title(self) -> str | None:
        """The title that was given, or None."""
        title: str | None = self._portal.call(lambda: self._target.title)
        return title

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the application noted about the conversation."""
        metadata: Mapping[str, Any] = self._portal.call(lambda: self._target.metadata)
        return metadata


class BlockingEngine(_Blocking[RunningEngine]):
    """An `Engine` whose methods block until they are done. Get it from `Engine.open_blocking`."""

    create = _returns_handle(RunningEngine.create)
    get = _returns_handle(RunningEngine.get)
    list = _waits(RunningEngine.list)
    delete = _waits(RunningEngine.delete)
    delivered = _waits(RunningEngine.delivered)
    updates = _iterates(RunningEngine.updates)
    refresh = _waits(RunningEngine.refresh)
    check = _waits(RunningEngine.check)
    close = _waits(RunningEngine.close)

    @property
    def is_open(self) -> bool:
        """Whether the engine has opened, and has not begun to close."""
        return self._portal.open and self._target.is_open

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models that a conversation may choose; see `Engine.model_names`."""
        return self._target.model_names

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tools that a conversation may choose; see `Engine.tools`."""
        tools: tuple[OfferedTool, ...] = self._portal.call(lambda: self._target.tools)
        return tools

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that a conversation may choose."""
        return tuple(tool.name for tool in self.tools)


class BlockingOpening(AbstractContextManager[BlockingEngine, None]):
    """Opens an engine when its `with` block is entered, on an event loop in a thread of its own, and closes it at the
    end of the block. It lets every error pass."""

    def __init__(self, engine: AbstractAsyncContextManager[RunningEngine]) -> None:
        self._running = _run_in_thread(engine)

    def __enter__(self) -> BlockingEngine:
        return self._running.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._running.__exit__(*error)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or not hasattr(BlockingEngine, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise EngineNotOpen("`with Engine.open_blocking(...) as engine`")


@contextmanager
def _run_in_thread(engine: AbstractAsyncContextManager[RunningEngine]) -> Iterator[BlockingEngine]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(engine) as opened:
        calls = _Portal(portal)
        try:
            yield BlockingEngine(calls, opened)
        finally:
            calls.open = False
