"""The engine: one database of conversations, the models and the tools that they use."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

from ..effects.channels.delivery_dispatcher import DeliveryDispatcher
from ..effects.clock import Clock, SystemClock
from ..effects.dispatcher import InProcessDispatcher, Performer
from ..effects.tools.registry import ToolRegistry
from ..states.effects import Effect
from ..states.errors import ConfigurationError, EngineClosed, StoreError, UnknownConversation
from ..states.events import Answer, Opened
from ..states.log import LogEntry
from ..states.machine import begin
from ..states.policy import presets
from ..states.policy.policy import ModelSpec, Policy
from ..states.values.acts import ActKind
from .bootstrap import Models, build_performers, build_tracing
from .conversation import Conversation
from .deliveries import take_up
from .history import ConversationHistory
from .loop import Loop
from .outbox import OutboxTargets
from .policy_warnings import policy_warnings
from .ports import Dispatcher
from .projection import ConversationProjection
from .registry import ConversationRegistry
from .requests import checked_id, checked_policy, make
from .settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..effects.channels.port import Channel
    from ..effects.model.port import Llm
    from ..persistence.ports import Log, Store
    from ..persistence.records.outbox import Undelivered
    from ..persistence.records.summary import Summary
    from .blocking import BlockingEngine
    from .tracing.tracing import Tracing

logger = logging.getLogger("turnwise.engine")

CLAIMED = 100
"""How many conversations are taken over at once."""


class Engine:
    """Conversations in one database, and what they need to go on. Open it with `Engine.open`.

    One engine at a time may have a database file open for writing.
    """

    loop_type: type[Loop] = Loop
    """What drives each conversation; a subclass of this engine may have another one."""

    def __init__(
        self,
        url: str | Path,
        models: Models,
        performers: Mapping[type[Effect], Performer],
        courier: DeliveryDispatcher,
        policy: Policy,
        clock: Clock,
        tracing: Tracing | None = None,
        acts: Collection[ActKind] = get_args(ActKind),
    ) -> None:
        self._url = url
        self._models = models
        self._outbox = OutboxTargets(performers)
        self._dispatcher: Dispatcher = InProcessDispatcher(performers, clock, self.answer)
        self._courier = courier
        self._left: dict[str, list[Undelivered]] = {}
        self._policy = policy
        self._clock = clock
        self._tracing = tracing
        self._acts = acts
        self._store: Store | None = None
        self._opening: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._loops = ConversationRegistry(self._load)

    # --- opening and closing

    @classmethod
    def open(
        cls,
        url: str | Path,
        *,
        model: str | ModelSpec | Llm = "rehearsal",
        fallback_models: Iterable[str | ModelSpec | Llm] = (),
        tools: Iterable[Callable[..., Any] | str] = (),
        channels: Iterable[Channel] = (),
        policy: Policy | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> Engine:
        """An engine over the database at `url` (a path, or `sqlite:///path`; `sqlite://` is in memory).

            async with Engine.open("sqlite:///dinner.db", model="openai/gpt-4.1-mini") as engine: ...

        It may be awaited instead (`engine = await Engine.open(…)`); then you must `await engine.close()`.

        `model` and `fallback_models` are names that litellm knows, `rehearsal`, or objects of the `Llm` port; a
        `ModelSpec` is a name together with the model's window, for models that litellm does not list. `tools` are
        functions, `@tool` functions, or names of built-in tools. Everything that is said to the user goes out through
        each of the `channels`, objects of the `Channel` port. `policy` is for conversations created without one; its
        models are replaced by those given here. `clock` is what it tells the time and waits by: the machine's own, or
        for tests a `turnwise.testing.ManualClock`. With a `tracer_provider` of OpenTelemetry each turn, model request,
        run of a tool and attempt to deliver is a span; none is given by itself, not even the program's own,
        `opentelemetry.trace.get_tracer_provider()`.

        Raises `ConfigurationError` at once for tools and models that cannot be what they are given as, and when it
        opens, `StoreError` for a database that cannot be used. Whether a model's provider is known and has a key is
        found by `await engine.check()`, or else by the first turn, which fails and says so.
        """
        settings = Settings() if settings is None else settings
        policy = presets.assistant() if policy is None else policy
        clock = SystemClock() if clock is None else clock
        for given, kind in ((settings, Settings), (policy, Policy), (clock, Clock)):
            if not isinstance(given, kind):
                raise ConfigurationError(f"An engine takes {kind.__name__} as its {kind.__name__.lower()}.")
        models, tracing = Models.of(model, fallback_models), build_tracing(tracer_provider)
        courier = DeliveryDispatcher(channels, clock, None if tracing is None else tracing.attempt)
        registry = ToolRegistry(tools)
        performers = build_performers(models, registry, courier, clock, settings, tracing)
        return cls(url, models, performers, courier, policy, clock, tracing, registry.acts)

    @classmethod
    def open_blocking(cls, url: str | Path, **options: Any) -> AbstractContextManager[BlockingEngine]:
        """The same engine for programs without an event loop; the options are those of `open`.

        with Engine.open_blocking("dinner.db", model="…") as engine:
            conversation = engine.create()
            turn = conversation.send("A table for two")
        """
        from .blocking import open_blocking

        return open_blocking(url, **options)

    async def __aenter__(self) -> Engine:
        self._check_open()
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.close()
            raise
        self._check_open()
        return self

    async def _open(self) -> None:
        from ..persistence.opening import open_store

        self._store = await open_store(self._url)
        threading.Thread(target=self._warm, daemon=True, name="turnwise-warm").start()
        await self._take_up(self._store)

    async def _take_up(self, store: Store) -> None:
        """Go on with what an earlier process left in the middle. When this returns, what is in doubt is listed so."""
        loops: list[Loop] = []
        while claimed := await store.claim(CLAIMED):
            for one in await store.outbox(claimed):
                self._left.setdefault(one.conversation_id, []).append(one)
            for conversation_id in claimed:
                try:
                    loops.append(await self._loops.get(conversation_id))
                except EngineClosed:
                    return
                except UnknownConversation:
                    continue  # deleted meanwhile
                except StoreError as error:
                    logger.warning("The conversation %s cannot be taken up: %s", conversation_id, error)
        await asyncio.gather(*(loop.handled() for loop in loops))

    def _warm(self) -> None:
        try:
            self._models.warm()
        except Exception:  # whoever asks the model is told
            logger.warning("The models could not be loaded ahead.", exc_info=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Engine]:
        return self.__aenter__().__await__()

    async def delivered(self) -> None:
        """Return when all that was said to users so far has been tried once on every channel: `send` does not wait for
        that. What a channel did not take is tried again later; the updates of its conversation tell."""
        self._check_open()
        await self._dispatcher.tried()
        await self._courier.wait_until_tried()

    async def close(self) -> None:
        """Stop driving and let go of the database. What is stored is kept; a conversation that waits for a person goes
        on when the database is opened again, and so does a turn under way, as after a crash. Tools that run are told to
        stop, and have a second for it; one that returns all the same has finished, and its result is kept.

        What was said is tried once on every channel before, which takes seconds where one hangs. What has not arrived
        then is tried again when the database is opened again; of a database in memory it is lost.

        Closing twice is closing once; a caller that is cancelled stops waiting, but the engine closes all the same.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])  # a lock half taken could not be given back
        store, self._store = self._store, None
        try:
            await self._loops.close(EngineClosed())
            await self._courier.close()
            if self._tracing is not None:
                self._tracing.close()
        finally:
            if store is not None:
                await store.close()

    async def check(self) -> None:
        """Make sure that the models can be asked at all. Raises `ConfigurationError` for a name that litellm does not
        know, or a provider without a key. Asks nobody; the first call loads litellm, which takes seconds."""
        await asyncio.to_thread(self._models.check)

    @property
    def store(self) -> Store:
        """The open database. Raises `EngineClosed`."""
        if self._store is None:
            raise EngineClosed
        return self._store

    def _check_open(self) -> None:
        """Raise `EngineClosed` if it was closed while the disk worked: nothing would end what is begun now."""
        if self._closing is not None:
            raise EngineClosed

    # --- conversations

    async def create(self, *, policy: Policy | None = None, system: str = "") -> Conversation:
        """A new conversation. `system` is its system prompt, `policy` its rules."""
        conversation_id = str(uuid.uuid4())
        policy = self.with_models(self._policy if policy is None else policy)
        opened = make(Opened, event_id=f"opened-{conversation_id}", at=self.now(), system=system, policy=policy)
        step = begin(opened)
        log = await self.store.create(conversation_id, opened, step)
        self._check_open()
        loop = self._loop(conversation_id, ConversationProjection(step.state, (LogEntry.of(opened, step),)), log)
        self._loops.add(loop)
        return Conversation(self, loop)

    async def get(self, conversation_id: str) -> Conversation:
        """A handle on a conversation. Raises `UnknownConversation`."""
        return Conversation(self, await self._loops.get(checked_id(conversation_id)))

    async def list(self) -> tuple[Summary, ...]:
        """All conversations, newest first."""
        return await self.store.list()

    async def delete(self, conversation_id: str) -> None:
        """Remove a conversation and all that was said in it from the database.

        Raises `UnknownConversation`, and `StoreError` if the database does not let it go, in which case the
        conversation is as before. A caller that is cancelled stops waiting, but it is deleted all the same.
        """
        await asyncio.shield(asyncio.ensure_future(self._delete(checked_id(conversation_id))))

    async def _delete(self, conversation_id: str) -> None:
        await self.store.delete(conversation_id)
        await self._loops.drop(conversation_id, UnknownConversation(conversation_id))
        await self._courier.drop(conversation_id)
        if self._tracing is not None:
            self._tracing.drop(conversation_id)

    # --- for what belongs to this engine

    def now(self) -> datetime:
        """This moment, by the clock of the engine."""
        return self._clock.now()

    def answer(self, conversation_id: str, answer: Answer) -> None:
        """Hand in the answer to an effect: the one door by which a dispatcher's results come back. Returns at once.

        The answer is stored as soon as the conversation gets to it. One that is no longer awaited is dropped.
        """
        self._loops.answer(conversation_id, answer)

    def with_models(self, policy: Policy) -> Policy:
        """The policy, with the models of this engine. Raises `InvalidInput` for what is no policy."""
        policy = checked_policy(policy)
        for sentence in policy_warnings(policy, self._acts):
            logger.warning(sentence)
        return policy.model_copy(update={"models": self._models.specs})

    async def _load(self, conversation_id: str) -> Loop:
        loaded = await self.store.load(conversation_id)
        self._check_open()
        entries = await self.store.entries(conversation_id)
        memory = ConversationProjection(loaded.state, entries)
        loop = self._loop(conversation_id, memory, loaded.log)
        if left := self._left.pop(conversation_id, ()):
            await take_up(left, entries, loop.effect_context(), self._courier)
        return loop

    def _loop(self, conversation_id: str, memory: ConversationProjection, log: Log) -> Loop:
        history = ConversationHistory(memory, partial(self.store.entries, conversation_id))
        dispatcher, outbox, clock = self._dispatcher, self._outbox, self._clock
        loops, tracing = self._loops, self._tracing
        return self.loop_type(
            conversation_id, memory, log, history, dispatcher, outbox, clock, self._models.specs, loops, tracing
        )
