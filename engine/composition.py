"""The composition root: the one place that knows which performer carries out which effect.

An engine is put together from `EngineParts`. What the application leaves out, and what stands around the ports of an
engine that is observed, is decided here and nowhere else, so every other part is handed what it works with.
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

from pydantic import ValidationError

from ..effects.channels.delivery import DeliveryDispatcher, DeliveryPerformer
from ..effects.channels.port import Channel
from ..effects.clock import Clock, TimerPerformer
from ..effects.context import EffectContext
from ..effects.dispatcher import InProcessDispatcher, Performer
from ..effects.location import Location, LocationSource, Locator, location_source
from ..effects.mcp.servers import McpServers
from ..effects.model.outputs import OutputForms
from ..effects.model.performers.asking import ModelCaller, RunningAnswers
from ..effects.model.performers.llm_request import LlmRequestPerformer
from ..effects.model.performers.profile_selection import ProfileSelectionPerformer
from ..effects.model.performers.summaries import CompactionPerformer, SummaryPerformer
from ..effects.model.performers.verification import VerificationPerformer
from ..effects.recall.performer import DocumentReader, Enrichment, RecallPerformer, RecentDialogue
from ..effects.recall.ports import DocumentSource, Embed, Memory
from ..effects.recall.search import ConversationSearch, Embedding, VectorSearch, scope_of
from ..effects.redaction.redaction import Redaction
from ..effects.retry_queues import Admit, Earlier, Resumable
from ..effects.tools.catalogue import RECALL_CONVERSATION, names_of
from ..effects.tools.performers import ReconciliationPerformer, ResumptionPerformer, ToolPerformer
from ..effects.tools.registry import ToolRegistry
from ..persistence.folder_files import FolderFiles
from ..persistence.opening import CONNECTIONS, address_of, open_store
from ..persistence.ports import FileStore, SharedStore, Store
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
from ..states.events import Answer, RecentText
from ..states.policy import ModelSpec, Policy, Profile, Recent
from ..states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ..states.values.output import GivenOutput
from ..states.values.value import adapter_of
from .agents.agents import EngineAgents
from .choices import Choices, RuleChecks
from .custody import once_confirmed
from .models import BlockedTurns, Models
from .outputs import AnyOutput, named_output
from .ports import Dispatcher, Observer
from .redactor import EventRedactor

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .settings import Settings
    from .tracing import Tracing

logger: logging.Logger = logging.getLogger("turnwise.engine")

Performers = Mapping[type[Effect], Performer]
"""The performer of each kind of effect. An effect without one is answered with a failure."""

DispatcherFactory = Callable[[Performers, Clock, Callable[[str, Answer], None]], Dispatcher]
"""Makes the dispatcher of an engine from its performers, its clock, and `Engine.answer`."""

_FIRST_TO_ASK = (SelectProfile, RecallMemory, RequestLlm, CompactHistory)
"""The effects of which one is the first in a turn to ask a model."""


@dataclass(frozen=True, kw_only=True)
class EngineParts:
    """What an engine is put together from, as its application gave it to `Engine.open`: checked, and with what it left
    out. `servers` are the MCP servers whose tools are among `tools`; `performers` add to the built-in ones."""

    source: Source
    models: Models
    tools: ToolRegistry
    servers: McpServers
    policy: Policy
    settings: Settings
    clock: Clock
    performers: Performers
    dispatcher: DispatcherFactory
    channels: Iterable[Channel] = ()
    profiles: tuple[Profile, ...] = ()
    redaction: Redaction | None = None
    location: LocationSource | None = None
    documents: DocumentSource | None = None
    embed: Embed | None = None
    forms: OutputForms = field(default_factory=OutputForms)
    """The forms of typed answers that the application has named."""

    tracing: Tracing | None = None
    worker: bool = True
    """Whether the engine looks after conversations, where several processes share its store."""

    @property
    def has_custody(self) -> bool:
        """Whether the store is shared, so that the engine carries out only what it has the custody of."""
        return self.source.is_shared and not self.source.read_only

    @property
    def performs_itself(self) -> bool:
        """Whether the engine runs performers as tasks of its own, and no dispatcher of the application does."""
        return self.dispatcher is InProcessDispatcher

    @property
    def runs_all_tools(self) -> bool:
        """Whether the engine runs every tool itself, and neither a performer nor a dispatcher of the application
        does."""
        return self.performs_itself and ExecuteTool not in self.performers


def build_performers(
    parts: EngineParts,
    deliveries: DeliveryDispatcher,
    memory: EngineMemory,
    agents: EngineAgents,
    blocked: BlockedTurns,
    answering: RunningAnswers,
    confirm: Admit | None,
) -> Performers:
    """Return the performer of each kind of effect. The first that asks a model in a turn waits as long as that cannot
    be asked at all, and each first of all for `confirm`, if it is given."""
    settings, tools, clock, tracing = parts.settings, parts.tools, parts.clock, parts.tracing

    def caller(silence: float, whole: float | None = None) -> ModelCaller:
        asking = ModelCaller(parts.models.find, silence, whole, answering)
        return asking if tracing is None else tracing.asking(asking)

    asking = caller(settings.llm_chat_timeout_sec, settings.llm_chat_whole_timeout_sec)
    performers: dict[type[Effect], Performer] = {
        SelectProfile: ProfileSelectionPerformer(
            caller(settings.llm_profile_select_timeout_sec), clock, memory.recent, settings.llm_profile_select_model
        ),
        RecallMemory: memory.performer(caller(settings.llm_tools_timeout_sec)),
        RequestLlm: LlmRequestPerformer(asking, tools, clock, _build_locator(parts), parts.forms),
        VerifyWork: VerificationPerformer(asking, clock),
        SummarizeTurn: SummaryPerformer(asking, clock),
        CompactHistory: CompactionPerformer(asking, clock),
        ExecuteTool: ToolPerformer(tools, clock, settings.max_stored_result, memory.search, agents.directory),
        ResumeTool: ResumptionPerformer(clock),
        ReconcileTool: ReconciliationPerformer(tools, clock, settings.max_stored_result),
        StartTimer: TimerPerformer(clock),
        DeliverToUser: DeliveryPerformer(deliveries),
        **agents.performers(tools),
    }
    for kind in _FIRST_TO_ASK:
        performers[kind] = blocked.once_askable(performers[kind])
    performers |= parts.performers
    wrapped = wrap("performers", performers if tracing is None else tracing.performers(performers))
    return wrapped if confirm is None else once_confirmed(wrapped, confirm)


def build_resumers(
    deliveries: DeliveryDispatcher, agents: EngineAgents, given: Performers
) -> Mapping[type[Effect], Resumable]:
    """Return what goes on with each type of effect that an earlier process left in the outbox. For a type of which the
    application has `given` the performer, that is its own `resume`, if it has one: nobody else knows its targets."""
    built_in = {kind: resumer for kind, resumer in agents.resumers.items() if kind not in given}
    performers: Mapping[type[Effect], object] = given
    own = {kind: one for kind, one in performers.items() if isinstance(one, Resumable)}
    return {DeliverToUser: DeliveryPerformer(deliveries), **built_in, **own}


def build_choices(parts: EngineParts, memory: EngineMemory, redactor: EventRedactor) -> Choices:
    """Return what conversations may choose. A dispatcher of the application may carry out any effect, and where the
    application asks the models itself, by a performer of its own, it may offer them other tools."""
    offers_tools = parts.performs_itself and RequestLlm not in parts.performers
    needs_store = parts.performs_itself and RecallMemory not in parts.performers
    can_recall = (lambda: memory.store.is_searchable) if needs_store else (lambda: True)
    checks = RuleChecks(parts.models, parts.tools, offers_tools, can_recall, lambda: redactor.fault)
    return Choices(checks, parts.models.with_windows(Policy(profiles=parts.profiles)).profiles, parts.forms)


def build_channels(parts: EngineParts, earlier: Earlier | None, confirm: Admit | None) -> DeliveryDispatcher:
    """Return the dispatcher of deliveries; without speech channels where the settings say so. `earlier` finds what
    other engines have yet to deliver, and each attempt waits for `confirm`. Raises `ConfigurationError`."""
    speaks, tracing = parts.settings.tts_enabled, parts.tracing
    used = tuple(channel for channel in parts.channels if speaks or not getattr(channel, "is_speech", False))
    attempt = None if tracing is None else tracing.attempt
    return DeliveryDispatcher(wrap("channels", used), parts.clock, attempt, earlier, confirm)


def build_observers(
    tracing: Tracing | None, deliveries: DeliveryDispatcher, agents: Iterable[Observer]
) -> tuple[Observer, ...]:
    """Return what sees the steps of conversations: the tracing, the deliveries if channels want to know of more than
    those, and what belongs to the `agents`."""
    optional = (tracing, deliveries if deliveries.listeners or deliveries.written else None)
    return (*(one for one in optional if one is not None), *agents)


def build_tracing(provider: TracerProvider | None) -> Tracing | None:
    """Return the tracing of a host that asks for it; otherwise nothing is imported. Raises `ConfigurationError`."""
    if provider is None:
        return None
    try:
        from .tracing import Tracing
    except ModuleNotFoundError:
        raise ConfigurationError('Tracing needs the package opentelemetry-api: pip install "turnwise[otel]".') from None
    return Tracing(provider)


def _build_locator(parts: EngineParts) -> Locator:
    """Return what tells where the user is, asking nobody that the settings do not allow.

    An application that gives a source of its own has thereby allowed it, unless the settings forbid it.
    """
    settings = parts.settings
    is_given = parts.location is not None and "location_enabled" not in settings.model_fields_set
    source = location_source(
        parts.location,
        enabled=settings.location_enabled or is_given,
        ip_address=settings.location_ip_address,
        auto_detect=settings.location_auto_detect,
    )
    return Locator(source, parts.clock)


class EngineMemory:
    """What an engine recalls for its conversations. Close it before the store is closed."""

    def __init__(self, store: Callable[[], Store], parts: EngineParts) -> None:
        settings, documents = parts.settings, parts.documents
        self.store: _StoreMemory = _StoreMemory(store)
        self._model = settings.llm_tools_model
        self._dialogue = RecentDialogue(self.store, parts.clock)
        self._clock = parts.clock
        embedding = None if parts.embed is None else Embedding(parts.embed, settings.llm_embed_timeout_sec)
        vectors = None if embedding is None else VectorSearch(self.store, embedding)
        self.search: ConversationSearch = ConversationSearch(
            self.store, settings.memory_enrichment_max_results, vectors
        )
        self._documents = None if documents is None else DocumentReader(documents, settings.llm_tools_timeout_sec)

    def performer(self, asking: ModelCaller) -> RecallPerformer:
        """Return the performer of `RecallMemory`, which asks models by `asking`."""
        enrichment = Enrichment(asking, self._clock, self._model)
        return RecallPerformer(self._dialogue, self.search, enrichment, self._clock, self._documents)

    async def recent(self, context: EffectContext) -> tuple[RecentText, ...]:
        """Return the dialogue of the last minutes, in a conversation whose requests look back only some minutes."""
        dialogue = context.policy.dialogue
        if not isinstance(dialogue, Recent) or not self.store.is_searchable:
            return ()
        scope = scope_of(context, await context.transcript())
        return await self._dialogue.look_up(scope, dialogue.seconds, context)

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


def profiles_of(settings: Settings, given: Iterable[Profile]) -> tuple[Profile, ...]:
    """Return the profiles that were given, then those of the settings under other names. Raises `ConfigurationError`
    for two of one name, and if the settings allow tools to a profile that is not known."""
    profiles = _named_once(given)
    names = {profile.name for profile in profiles}
    others = (profile for name, profile in settings.profiles.items() if name not in names)
    return _narrowed((*profiles, *others), settings.profile_allowed_tools)


def forms_of(
    outputs: Iterable[AnyOutput],
    renderings: Mapping[str, Callable[[Any], str]] | None,
    policy: Policy,
    profiles: Iterable[Profile],
) -> OutputForms:
    """Return the forms of typed answers that an application names: by themselves, in its policy and in its profiles.
    Raises `ConfigurationError`."""
    if isinstance(outputs, str | dict) or not isinstance(outputs, Iterable):
        raise ConfigurationError("The outputs of an engine are given as a list.")
    functions = dict(renderings or {})
    for name, function in functions.items():
        checked_function(f"rendering {name}", function)
    forms = OutputForms(functions)
    for given in outputs:
        try:
            forms.admit(adapter_of(GivenOutput).validate_python(named_output(given)))
        except ValidationError as error:
            raise ConfigurationError(f"An output of the engine is not valid: {error.errors()[0]['msg']}.") from None
    forms.admit_rules(policy)
    forms.admit_rules(Policy(profiles=tuple(profiles)))
    return forms


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


V = TypeVar("V")


def checked_function(name: str, given: V) -> V:
    """Return what an application gives as a function, or None. Raises `ConfigurationError`."""
    if given is not None and (isclass(given) or not callable(given)):
        raise ConfigurationError(f"An engine takes a function as its {name}.")
    return given


def located(given: LocationSource | Location | str | None) -> LocationSource | None:
    """Return the function that says where the user is; of a place that was given, that place. Raises
    `ConfigurationError`."""
    return (lambda: given) if isinstance(given, Location | str) else checked_function("location", given)


def models_named(settings: Settings, profiles: Iterable[Profile]) -> Iterator[ModelSpec]:
    """Yield the models that profiles and settings name."""
    yield from (profile.model for profile in profiles if profile.model is not None)
    for name in (settings.llm_profile_select_model, settings.llm_tools_model):
        if name is not None:
            yield ModelSpec(name=name)


_NO_SOURCE = "An engine takes the URL of a database, as an argument or as the setting db, or an open store."
_NO_FILE_STORE = (
    "Files are stored by an object that implements the port `FileStore`, in an engine that opens the database itself."
)
_TWO_SOURCES = "An engine takes either the URL of a database or an open store, not both."


@dataclass(frozen=True)
class Source:
    """Where the store of an engine comes from: a URL, or whoever has opened it.

    `connections` is how many connections to a server the store may hold, and `file_store` where it puts the bytes of
    files. Raises `ConfigurationError` unless exactly one
    of URL and store is given.
    """

    url: str | Path | None
    store: Store | None
    read_only: bool = False
    connections: int = CONNECTIONS
    file_store: FileStore | None = None

    @classmethod
    def of(
        cls,
        url: str | Path | None,
        store: Store | None,
        settings: Settings,
        *,
        read_only: bool,
        file_store: FileStore | None = None,
    ) -> Source:
        """Return the source that an application gives or, if it gives none, that of the settings."""
        given = settings.db if url is None and store is None else url
        if file_store is None and store is None:
            file_store = FolderFiles.named(settings.files_folder)
        return cls(given, store, read_only, settings.database_connections, file_store)

    def __post_init__(self) -> None:
        if (self.url is None) == (self.store is None):
            raise ConfigurationError(_NO_SOURCE if self.url is None else _TWO_SOURCES)
        if self.store is not None and not implements(self.store, Store):
            raise ConfigurationError("A store is an object that implements the port `Store`.")
        if self.file_store is not None and (self.store is not None or not implements(self.file_store, FileStore)):
            raise ConfigurationError(_NO_FILE_STORE)
        if self.read_only and self.store is not None:
            raise ConfigurationError(
                "An engine that only reads takes the URL of a database, and opens the store itself."
            )

    @property
    def is_shared(self) -> bool:
        """Whether other processes may have the store open, too."""
        return self._is_shared(unknown=False)

    def check_shared(self) -> None:
        """Raise `ConfigurationError` for a store that one process has for itself, which cannot leave its work."""
        if not self._is_shared(unknown=True):
            raise ConfigurationError(
                "An engine leaves its work to others only over a database that processes share, such as PostgreSQL; "
                f"{self} is one process's own."
            )

    def _is_shared(self, *, unknown: bool) -> bool:
        """Return the answer, `unknown` for a URL that leads nowhere: opening it says why."""
        if self.url is None:
            return implements(self.store, SharedStore)
        try:
            return address_of(self.url).is_shared
        except StoreError:
            return unknown

    def __str__(self) -> str:
        try:
            return type(self.store).__name__ if self.url is None else address_of(self.url).name
        except StoreError:
            return "a database that has no address"

    async def open(self) -> Store:
        """Return the open store. Raises `StoreError`."""
        store = self.store
        if store is None:
            assert self.url is not None
            store = await open_store(
                self.url, read_only=self.read_only, connections=self.connections, file_store=self.file_store
            )
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
