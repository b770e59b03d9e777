"""The engine: a store of conversations, and the models, tools and channels that they use."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..effects.clock import Clock, SystemClock
from ..effects.dispatcher import Performer
from ..effects.tools.registry import ToolRegistry
from ..states.effects import Effect
from ..states.errors import ConfigurationError, EngineClosed, UnknownConversation
from ..states.events import Answer
from ..states.machine import begin
from ..states.policy import presets
from ..states.policy.policy import ModelSpec, Policy
from .answering import AnswerIntake
from .bootstrap import (
    DispatcherFactory,
    Source,
    build_channels,
    build_performers,
    build_tracing,
    checked_dispatcher,
    checked_performers,
    wrap,
)
from .choices.choices import Choices
from .choices.models import Models
from .choices.opening import opening_of
from .conversation import Conversation
from .handles.awaiting import must_be_awaited
from .lifetime import Lifetime
from .loop import Loop
from .loop_factory import LoopFactory
from .outbox import OutboxTargets
from .ports import Dispatcher
from .registry import ConversationRegistry
from .requests import checked_id, checked_limit
from .settings import Settings
from .take_over import TakeOver

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..effects.channels.port import Channel
    from ..effects.model.port import Llm
    from ..persistence.ports import Store
    from ..persistence.records.summary import Summary
    from .blocking import BlockingEngine


class Engine:
    """Conversations in one store, and what they need to go on. Open it with `Engine.open`."""

    def __init__(
        self,
        source: Source,
        models: Models,
        tools: ToolRegistry,
        *,
        channels: Iterable[Channel] = (),
        policy: Policy,
        settings: Settings,
        clock: Clock,
        performers: Mapping[type[Effect], Performer],
        dispatcher: DispatcherFactory,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._source = source
        self._models = models
        self._choices = Choices(models, tools)
        self._policy = policy
        self._settings = settings
        self._clock = clock
        self._tracing = build_tracing(tracer_provider)
        self._deliveries = build_channels(channels, clock, self._tracing)
        self._performers = build_performers(models, tools, self._deliveries, clock, settings, performers, self._tracing)
        self._dispatcher: Dispatcher = wrap("dispatcher", dispatcher(self._performers, clock, self.answer))
        self._take_over = TakeOver(self._deliveries)
        self._registry = ConversationRegistry(self._load, lambda loop: self._take_over.loop(self.store, loop))
        self._loops = LoopFactory(
            self._dispatcher,
            OutboxTargets(self._performers),
            clock,
            models.specs,
            self._registry,
            () if self._tracing is None else (self._tracing,),
            settings.kept_updates,
        )
        self._lifetime = Lifetime(self._open, self._close)
        self._answers = AnswerIntake(self._registry, lambda: self._lifetime.is_closing)

    # --- opening and closing

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        store: Store | None = None,
        model: str | ModelSpec | Llm = "rehearsal",
        fallback_models: Iterable[str | ModelSpec | Llm] = (),
        tools: Iterable[Callable[..., Any] | str] = (),
        channels: Iterable[Channel] = (),
        policy: Policy | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        performers: Mapping[type[Effect], Performer] | None = None,
        dispatcher: Dispatcher | DispatcherFactory | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> Engine:
        """Return an engine over the database at `url` (a path, or `sqlite:///path`; `sqlite://` is in memory).

            async with Engine.open("sqlite:///dinner.db", model="openai/gpt-4.1-mini") as engine: ...

        It may be awaited instead (`engine = await Engine.open(…)`); then you must `await engine.close()`.

        `model` and `fallback_models` are names that litellm knows, `rehearsal`, or objects of the `Llm` port; a
        `ModelSpec` is a name together with the model's window, for models that litellm does not list. `tools` are
        functions, `@tool` functions, or names of built-in tools. Everything that is said to the user goes out through
        each of the `channels`, objects of the `Channel` port. `policy` is for conversations created without one; its
        models are replaced by those given here. `clock` tells the time and waits: by default the clock of the operating
        system, in tests a `turnwise.testing.ManualClock`. With a `tracer_provider` of OpenTelemetry, each turn, model
        request, run of a tool and attempt to deliver is a span; the global one,
        `opentelemetry.trace.get_tracer_provider()`, is used only if you pass it.

        Instead of a URL you may give an open `store`, an object of the `Store` port. It stays yours: close it after the
        engine. `performers` maps types of effect to what carries them out, in addition to the built-in performers or in
        place of them. A `dispatcher` replaces the one that runs performers as tasks of the event loop. It is an object
        of the port `turnwise.engine.ports.Dispatcher`, which passes answers to `engine.answer`, or a function that
        returns such an object; the function is called at once, with the performers, the clock and `engine.answer`.

        Raises `ConfigurationError` at once for arguments that cannot be what they are given as, and when it opens,
        `StoreError` for a database that cannot be used. Whether a model's provider is known and has a key is found by
        `engine.check()`, or else by the first turn, which fails and says so.
        """
        settings = Settings() if settings is None else settings
        policy = presets.assistant() if policy is None else policy
        clock = SystemClock() if clock is None else clock
        for given, kind in ((settings, Settings), (policy, Policy), (clock, Clock)):
            if not isinstance(given, kind):
                raise ConfigurationError(f"An engine takes {kind.__name__} as its {kind.__name__.lower()}.")
        return cls(
            Source(url, store),
            Models.of(model, fallback_models),
            ToolRegistry(tools),
            channels=channels,
            policy=policy,
            settings=settings,
            clock=clock,
            performers=checked_performers(performers),
            dispatcher=checked_dispatcher(dispatcher),
            tracer_provider=tracer_provider,
        )

    @classmethod
    def open_blocking(cls, url: str | Path | None = None, **options: Any) -> AbstractContextManager[BlockingEngine]:
        """Return the same engine for programs without an event loop; the options are those of `open`.

        with Engine.open_blocking("dinner.db", model="…") as engine:
            conversation = engine.create()
            turn = conversation.send("A table for two")
        """
        from .blocking import run_in_thread

        return run_in_thread(cls.open(url, **options))

    async def __aenter__(self) -> Engine:
        await self._lifetime.open()
        return self

    async def _open(self) -> None:
        self._lifetime.store = await self._source.open()
        self._models.warm_in_background()
        await self._take_over.everything(self.store, self._registry)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Engine]:
        return self.__aenter__().__await__()

    async def delivered(self) -> None:
        """Return when everything that was said to users so far has been tried once on every channel; `send` does not
        wait for that. What a channel did not take is tried again later, and the updates of its conversation tell."""
        self._lifetime.check_open()
        await self._dispatcher.wait_until_tried()
        await self._deliveries.wait_until_tried()

    async def close(self) -> None:
        """Stop driving, and let go of the database. What is stored is kept; a conversation that waits for a person
        goes on when the database is opened again, and so does a turn under way, as after a crash. Tools that run are
        told to stop, and have a second for it; one that returns all the same has finished, and its result is kept.

        What was said is tried once on every channel before, which takes seconds where one hangs. What has not arrived
        then is tried again when the database is opened again; of a database in memory it is lost.

        Closing twice is closing once; a caller that is cancelled stops waiting, but the engine closes all the same.
        """
        await self._lifetime.close()

    async def _close(self) -> None:
        if self._lifetime.is_opening:
            self._registry.stop_loading(EngineClosed())
            await self._lifetime.finish_opening()  # a lock half taken could not be given back
        store = self._lifetime.take_store()
        try:
            await self._registry.close(EngineClosed())
            await self._deliveries.close()
            await self._answers.wait()
            if self._tracing is not None:
                self._tracing.close()
        finally:
            if store is not None:
                await self._source.close(store, self._take_over.claimed)

    async def check(self) -> None:
        """Make sure that the models can be asked at all. Raises `ConfigurationError` for a name that litellm does not
        know, or a provider without a key. Sends no request; the first call loads litellm, which takes seconds."""
        await asyncio.to_thread(self._models.check)

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`."""
        return self._lifetime.store

    @property
    def registry(self) -> ConversationRegistry:
        """The conversations in memory."""
        return self._registry

    @property
    def performers(self) -> Mapping[type[Effect], Performer]:
        """What carries out each type of effect."""
        return self._performers

    # --- conversations

    @must_be_awaited("A conversation is created with `await`: write `conversation = await engine.create()`.")
    async def create(self, *, policy: Policy | None = None, system: str = "") -> Conversation:
        """Create a conversation. `system` is its system prompt, `policy` its rules."""
        conversation_id = str(uuid.uuid4())
        policy = self._policy if policy is None else policy
        opened = opening_of(conversation_id, self.now(), self._choices, policy=policy, system=system)
        step = begin(opened)
        store = self.store
        log = await store.create(conversation_id, opened, step)
        self._lifetime.check_not_closed()
        loop = self._loops.created(store, conversation_id, log, opened, step)
        self._registry.add(loop)
        return Conversation(self, loop)

    @must_be_awaited("A conversation is read with `await`: write `conversation = await engine.get(conversation_id)`.")
    async def get(self, conversation_id: str) -> Conversation:
        """Return a handle on a conversation. Nothing in it changes by that. Raises `UnknownConversation`."""
        return Conversation(self, await self._registry.read(checked_id(conversation_id)))

    async def list(
        self, *, owner: str | None = None, state: str | None = None, limit: int | None = None, before: str | None = None
    ) -> tuple[Summary, ...]:
        """Return a page of summaries, newest first; `before` is the id it follows. Raises `InvalidInput`."""
        return await self.store.list(owner=owner, state=state, limit=checked_limit(limit), before=before)

    async def delete(self, conversation_id: str) -> None:
        """Remove a conversation and all that was said in it from the database.

        Raises `UnknownConversation`, and `StoreError` if the database does not let it go, in which case the
        conversation is as before. A caller that is cancelled stops waiting, but it is deleted all the same.
        """
        await asyncio.shield(asyncio.ensure_future(self._delete(checked_id(conversation_id))))

    async def _delete(self, conversation_id: str) -> None:
        await self.store.delete(conversation_id)
        await self._registry.drop(conversation_id, UnknownConversation(conversation_id))
        await self._deliveries.drop(conversation_id)
        if self._tracing is not None:
            self._tracing.drop(conversation_id)

    # --- for dispatchers, and for engines that share a store

    def answer(self, conversation_id: str, answer: Answer) -> None:
        """Hand in the answer to an effect, as a dispatcher does. Returns at once.

        The answer is stored as soon as the conversation gets to it. It is dropped if its effect is not in flight or
        cannot have an answer of this type. It is also dropped while the engine closes; then its effect is asked for
        again when the conversation is taken over. Other threads call this by `loop.call_soon_threadsafe`. Raises
        `InvalidInput` for what is not an answer.
        """
        self._answers.take(conversation_id, answer)

    async def refresh(self, conversation_id: str) -> None:
        """Follow the steps that other engines over the same store have stored. Raises `UnknownConversation`."""
        await (await self._registry.read(checked_id(conversation_id))).catch_up()

    def now(self) -> datetime:
        """Return the current time, by the clock of the engine."""
        return self._clock.now()

    def with_models(self, policy: Policy) -> Policy:
        """Return the policy with the models of this engine. Raises `InvalidInput` for what is not a policy."""
        return self._choices.rules(policy)

    async def _load(self, conversation_id: str) -> Loop:
        store = self.store
        loaded = await store.load(conversation_id)
        self._lifetime.check_not_closed()
        return self._loops.loaded(store, conversation_id, loaded)
