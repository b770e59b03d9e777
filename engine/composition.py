"""The composition root: the one place that knows which performer carries out which effect.

An engine is put together from a store, its settings, and what an application gives it beside its models, tools and
channels: its `Providers`. What the application leaves out, and what stands around the ports of an engine that is
observed, is decided here and nowhere else, so every other part is handed what it works with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..effects.channels.delivery import DeliveryDispatcher, DeliveryPerformer
from ..effects.channels.port import Channel, TurnEndListener
from ..effects.clock import Clock, TimerPerformer
from ..effects.context import EffectContext
from ..effects.dispatcher import InProcessDispatcher, Performer
from ..effects.location import Location, LocationSource, Locator, location_source
from ..effects.mcp.server import McpServer
from ..effects.model.performers.asking import ModelCaller, RunningAnswers
from ..effects.model.performers.llm_request import LlmRequestPerformer
from ..effects.model.performers.profile_selection import ProfileSelectionPerformer
from ..effects.model.performers.summaries import CompactionPerformer, SummaryPerformer
from ..effects.model.performers.verification import VerificationPerformer
from ..effects.recall.performer import DocumentReader, Enrichment, RecallPerformer, RecentDialogue
from ..effects.recall.ports import DocumentSource, Embed, Memory
from ..effects.recall.search import ConversationSearch, Embedding, VectorSearch, scope_of
from ..effects.redaction.redaction import Redaction
from ..effects.retry_queues import Earlier, Resumable
from ..effects.tools.catalogue import RECALL_CONVERSATION, names_of
from ..effects.tools.performers import ReconciliationPerformer, ResumptionPerformer, ToolPerformer
from ..effects.tools.registry import ToolRegistry
from ..persistence.opening import open_store
from ..persistence.ports import Store
from ..states.effects import (
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    RecallMemory,
    ReconcileTool,
    RequestLlm,
    ResumeTool,
    SelectProfile,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from ..states.errors import ConfigurationError, StoreError
from ..states.events import Answer, Event, RecentText
from ..states.policy import ModelSpec, Profile, Recent
from ..states.states import State
from ..states.step import Step
from ..states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from .agents.agents import EngineAgents
from .choices import Choices, RuleChecks
from .models import Defaults, Models, WaitingTurns
from .ports import Dispatcher, Observer
from .redactor import EventRedactor

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .settings import Settings
    from .tracing import Tracing

logger = logging.getLogger("turnwise.engine")
channels_logger = logging.getLogger("turnwise.channels")

Performers = Mapping[type[Effect], Performer]
"""The performer of each kind of effect. An effect without one is answered with a failure."""

_FIRST_TO_ASK = (SelectProfile, RecallMemory, RequestLlm, CompactHistory)
"""The effects of which one is the first in a turn to ask a model."""


def build_performers(
    models: Models,
    tools: ToolRegistry,
    deliveries: DeliveryDispatcher,
    clock: Clock,
    settings: Settings,
    providers: Providers,
    memory: EngineMemory,
    agents: EngineAgents,
    given: Performers,
    waiting: WaitingTurns,
    answering: RunningAnswers,
    tracing: Tracing | None = None,
) -> Performers:
    """Return the performer of each kind of effect: `given` adds to the built-in ones, or replaces them. The first that
    asks a model in a turn waits as long as that cannot be asked at all."""

    def caller(silence: float, whole: float | None = None) -> ModelCaller:
        asking = ModelCaller(models.find, silence, whole, answering)
        return asking if tracing is None else tracing.asking(asking)

    asking = caller(settings.llm_chat_timeout_sec, settings.llm_chat_whole_timeout_sec)
    performers: dict[type[Effect], Performer] = {
        SelectProfile: ProfileSelectionPerformer(
            caller(settings.llm_profile_select_timeout_sec), clock, memory.recent, settings.llm_profile_select_model
        ),
        RecallMemory: memory.performer(caller(settings.llm_tools_timeout_sec)),
        RequestLlm: LlmRequestPerformer(asking, tools, clock, _build_locator(settings, providers, clock)),
        VerifyWork: VerificationPerformer(asking, clock),
        SummarizeTurn: SummaryPerformer(asking, clock),
        CompactHistory: CompactionPerformer(asking, clock),
        ExecuteTool: ToolPerformer(tools, clock, settings.max_result, memory.search, agents.directory),
        ResumeTool: ResumptionPerformer(clock),
        ReconcileTool: ReconciliationPerformer(tools, clock, settings.max_result),
        StartTimer: TimerPerformer(clock),
        DeliverToUser: DeliveryPerformer(deliveries),
        **agents.performers(tools),
    }
    performers = {
        **performers,
        **{kind: _when_askable(performers[kind], waiting) for kind in _FIRST_TO_ASK},
        **given,
    }
    return wrap("performers", performers if tracing is None else tracing.performers(performers))


def _when_askable(perform: Performer, waiting: WaitingTurns) -> Performer:
    """Return the performer, which begins once the models of its turn can be asked."""

    async def when_askable(effect: Any, context: EffectContext) -> Answer | None:
        await waiting.until_askable(context.conversation_id, context.context)
        return await perform(effect, context)

    return when_askable


def build_resumers(
    deliveries: DeliveryDispatcher, agents: EngineAgents, given: Performers
) -> Mapping[type[Effect], Resumable]:
    """Return what goes on with each type of effect that an earlier process left in the outbox. For a type of which the
    application has `given` the performer, that is its own `resume`, if it has one: nobody else knows its targets."""
    built_in = {kind: resumer for kind, resumer in agents.resumers.items() if kind not in given}
    performers: Mapping[type[Effect], object] = given
    own = {kind: one for kind, one in performers.items() if isinstance(one, Resumable)}
    return {DeliverToUser: DeliveryPerformer(deliveries), **built_in, **own}


DispatcherFactory = Callable[[Performers, Clock, Callable[[str, Answer], None]], Dispatcher]
"""Makes the dispatcher of an engine from its performers, its clock, and `Engine.answer`."""


def runs_all_tools(given: Performers, dispatcher: DispatcherFactory) -> bool:
    """Whether the engine runs every tool itself, and neither a performer nor a dispatcher of the application does."""
    return dispatcher is InProcessDispatcher and ExecuteTool not in given


def build_choices(
    defaults: Defaults,
    tools: ToolRegistry,
    given: Performers,
    dispatcher: DispatcherFactory,
    memory: EngineMemory,
    redactor: EventRedactor,
) -> Choices:
    """Return what conversations may choose. A dispatcher of the application may carry out any effect, and where the
    application asks the models itself, by a performer that it has `given`, it may offer them other tools."""
    is_built_in = dispatcher is InProcessDispatcher
    offers_tools = is_built_in and RequestLlm not in given
    needs_store = is_built_in and RecallMemory not in given
    can_recall = (lambda: memory.store.is_searchable) if needs_store else (lambda: True)
    return Choices(RuleChecks(defaults.models, tools, offers_tools, can_recall, lambda: redactor.fault), defaults)


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
    used = tuple(channel for channel in channels if speaks or not getattr(channel, "is_speech", False))
    return DeliveryDispatcher(wrap("channels", used), clock, None if tracing is None else tracing.attempt, earlier)


def build_observers(
    tracing: Tracing | None, deliveries: DeliveryDispatcher, agents: Iterable[Observer]
) -> tuple[Observer, ...]:
    """Return what sees the steps of conversations: the tracing, the channels that want to know when turns end, and what
    belongs to the `agents`."""
    turn_ends = TurnEnds(deliveries.channels)
    return (*((tracing,) if tracing is not None else ()), *((turn_ends,) if turn_ends else ()), *agents)


class TurnEnds:
    """Observes the steps of an engine, and tells each of the `channels` that is a `TurnEndListener` how turns end.

    A channel alone cannot know whether more will be said in a turn. One that speaks needs to, because an assistant
    begins to listen again when everything was spoken.
    """

    def __init__(self, channels: Iterable[object]) -> None:
        self._listeners = [channel for channel in channels if isinstance(channel, TurnEndListener)]

    def __bool__(self) -> bool:
        """Whether any channel listens."""
        return bool(self._listeners)

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """Tell the channels if the turn ended. Every error of a channel is logged."""
        if step.ended is None:
            return
        for listener in self._listeners:
            try:
                listener.turn_ended(conversation_id, step.ended)
            except BaseException:  # nothing here waits, so it is the channel's own, and must not end the event loop
                channels_logger.warning("A channel failed at the end of a turn.", exc_info=True)


def build_tracing(provider: TracerProvider | None) -> Tracing | None:
    """Return the tracing of a host that asks for it; otherwise nothing is imported. Raises `ConfigurationError`."""
    if provider is None:
        return None
    try:
        from .tracing import Tracing
    except ModuleNotFoundError:
        raise ConfigurationError('Tracing needs the package opentelemetry-api: pip install "turnwise[otel]".') from None
    return Tracing(provider)


def _build_locator(settings: Settings, providers: Providers, clock: Clock) -> Locator:
    """Return what tells where the user is, asking nobody that the settings do not allow.

    An application that gives a source of its own has thereby allowed it, unless the settings forbid it.
    """
    is_given = providers.location is not None and "location_enabled" not in settings.model_fields_set
    source = location_source(
        providers.location,
        enabled=settings.location_enabled or is_given,
        ip_address=settings.location_ip_address,
        auto_detect=settings.location_auto_detect,
    )
    return Locator(source, clock)


class EngineMemory:
    """What an engine recalls for its conversations. Close it before the store is closed."""

    def __init__(self, store: Callable[[], Store], settings: Settings, providers: Providers, clock: Clock) -> None:
        self.store = _StoreMemory(store)
        self._settings = settings
        self._dialogue = RecentDialogue(self.store, clock)
        self._clock = clock
        seconds = settings.llm_embed_timeout_sec
        embedding = None if providers.embed is None else Embedding(providers.embed, seconds)
        vectors = None if embedding is None else VectorSearch(self.store, embedding)
        self.search = ConversationSearch(self.store, settings.memory_enrichment_max_results, vectors)
        documents = providers.documents
        self._documents = None if documents is None else DocumentReader(documents, settings.llm_tools_timeout_sec)

    def performer(self, asking: ModelCaller) -> RecallPerformer:
        """Return the performer of `RecallMemory`, which asks models by `asking`."""
        enrichment = Enrichment(asking, self._clock, self._settings.llm_tools_model)
        return RecallPerformer(self._dialogue, self.search, enrichment, self._clock, self._documents)

    async def recent(self, context: EffectContext) -> tuple[RecentText, ...]:
        """Return the dialogue of the last minutes, in a conversation whose requests look back only some minutes."""
        dialogue = context.policy.dialogue
        if not isinstance(dialogue, Recent) or not self.store.is_searchable:
            return ()
        scope = scope_of(context, await context.transcript())
        return await self._dialogue.look_up(scope, dialogue.seconds, context.redact)

    async def stop(self) -> None:
        """Stop what runs in the background."""
        await self.search.stop()


_NOT_SEARCHABLE = "The store of this engine cannot search older conversations."


class _StoreMemory:
    """The port `Memory`, filled by a store that is opened later. Its methods raise `ConfigurationError` if the store
    cannot search."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    @property
    def is_searchable(self) -> bool:
        """Whether the store can search. Raises `EngineClosed`."""
        return implements(self._store(), Memory)

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """See `Memory`."""
        return await self._searchable().search(query)

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """See `Memory`."""
        return await self._searchable().recent(scope, since)

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """See `Memory`."""
        return await self._searchable().without_vectors(scope, space, limit)

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """See `Memory`."""
        await self._searchable().keep_vectors(space, vectors)

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """See `Memory`."""
        return await self._searchable().nearest(query)

    def _searchable(self) -> Memory:
        store: Any = self._store()
        if not implements(store, Memory):
            raise ConfigurationError(_NOT_SEARCHABLE)
        memory: Memory = store
        return memory


