"""What an engine does: it opens its store, creates and finds conversations, takes in answers, and closes.

What an engine is put together from is decided in `engine.py`, which has the doors for applications.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from datetime import datetime
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..effects.clock import Clock
from ..effects.dispatcher import Performer
from ..effects.mcp.servers import McpServers
from ..effects.model.performers.asking import RunningAnswers
from ..effects.tools.registry import ToolRegistry
from ..effects.wire.definitions import wire_tools
from ..states.effects import Effect
from ..states.errors import EngineClosed, Refused
from ..states.events import Answer, Opened
from ..states.policy import Policy
from ..states.values.messages import Usage
from .access import ConversationAccess
from .agents.agents import EngineAgents
from .answering import AnswerIntake
from .bootstrap import DispatcherFactory, Performers, Source, build_channels, build_observers, build_tracing, wrap
from .choices.adoption import Adoption
from .choices.choices import Choices
from .choices.defaults import Defaults
from .choices.models import Models, WaitingTurns
from .choices.stored_faults import StoredFaults
from .composition.memory import EngineMemory
from .composition.performers import build_choices, build_performers, build_resumers, runs_all_tools
from .composition.providers import Providers
from .conversations.creation import Creation
from .conversations.deletion import Deletion
from .conversations.loop_factory import LoopFactory
from .conversations.registry import ConversationRegistry
from .conversations.take_over import TakeOver
from .lifetime import Lifetime
from .loop import Loop
from .outbox import OutboxTargets
from .ports import Dispatcher
from .projections.tree_feed import TreeFeed
from .recovery import PresentDeclarations
from .requests import checked_id
from .services.approved_arguments import ApprovedArguments
from .services.event_redactor import EventRedactor
from .services.loop_services import LoopServices

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..effects.channels.port import Channel
    from ..persistence.ports import Store
    from .settings import Settings


class RunningEngine(ConversationAccess):
    """Conversations in one store, and what they need to go on. It opens when it is entered or awaited."""

    def __init__(
        self,
        source: Source,
        models: Models,
        tools: ToolRegistry,
        *,
        channels: Iterable[Channel] = (),
        policy: Policy,
        settings: Settings,
        providers: Providers,
        servers: McpServers,
        clock: Clock,
        performers: Mapping[type[Effect], Performer],
        dispatcher: DispatcherFactory,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._source = source
        self._models = models
        self._servers = servers
        self._tools = tools
        self._clock = clock
        self._settings = settings
        self._loading: asyncio.Task[None] | None = None
        defaults = Defaults(models, models.with_windows(Policy(profiles=providers.profiles)).profiles)
        self._tracing = tracing = build_tracing(tracer_provider)
        self._deliveries = build_channels(channels, clock, tracing, self._left_by_others, speaks=settings.tts_enabled)
        self._memory = EngineMemory(lambda: self.store, settings, providers, clock)
        self._tree = TreeFeed()
        self._registry = ConversationRegistry(self._load, self._go_on)
        self._agents = agents = EngineAgents(lambda: self.store, self._registry, clock, self._create)
        self._waiting = waiting = WaitingTurns(lambda *turn: self._choices.find_fault_in_turn(*turn), clock)
        self._answering = RunningAnswers()
        self._performers = build_performers(
            models,
            tools,
            self._deliveries,
            clock,
            settings,
            providers,
            self._memory,
            agents,
            performers,
            waiting,
            self._answering,
            tracing,
        )
        self._dispatcher: Dispatcher = wrap("dispatcher", dispatcher(self._performers, clock, self.answer))
        self._redactor = EventRedactor(providers.redaction, tools)
        self._choices = build_choices(defaults, tools, performers, dispatcher, self._memory, self._redactor)
        self._stored_faults = StoredFaults(self._choices)
        resumers = build_resumers(self._deliveries, agents, performers)
        self._take_over = TakeOver(resumers, agents.orphans.end, waiting)
        self._loops = LoopFactory(self._services(defaults, tools, performers, dispatcher))
        self._lifetime = Lifetime(self._open, self._close)
        self._creation = self._creating(policy)
        self._answers = AnswerIntake(self._registry, lambda: self._lifetime.is_closing)

    def _creating(self, policy: Policy) -> Creation:
        return Creation(
            policy.model_copy(update={"models": Policy().models}),
            self._choices,
            self._redactor,
            self._loops,
            self._registry,
            self._lifetime,
            self.now,
            self._agents.wake_ups.note,
        )

    def _services(
        self, defaults: Defaults, tools: ToolRegistry, given: Performers, dispatcher: DispatcherFactory
    ) -> LoopServices:
        return LoopServices(
            self._dispatcher,
            OutboxTargets(self._performers),
            self._clock,
            Adoption(defaults),
            self._registry,
            build_observers(self._tracing, self._deliveries, self._agents.observers),
            self._settings.kept_updates,
            self._redactor,
            self._tree,
            ApprovedArguments(tools),
            PresentDeclarations(tools, is_complete=runs_all_tools(given, dispatcher)),
            read_only=self._source.read_only,
        )

    # --- opening and closing

    async def __aenter__(self) -> Self:
        await self._lifetime.open()
        return self

    async def _open(self) -> None:
        self._lifetime.store = await self._source.open()
        if self._source.read_only:
            return
        self._loading = self._models.get_ready()
        await self._servers.open()  # before the calls that a crash interrupted run again
        await self._agents.wake_ups.look_at_clock()
        await self._take_over.everything(self.store, self._registry)
        await self._agents.open()
        if self._source.store is not None:
            self._take_over.join(self._source.store, self._registry)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def delivered(self) -> None:
        """Return when everything that was said to users so far has been tried once on every channel, and every message
        to another agent was posted once; `send` does not wait for that. What was not taken is tried again later; the
        updates of a conversation tell of its channels."""
        self._lifetime.check_open()
        await self._dispatcher.wait_until_tried()
        await self._agents.wait_until_tried()
        await self._deliveries.wait_until_tried()

    async def close(self) -> None:
        """Stop driving, and let go of the database. What is stored is kept; a conversation that waits for a person
        goes on when the database is opened again, and so does a turn under way, as after a crash. Tools that run are
        told to stop, and have a second for it; one that returns all the same has finished, and its result is kept.

        What was said is tried once on every channel before, and what agents wrote to each other is posted once, which
        takes seconds where one hangs. What has not arrived then is tried again when the database is opened again; of a
        database in memory it is lost.

        Closing twice is closing once; a caller that is cancelled stops waiting, but the engine closes all the same.
        """
        await self._lifetime.close()

    async def _close(self) -> None:
        if self._lifetime.is_opening:
            self._registry.stop_loading(EngineClosed())
            self._servers.stop_opening()
            await self._lifetime.finish_opening()  # a lock half taken could not be given back
        if self._loading is not None:
            self._loading.cancel()
        store: Store | None = None
        waiting = self._registry.waiting
        handed: Set[str] = frozenset()
        try:
            await self._agents.close()  # this posts what waits, for which the store is read
            store = self._lifetime.take_store()
            await self._take_over.close()
            await self._registry.close(EngineClosed())
            self._tree.close()
            await self._deliveries.close()
            await self._answers.wait()
            handed = await self._take_over.hand_over(waiting, self._deliveries.left | self._agents.queues.left)
            await self._memory.close()
            await self._servers.close()
            if self._tracing is not None:
                self._tracing.close()
        finally:
            store = store or self._lifetime.take_store()  # not taken before if the agents failed to close
            if store is not None:
                self._take_over.leave()
                await self._source.close(store, self._take_over.claimed - handed)

    async def _left_by_others(self, conversation_id: str, effect_id: int, target: str) -> tuple[tuple[int, int], ...]:
        return await self._take_over.left_by_others(conversation_id, effect_id, target)

    def stop_updates(self) -> None:
        """End all iterators over updates, of this engine and of its conversations, behind what is stored by now. One
        that begins later ends behind its snapshot. Everything else goes on.

        To be called when a server is told to stop: servers wait until open responses have ended before they let an
        application close its engine. `stopping_updates` does it at a signal.
        """
        self._tree.close()
        self._registry.stop_updates()

    @contextmanager
    def stopping_updates(self, *signals: signal.Signals) -> Iterator[None]:
        """Return a context in which `stop_updates` is called when the process is told to stop: by SIGINT or SIGTERM, or
        the signals that are given. Whatever else handles them does so, too. Enter it in the main thread, behind
        whatever installs handlers: in the lifespan of an application, for example."""
        self.check_home()
        loop = asyncio.get_running_loop()
        numbers = signals or (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in numbers}

        def stop(number: int, frame: FrameType | None) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self.stop_updates)
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)
            elif handler is signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        for number in numbers:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is stop:
                    signal.signal(number, handler)

    async def check(self, *, servers: bool = True) -> tuple[str, ...]:
        """Make sure that the models can be asked at all and, unless `servers` is false, that the MCP servers can be
        reached, which are started for that if the engine is not open. Asks no model; the first call loads litellm,
        which takes seconds.

        Returns a sentence for each tool that is not offered although it was given or listed: its definition cannot be
        written so that providers take it, or a model has refused it. Where the engine has more tools than a request
        holds, a sentence names those that are left out if a conversation is offered all of them.

        Raises `ConfigurationError` for a name that litellm does not know, a provider without a key, or a server that
        cannot be reached.
        """
        await asyncio.to_thread(self._models.check)
        if servers:
            left_out = await self._servers.check()
        else:
            left_out = self._servers.left_out
        cannot_be_sent = wire_tools(self._tools.definitions(), " if all are offered together").left_out.values()
        return (*left_out, *cannot_be_sent, *self._models.refused_tools())

    def check_home(self) -> None:
        """Raise `EngineElsewhere` unless this is called in the event loop in which the engine was opened, as every
        method here does first."""
        self._lifetime.check_home()

    def __repr__(self) -> str:
        count = len(self._registry)
        held = f"{count} conversation{'' if count == 1 else 's'} in memory"
        return f"<{type(self).__name__} {self._source}: {'open' if self.is_open else 'not open'}, {held}>"

    def check_may_write(self) -> None:
        """Raise `Refused` with `read_only` if the engine was opened for reading only."""
        if self._source.read_only:
            raise Refused("read_only")

    @property
    def is_open(self) -> bool:
        """Whether the engine has opened, and has not begun to close."""
        return self._lifetime.is_open

    @property
    def server_faults(self) -> tuple[str, ...]:
        """A sentence for each MCP server that is not connected now: the engine does without it, and tries it again. And
        one for each reason why turns wait that an earlier process left, or that nobody sent a message for: their models
        are not known here, or have no key. They go on when the key is set, or in an engine that has it."""
        waiting = self._waiting.faults
        return (*self._servers.faults(), *(f"A turn waits for its model. {fault}" for fault in waiting))

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`."""
        return self._lifetime.store

    @property
    def choices(self) -> Choices:
        """What the conversations of this engine may choose."""
        return self._choices

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The names of the channels. Everything that is said to users goes out through each of them."""
        return self._deliveries.targets

    @property
    def in_memory(self) -> int:
        """How many conversations are in memory."""
        return len(self._registry)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The ids of the conversations that wait for a model, a tool, a timer or the like."""
        return self._registry.waiting

    @property
    def performers(self) -> Mapping[type[Effect], Performer]:
        """What carries out each type of effect."""
        return self._performers

    # --- conversations

    async def delete(self, conversation_id: str) -> None:
        """Remove a conversation, with its sub-agents and all that was said in it, from the database.

        When this returns it is gone for everybody, and what was said is overwritten. In a file of more than 8 MiB
        copies of parts of it may stand between other rows until the engine closes, or, if its process dies before, the
        next one opens: only then the file is rewritten, because everybody would wait for that.

        Raises `UnknownConversation`, and `StoreError` if the database does not let it go, in which case the
        conversation is as before, but sub-agents of it may be gone; `TracesLeft`, which is one, says that it is gone,
        but that traces are left until then. A caller that is cancelled stops waiting, but it is deleted all the same.
        """
        self.check_may_write()
        deletion = Deletion(self.store, self._registry, self._forget, self._agents.mail.return_unread)
        await deletion.delete(checked_id(conversation_id))

    async def _forget(self, conversation_id: str) -> None:
        self._take_over.drop(conversation_id)
        await self._deliveries.drop(conversation_id)
        await self._agents.drop(conversation_id)
        self._tree.delete(conversation_id)
        if self._tracing is not None:
            self._tracing.drop(conversation_id)

    # --- for dispatchers, and for engines that share a store

    def answer(self, conversation_id: str, answer: Answer) -> None:
        """Hand in the answer to an effect, as a dispatcher does. Returns at once.

        The answer is stored as soon as the conversation gets to it. It is dropped if its effect is not in flight or
        cannot have an answer of this type. It is also dropped while the engine closes; then its effect is asked for
        again when the conversation is taken over.

        Raises `InvalidInput` for what is not an answer, or does not hold what it declares. Then the effect still waits
        for its answer: hand in another one, such as an `EffectFailed`. Other threads give a function that does both to
        `loop.call_soon_threadsafe`, because an error that leaves this call there is only logged.
        """
        self.check_may_write()
        self._answers.take(conversation_id, answer)

    async def refresh(self, conversation_id: str) -> None:
        """Follow the steps that other engines over the same store have stored. Raises `UnknownConversation`."""
        await (await self._registry.read(checked_id(conversation_id))).catch_up()

    def spent_on(self, conversation_id: str) -> Usage:
        """Return about what has been spent on the answers of this conversation that are under way here."""
        return self._answering.spent_on(conversation_id)

    def now(self) -> datetime:
        """Return the current time, by the clock of the engine."""
        return self._clock.now()

    async def _create(self, conversation_id: str, opened: Opened) -> Loop:
        return await self._creation.create(conversation_id, opened)

    async def _go_on(self, loop: Loop) -> None:
        """Have a conversation go on with what an earlier process left in the middle, unless this engine only reads."""
        if not self._source.read_only:
            await self._take_over.loop(self.store, loop)

    async def _load(self, conversation_id: str) -> Loop:
        store = self.store
        loaded = await store.load(conversation_id)
        loop = await self._loops.loaded(store, conversation_id, loaded)
        self._lifetime.check_not_closed()
        if not self._source.read_only:
            self._stored_faults.log(conversation_id, loaded.context)
        return loop