@dataclass(frozen=True)
class Providers:
    """What the rules of a conversation may need: profiles, redaction, location, documents, embeddings, MCP servers."""

    profiles: tuple[Profile, ...] = ()
    redaction: Redaction | None = None
    location: LocationSource | None = None
    documents: DocumentSource | None = None
    embed: Embed | None = None
    mcps: Mapping[str, McpServer] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        profiles: Iterable[Profile],
        redaction: Redaction | None,
        location: LocationSource | Location | str | None,
        documents: DocumentSource | None,
        embed: Embed | None,
        mcps: Mapping[str, McpServer] | None,
    ) -> Providers:
        """Return what was given, with the profiles and the MCP servers of the settings. What is given replaces what
        the settings have under the same name. Raises `ConfigurationError` for what cannot be what it is given as."""
        return cls(
            _narrowed(_with_profiles_of(settings, _named_once(profiles)), settings.profile_allowed_tools),
            redaction,
            _function("location", _fixed(location) if isinstance(location, Location | str) else location),
            _function("documents", documents),
            _function("embed", embed),
            {**settings.mcps, **(mcps or {})},
        )


def _narrowed(profiles: tuple[Profile, ...], allowed: Mapping[str, tuple[str, ...]]) -> tuple[Profile, ...]:
    known = {profile.name for profile in profiles}
    if unknown := next((name for name in allowed if name not in known), None):
        raise ConfigurationError(f"The setting profile_allowed_tools names the profile {unknown}, which is not known.")
    return tuple(
        _with_at_most(profile, allowed[profile.name]) if profile.name in allowed else profile for profile in profiles
    )


def _with_at_most(profile: Profile, allowed: tuple[str, ...]) -> Profile:
    """The profile with no other tools than these. To recall counts as one of them, by whom it is asked for: a model
    that calls the tool, or the turn that begins."""
    tools = allowed if profile.tools is None else tuple(name for name in profile.tools if name in allowed)
    may_recall = any(RECALL_CONVERSATION in names_of(name) for name in allowed)
    return profile.replace(tools=tools, recall=profile.recall and may_recall)


def _named_once(given: Iterable[Profile]) -> tuple[Profile, ...]:
    profiles = tuple(given)
    names = [profile.name for profile in profiles]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"Two profiles are called {repeated}.")
    return profiles


def _with_profiles_of(settings: Settings, given: tuple[Profile, ...]) -> tuple[Profile, ...]:
    names = {profile.name for profile in given}
    return (*given, *(profile for name, profile in settings.profiles.items() if name not in names))


def _fixed(location: Location | str) -> LocationSource:
    return lambda: location


V = TypeVar("V")


def _function(name: str, given: V) -> V:
    if given is not None and (isclass(given) or not callable(given)):
        raise ConfigurationError(f"An engine takes a function as its {name}.")
    return given


def models_named(settings: Settings, profiles: Iterable[Profile]) -> Iterator[ModelSpec]:
    """Yield the models that profiles and settings name."""
    yield from (profile.model for profile in profiles if profile.model is not None)
    for name in (settings.llm_profile_select_model, settings.llm_tools_model):
        if name is not None:
            yield ModelSpec(name=name)


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

    async def release(self, store: Store, claimed: Iterable[str]) -> None:
        """Close the store. One that belongs to whoever has opened it stays open, and what was claimed of it is released
        for the next engine."""
        if self.store is None:
            await store.close()
            return
        try:
            await store.release(claimed)
        except StoreError as error:
            logger.warning("The conversations of a closed engine could not be released: %s", error)


def checked_performers(performers: Any) -> Performers:
    """Return performers given by type of effect. Raises `ConfigurationError`."""
    if performers is None:
        return {}
    for kind, performer in performers.items():
        if not (isclass(kind) and issubclass(kind, Effect)) or isclass(performer) or not callable(performer):
            raise ConfigurationError("A performer is a function of an effect and its context, under a type of effect.")
    return dict(performers)


_NOT_A_DISPATCHER = "A dispatcher is an object that implements the port `Dispatcher`, or a function that makes one."


def checked_dispatcher(dispatcher: Dispatcher | DispatcherFactory | None) -> DispatcherFactory:
    """Return what makes the dispatcher. It raises `ConfigurationError` if that is not one, and so does this."""
    if dispatcher is None:
        return InProcessDispatcher
    given: Any = dispatcher
    if not implements(given, Dispatcher) and not callable(given):
        raise ConfigurationError(_NOT_A_DISPATCHER)

    def make(performers: Performers, clock: Clock, answer: Callable[[str, Answer], None]) -> Dispatcher:
        made = given if implements(given, Dispatcher) else given(performers, clock, answer)
        if not implements(made, Dispatcher):
            raise ConfigurationError(_NOT_A_DISPATCHER)
        dispatcher: Dispatcher = made
        return dispatcher

    return make


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


T = TypeVar("T")


def wrap(port: str, given: T) -> T:
    """Return what an engine uses for this port, a field of `PortWrappers`, in place of what it was given."""
    for wrappers in _WRAPPERS.get():
        wrapper = getattr(wrappers, port)
        if wrapper is not None:
            given = wrapper(given)
    return given


def implements(given: object, port: type) -> bool:
    """Whether an object has every method of a port. Methods that it gets by delegation count."""
    methods = (name for name, member in vars(port).items() if callable(member) and not name.startswith("_"))
    return not isclass(given) and all(callable(getattr(given, name, None)) for name in methods)
