"""The engine: a store of conversations, and the models, tools and channels that they use.

It has two doors, for programs with an event loop and for those without. It opens its store, creates and finds
conversations, takes in answers, and closes. What it is put together from is decided in `composition.py`.

Everything that it is made of is imported when an engine is opened: a program that names it and opens none, to show its
help for example, starts in a fraction of the time.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, Unpack, cast, overload

from ..states.errors import ConfigurationError, EngineClosed, EngineNotOpen, Refused, StoreError, UnknownConversation
from .home import OPENED_BEFORE, Home, Homebound

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..effects.channels.port import Channel
    from ..effects.clock import Clock
    from ..effects.dispatcher import Performer
    from ..effects.location import Location, LocationSource
    from ..effects.mcp.server import McpServer
    from ..effects.model.port import Llm
    from ..effects.recall.ports import DocumentSource, Embed
    from ..effects.redaction.redaction import Redaction
    from ..persistence.ports import FileStore, SharedStore, Store
    from ..persistence.summaries import Summary
    from ..states.context import Context
    from ..states.effects import Effect
    from ..states.events import Answer
    from ..states.policy import ModelSpec, Policy, Profile
    from ..states.roles import Role
    from ..states.values.messages import Usage
    from ..states.values.turn import Owed, Waiting
    from .blocking import BlockingEngine
    from .choices import GivenTools, OfferedTool
    from .composition import DispatcherFactory, EngineParts
    from .conversation import A, B, C, Conversation
    from .custody import Custody, CustodyCounts
    from .loop import Loop, LoopServices
    from .opening import ChosenOpening, CreateOptions, GivenConversation, GivenMessages
    from .outputs import AnyOutput, Output
    from .ports import Dispatcher
    from .recovery import Recovery
    from .relay import Relay
    from .schedules import GivenInterval
    from .settings import Settings
    from .updates import TreeUpdate

logger: logging.Logger = logging.getLogger("turnwise.engine")

P = ParamSpec("P")


class _BlockingDoor(Generic[P]):
    """The method `open_blocking` of a class of engines. It has the parameters of the method `open`."""

    def __get__(self, instance: object, owner: type[Engine]) -> Callable[P, BlockingEngine]:
        opens: Any = owner.open

        @functools.wraps(opens, assigned=("__module__",))
        def open_blocking(*arguments: P.args, **options: P.kwargs) -> BlockingEngine:
            """Open the same engine for programs without an event loop, or with several threads; the parameters are
            those of `open`.

                with Engine.open_blocking("dinner.db", model="…") as engine:
                    conversation = engine.create()
                    turn = conversation.send("A table for two")

            Any thread may call it. It is open when this returns. Without `with` it is closed by `close`, or when nobody
            holds it any more, or when the process ends. Raises what `open` raises, and what opening raises.
            """
            from .blocking import open_blocking

            return open_blocking(opens(*arguments, **options))

        return open_blocking


def _blocking_door(opens: Callable[Concatenate[type[Any], P], Engine]) -> _BlockingDoor[P]:
    """Return the door for programs without an event loop beside this one; a type checker reads the parameters here."""
    return _BlockingDoor()


class Engine(Homebound):
    """Runs the conversations of one database. Get it from `Engine.open`; it opens when it is entered
    or awaited."""

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        store: Store | None = None,
        read_only: bool = False,
        worker: bool = True,
        model: str | ModelSpec | Llm = "rehearsal",
        fallback_models: Iterable[str | ModelSpec | Llm] = (),
        models: Iterable[str | ModelSpec | Llm] = (),
        tools: Iterable[Callable[..., Any] | str] = (),
        channels: Iterable[Channel] = (),
        profiles: Iterable[Profile] = (),
        redaction: Redaction | None = None,
        location: LocationSource | Location | str | None = None,
        documents: DocumentSource | None = None,
        embed: Embed | None = None,
        files: FileStore | None = None,
        mcps: Mapping[str, McpServer] | None = None,
        policy: Policy | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        performers: Mapping[type[Effect], Performer] | None = None,
        dispatcher: Dispatcher | DispatcherFactory | None = None,
        tracer_provider: TracerProvider | None = None,
        outputs: Iterable[AnyOutput] = (),
        renderings: Mapping[str, Callable[[Any], str]] | None = None,
    ) -> Engine:
        """Return an engine over the database at `url` (a path, or `sqlite:///path`; `sqlite://` is in memory), or at
        the setting `db` if neither a URL nor a store is given.

            async with Engine.open("sqlite:///dinner.db", model="openai/gpt-4.1-mini") as engine: ...

        It may be awaited instead (`engine = await Engine.open(…)`); then you must `await engine.close()`.

        A conversation asks `model`, and if that fails the `fallback_models` in order, unless it chooses one of these or
        of `models` when it is created. Each is a name that litellm knows, `rehearsal`, or an object of the
        `Llm` port; a `ModelSpec` is a name together with the model's window, for models that litellm does not list.
        `tools` are functions, `@tool` functions, or names of built-in tools; a conversation has all of them, unless it
        chooses some when it is created. Each text for the user is delivered over each of the `channels`, objects of the
        `Channel` port. `policy` is for conversations created without one; its models are replaced by
        those given here. `profiles` are for conversations whose policy names none; the first one is the default.
        `settings` are read from the environment and from `turnwise.toml` if they are not given. `clock` tells the time
        and waits: by default the clock of the operating system, in tests a `turnwise.testing.ManualClock`. With a
        `tracer_provider` of OpenTelemetry, each turn, model request, run of a tool and attempt to deliver is a span;
        the global one, `opentelemetry.trace.get_tracer_provider()`, is used only if you pass it.

        `mcps` are MCP servers by name, whose tools are offered as `<name>:<tool>`. If a server is down, the engine
        opens without it, and tries it again. A conversation may choose their tools by name (`files:read`, `files:*` for
        all), as it may choose those of `tools`, even before their server is connected.

        `location` says where the user is, or is a function that returns it, for conversations whose requests state it
        (`Policy.fresh_context`), unless the setting `location_enabled` is set to false. `documents` is a function
        that returns the parts of documents that belong to a user's message, for conversations that want them
        (`Policy.documents`). With `embed`, a coroutine function that returns a vector for each text, searches of older
        conversations also find texts that mean the same in other words. `redaction` says what counts as a secret
        (`Policy.redact`). `outputs` are types of answers: a process that names them here uses them to check typed
        answers and to read stored ones, even if another process has sent the message. `renderings` are functions by
        name that turn a typed answer into the text that the user receives (`Policy.output_reply`). `files` is an object
        of the port `FileStore`, such as `turnwise.FolderFiles("files")`, that stores the bytes of files; without it
        they are stored in the database.

        With `read_only` the engine only shows conversations. It takes no lock and takes nothing over, so it works
        beside another engine, and on a file that may only be read. Lists, logs, transcripts, replays and the snapshots
        of updates are as stored; each request raises `Refused` with `read_only`. Call `refresh` to see what another
        engine has stored since.

        Over a database that several processes share, such as PostgreSQL, any engine takes requests. Those with
        `worker` also perform the effects of conversations, each conversation in one process at a time. With
        `worker=False` an engine only takes requests, stores them and shows what happens. `drain` lets a worker finish.

        Instead of a URL you may give an open `store`, an object of the `Store` port. It stays yours: close it after the
        engine. Each engine over a store that processes share needs a store object of its own. `performers` maps types
        of effect to functions that perform them, in addition to the built-in performers or in place of them. A
        `dispatcher` replaces the one that runs performers as tasks of the event loop. It is an object of the port
        `turnwise.engine.ports.Dispatcher`, which passes answers to `engine.answer`, or a function that returns such an
        object; the function is called at once, with the performers, the clock and `engine.answer`.

        Raises `ConfigurationError` at once for invalid arguments and, when it opens, `StoreError` for a database that
        cannot be used. `engine.check()` finds a model whose provider is unknown or has no key. Without that call the
        first message finds it: it raises `ConfigurationError` and is not stored. A turn that an earlier process left
        then waits for an engine that can ask its models; `server_faults` says so.
        """
        from ..effects.clock import Clock, SystemClock
        from ..effects.mcp.servers import McpServers
        from ..effects.tools.registry import ToolRegistry
        from ..states import presets
        from ..states.policy import Policy
        from . import composition
        from .models import Models
        from .settings import Settings

        settings = Settings() if settings is None else settings
        policy = presets.assistant() if policy is None else policy
        clock = SystemClock() if clock is None else clock
        for given, kind in ((settings, Settings), (policy, Policy), (clock, Clock)):
            if not isinstance(given, kind):
                raise ConfigurationError(f"An engine takes {kind.__name__} as its {kind.__name__.lower()}.")
        known_profiles = composition.profiles_of(settings, profiles)
        forms = composition.forms_of(outputs, renderings, policy, known_profiles)
        servers = McpServers({**settings.mcps, **(mcps or {})})
        parts = composition.EngineParts(
            source=composition.Source.of(url, store, settings, read_only=bool(read_only), file_store=files),
            models=Models.of(model, fallback_models, models).with_named(
                composition.models_named(settings, known_profiles)
            ),
            tools=ToolRegistry(tools, [servers]),
            servers=servers,
            policy=policy.model_copy(update={"models": Policy().models}),
            settings=settings,
            clock=clock,
            performers=composition.checked_performers(performers),
            dispatcher=composition.checked_dispatcher(dispatcher),
            channels=channels,
            profiles=known_profiles,
            redaction=redaction,
            location=composition.located(location),
            documents=composition.checked_function("documents", documents),
            embed=composition.checked_function("embed", embed),
            forms=forms,
            tracing=composition.build_tracing(tracer_provider),
            worker=bool(worker),
        )
        if not parts.worker:
            parts.source.check_shared()
        return cls(parts)

    open_blocking: Final = _blocking_door(open)
    """`open` for programs without an event loop, or with several threads: returns a `BlockingEngine`, which is open.
    The parameters are the same."""

    _store: Store | None = None
    _opening: asyncio.Future[None] | None = None
    _closing: asyncio.Future[None] | None = None
    _loading: asyncio.Task[None] | None = None
    """What the models need is being loaded."""
    _relay: Relay | None = None
    """Follows the other processes that share the store, if it is one that can be shared."""

    def __init__(self, parts: EngineParts) -> None:
        from ..effects.model.performers.asking import RunningAnswers
        from . import composition
        from .agents.agents import EngineAgents
        from .models import BlockedTurns
        from .redactor import EventRedactor
        from .registry import ConversationRegistry
        from .watching import TreeFeed

        super().__init__()
        self._parts = parts
        self._taking_answers: set[asyncio.Task[None]] = set()
        """Conversations are being loaded for these, because an answer came in for them."""
        self._registry = ConversationRegistry(
            lambda: self.store, note_loaded=self._note_loaded, resume=self._resume, forget=self._forget
        )
        has_custody = parts.has_custody
        confirm = self._confirm if has_custody else None
        self._agents = EngineAgents(lambda: self.store, self._registry, parts.clock, confirm, wakes=not has_custody)
        self._deliveries = composition.build_channels(parts, None if has_custody else self._left_by_others, confirm)
        self._memory = composition.EngineMemory(lambda: self.store, parts)
        self._redactor = EventRedactor(parts.redaction, parts.tools)
        self.choices: Final = composition.build_choices(parts, self._memory, self._redactor)
        """What the conversations of this engine may choose."""
        self._blocked = BlockedTurns(self.choices.find_fault_in_turn, parts.clock)
        self._answering = RunningAnswers()
        self._performers = composition.build_performers(
            parts, self._deliveries, self._memory, self._agents, self._blocked, self._answering, confirm
        )
        take = self._take_answer if parts.performs_itself else self.answer
        self._dispatcher = composition.wrap("dispatcher", parts.dispatcher(self._performers, parts.clock, take))
        self._recovery = self._build_recovery()
        self._custody = self._build_custody() if has_custody else None
        self._tree = TreeFeed()
        self._registry.services = self._services()

    def _build_recovery(self) -> Recovery:
        """Return what goes on with what an earlier process left."""
        from .composition import build_resumers
        from .recovery import Recovery

        resumers = build_resumers(self._deliveries, self._agents, self._parts.performers)
        return Recovery(lambda: self.store, self._registry, resumers, self._agents.orphans, self._blocked)

    def _build_custody(self) -> Custody:
        """Return what looks after conversations, where several processes share the store."""
        from .custody import Custody

        settings = self._parts.settings
        return Custody(
            lambda: cast("SharedStore", self.store),
            self._registry,
            self._recovery,
            self._agents.wake_ups,
            (self._deliveries.queues, self._agents.queues),
            self._parts.clock,
            slots=settings.worker_slots,
            lease=settings.lease,
        )

    def _services(self) -> LoopServices:
        """Return what all conversations share."""
        from ..effects.dispatcher import senders_of
        from .composition import build_observers
        from .declarations import Declarations
        from .loop import LoopServices

        parts = self._parts
        return LoopServices(
            dispatcher=self._dispatcher,
            senders=senders_of(self._performers),
            clock=parts.clock,
            choices=self.choices,
            owner=self._registry,
            observers=build_observers(parts.tracing, self._deliveries, self._agents.observers),
            kept_updates=parts.settings.kept_updates,
            redactor=self._redactor,
            tree=self._tree,
            declarations=Declarations(parts.tools, is_complete=parts.runs_all_tools),
            files=lambda: self.store.files,
            takes=parts.models.takes,
            custody=self._custody,
            read_only=parts.source.read_only,
            tell_speech=None if (written := self._deliveries.written) is None else written.write,
        )

    def __repr__(self) -> str:
        count = len(self._registry)
        held = f"{count} conversation{'' if count == 1 else 's'} in memory"
        return f"<{type(self).__name__} {self._parts.source}: {'open' if self.is_open else 'not open'}, {held}>"

    # --- opening and closing

    async def __aenter__(self) -> Self:
        if self._home is not None:
            self._home.check(OPENED_BEFORE)
        if self._closing is not None:
            raise EngineClosed if self._opening is None else EngineClosed(OPENED_BEFORE)
        if self._opening is None:
            self._home = Home(asyncio.get_running_loop())
            self._opening = asyncio.ensure_future(self._open())
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.close()
            raise
        if self._closing is not None:
            raise EngineClosed
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all work, and close the database. Everything stored is kept. A turn under way continues when the
        database is opened again, as after a crash. Tools that run are told to stop, and have a second for it; the
        result of one that returns by then is kept.

        Before that, each delivery that is due is tried once on its channel, and each message between agents is posted
        once, which takes seconds if one hangs. What has not arrived is tried again when the database is opened again;
        with a database in memory it is lost.

        Over a database that processes share, another process continues at once with what was under way.

        Closing again does nothing. A caller that is cancelled stops waiting, but the engine still closes.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def drain(self, seconds: float) -> None:
        """Take over no more conversations, and return when the present ones are at rest, or after so many seconds. Call
        it before you close the engine of a worker that is told to stop. Turns that are still under way continue in
        another process once this engine is closed. The engine still takes requests.

        Over a database of one process it returns at once.
        """
        if self._custody is not None:
            await self._custody.drain(seconds)

    @property
    def custody_counts(self) -> CustodyCounts:
        """How many conversations this process looks after, and how it has fared; see `CustodyCounts`. All are 0 over a
        database of one process."""
        from .custody import CustodyCounts

        return CustodyCounts() if self._custody is None else self._custody.counts

    @property
    def is_open(self) -> bool:
        """Whether the engine has opened, and has not begun to close."""
        return self._opening is not None and self._opening.done() and self._closing is None

    # --- conversations

    @overload
    async def create(self, *, output: None = None, **options: Unpack[CreateOptions]) -> Conversation: ...

    @overload
    async def create(self, *, output: type[A] | Output[A], **options: Unpack[CreateOptions]) -> Conversation[A]: ...

    @overload
    async def create(
        self, *, output: tuple[type[A], type[B]], **options: Unpack[CreateOptions]
    ) -> Conversation[A | B]: ...

    @overload
    async def create(
        self, *, output: tuple[type[A], type[B], type[C]], **options: Unpack[CreateOptions]
    ) -> Conversation[A | B | C]: ...

    @overload
    async def create(self, *, output: AnyOutput, **options: Unpack[CreateOptions]) -> Conversation: ...

    async def create(
        self,
        *,
        role: Role = "foreground",
        works_for: GivenConversation | None = None,
        policy: Policy | None = None,
        system: str = "",
        model: str | None = None,
        tools: GivenTools | None = None,
        messages: GivenMessages | None = None,
        owner: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        marks: Mapping[str, str] | None = None,
        every: GivenInterval | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        task: str | None = None,
        conversation_id: str | None = None,
        output: AnyOutput | None = None,
    ) -> Conversation:
        """Create a conversation. `system` is its system prompt, `policy` its rules.

        A conversation with the role "foreground" has a user. One with the role "background" works for the agent of
        another conversation, `works_for` (a handle or an id), and has its owner. Without a `policy` it has the rules of
        the engine, except those that concern a user. Its role decides which built-in tools it may call.

        `model` is the name of a model that the engine was opened with: it is asked first, then the engine's fallback
        models. Without it the models of the policy are asked, or those of the engine if the policy names none. Only a
        conversation that chose no models changes its models when the engine is opened with others. `tools` are the
        tools that the conversation may use: names, or functions that the engine was opened with; None stands for all of
        them. `output` is the type of all its answers, as `Conversation.send` takes it: with `output=Ticket` the handle
        is a `Conversation[Ticket]`. A profile and a message may ask for another type. `owner`, `title` and `metadata`
        (JSON) are the application's own, and `Engine.list` finds conversations by them. `marks` are those of a host
        program, which finds by them what it has made for itself: `marks={"completion": "kept"}` stands in the metadata
        as `turnwise.completion`, a name that no metadata can have otherwise. It stays as long as the conversation,
        which can be neither forked nor imported.

        With `every` (seconds, or a `timedelta`) or a `cron` expression in the time zone `zone`, it wakes up by itself
        and begins a turn with the message `task`, as `Conversation.set_schedule` says.

        It may begin with `messages` from elsewhere, in OpenAI's chat format, which come before everything that is said
        here. What no provider would accept in them is repaired: a call without a result gets one that says so, a
        repeated id becomes another one. `Conversation.repairs` tells what was done. System messages
        at the beginning become the system prompt, unless `system` is given.

        With a `conversation_id` of the application's own (up to 100 letters, digits and `._:@~-`) it is created once: a
        repeated call returns it as it is by now. If it was created with other arguments, or is a copy, `Refused` with
        `event_id_reused` is raised; a policy and a model that are left out do not count.

        Raises `ConfigurationError` for a model or a tool that the engine does not have, for a rule that it cannot apply
        and for an unknown role; `InvalidInput` for an invalid or too long list of messages, an invalid schedule, and an
        owner other than that of the conversation `works_for`. If that conversation is not stored, it raises
        `UnknownConversation`, and if it is closed, `Refused` with `closed`.
        """
        from .conversation import new_id
        from .opening import ChosenOpening
        from .requests import checked_new_id

        chosen = ChosenOpening(
            header={
                "role": role,
                "works_for": works_for,
                "owner": owner,
                "title": title,
                "metadata": metadata,
            },
            policy=policy,
            system=system,
            model=model,
            tools=tools,
            messages=messages,
            marks=marks,
            every=every,
            cron=cron,
            zone=zone,
            task=task,
            output=output,
        )
        self.check_may_write()
        if conversation_id is None:
            return await self._handle(await self._begin(chosen, new_id(), is_new=True))
        async with self._registry.family(checked_new_id(conversation_id)):
            return await self._handle(await self._begin(chosen, conversation_id, is_new=False))

    async def _is_stored(self, sha256: str) -> bool:
        """Whether the store has the file with this digest."""
        return await self.store.files.read(None, sha256, 0, 0) is not None

    async def _begin(self, chosen: ChosenOpening, conversation_id: str, *, is_new: bool) -> Loop:
        """Create the conversation that an application asks for. Unless its id `is_new`, there may be one with this id:
        it is returned as it is if it was asked for in the same way."""
        from .opening import log_repairs, opening_of, owner_for

        opening = await opening_of(
            conversation_id, self.now(), self.choices, self._parts.policy, chosen, self._is_stored
        )
        opened = opening.event
        loop = None if is_new else await self._registry.find_loop(conversation_id)
        if loop is None and opened.works_for is not None:
            served = await self._registry.get_loop(opened.works_for)
            opened = opened.replace(owner=owner_for(opened.owner, served.state, served.projection.context))
        opened = await self._redactor.redacted_opening(opened, wrote_system=bool(chosen.system))
        if loop is None:
            loop = await self._registry.create_new(conversation_id, opened, opening.files)
            if loop is not None:
                log_repairs(conversation_id, opened.repairs)
                if opened.next_wake is not None:
                    self._agents.wake_ups.note(opened.next_wake)
                return loop
            loop = await self._registry.get_loop(conversation_id)
        if not is_new and await loop.recent_requests.find(opened, chosen.filled) is None:
            raise Refused("event_id_reused")  # the conversation was not opened under this id: it is a copy
        return loop

    async def get(self, conversation_id: str) -> Conversation:
        """Return a handle on a conversation, with everything that any process has stored by now. The conversation does
        not change. Raises `UnknownConversation`."""
        from ..persistence.summaries import checked_id

        was_in_memory = self._registry.holds(checked_id(conversation_id))
        return await self._handle(await self._registry.get_loop(conversation_id), refreshes=was_in_memory)

    async def _handle(self, loop: Loop, *, refreshes: bool = False) -> Conversation:
        """Return a handle on the conversation of this loop. Nothing is missed from here on, and if it `refreshes`, of
        what came before. Raises `EngineClosed` if the engine has begun to close meanwhile."""
        from .conversation import Conversation

        interest = loop.interest()
        if self._relay is not None and (refreshes or loop.is_behind):
            with self._closing_told():
                await self._relay.refresh(loop)
        if self._closing is not None:
            raise EngineClosed
        handle = Conversation(self, loop, self._home)
        del interest  # the handle has it now
        return handle

    @contextmanager
    def _closing_told(self) -> Iterator[None]:
        """Have a caller for whom the store is asked while the engine closes learn of that, and not what the store
        says."""
        try:
            yield
        except StoreError:
            if self._closing is not None:
                raise EngineClosed from None
            raise

    async def list(
        self,
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        role: Role | None = None,
        parent: str | None = None,
        works_for: str | None = None,
    ) -> tuple[Summary, ...]:
        """Return a page of conversations, the most recently changed first: summaries with `id`, `title`, `owner`,
        `metadata`, `state`, `busy`, `updated_at`, `origin`, `role`, `parent`, `works_for` and `wakes_at`.

        `owner`, `state` (such as `"idle"`) and `metadata` select: `metadata={"tenant": "a"}` those whose metadata has
        this value under this name. Values are compared as JSON: 1 is neither "1" nor true. `role` selects, too; so do
        `parent`, the id of the conversation that started sub-agents, and `works_for`, the id of the one that background
        agents work for. `limit` is the size of the page, and `before` the `cursor` of the last conversation of the
        previous page, which stays valid if that conversation is deleted, or its id. Raises `InvalidInput`, and
        `UnknownConversation` for an id that is not stored.
        """
        from ..persistence.summaries import ConversationFilter

        wanted = ConversationFilter(
            owner=owner,
            metadata=metadata,
            state=state,
            limit=limit,
            before=before,
            role=role,
            parent=parent,
            works_for=works_for,
        )
        return await self.store.list(wanted)

    def updates(self, *, owner: str | None = None) -> AsyncGenerator[TreeUpdate, None]:
        """Return an iterator over the updates of all conversations of this owner, or of everybody: for programs that
        show a tree of agents.

        First comes a `tree_snapshot` with the conversations as they are; then the updates of each, in order, as
        `Conversation.updates` has them; `conversation_opened` and `conversation_deleted` for those that begin and end.
        A watcher that falls far behind gets another snapshot, which replaces everything before it, so a slow watcher
        costs no memory. Over PostgreSQL the updates include what other processes store. Over another store, steps of
        another engine are shown once this engine has read them.

        It ends when the engine is closed, and can be ended before with `aclose()`, also while another task iterates.
        Raises `InvalidInput` and `EngineClosed`.
        """
        from ..persistence.summaries import checked_owner

        wanted, _ = checked_owner(owner), self.store
        return self._tree.updates(wanted, self._listed, self._registry.streaming)

    async def delete(self, conversation_id: str) -> None:
        """Remove a conversation, with its sub-agents and all that was said in it, from the database.

        When this returns, the conversation is gone for everybody, and its texts are overwritten. In a file of more than
        8 MiB copies of parts of it may remain until the engine closes or, if its process dies before, until the next
        one opens. Only then the file is rewritten, because everybody has to wait for that.

        Raises `UnknownConversation`, and `StoreError` if the database cannot delete it; then the conversation is as
        before, but sub-agents of it may be gone. Its subclass `TracesLeft` says that the conversation is gone, but that
        traces remain until the file is rewritten. A caller that is cancelled stops waiting, but the conversation is
        still deleted.
        """
        from ..persistence.summaries import checked_id

        self.check_may_write()
        await self._registry.delete(checked_id(conversation_id))

    # --- what the engine has, and how it fares

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models that a conversation may choose. The first one is asked by those that choose none."""
        return tuple(self.choices.models.specs)

    @property
    def loading(self) -> tuple[str, ...]:
        """What the models wait for before their first requests, such as `litellm`, whose import takes seconds; empty
        once it is there. An engine begins to load it when it opens."""
        return self._parts.models.loading

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tools that a conversation may choose, in the order in which they were given; those of MCP servers while
        they are connected."""
        from .choices import offered_tools

        return offered_tools(self.choices.tool_registry)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that a conversation may choose."""
        return tuple(tool.name for tool in self.tools)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The names of the channels. Everything that is said to users goes out through each of them."""
        return self._deliveries.targets

    async def check(self, *, servers: bool = True) -> tuple[str, ...]:
        """Check that the models can be asked and, unless `servers` is false, that the MCP servers can be reached. If
        the engine is not open, the servers are started for that. Asks no model; the first call loads litellm, which
        takes seconds.

        Returns a sentence for each tool that is not offered although it was given or listed: its definition cannot be
        written so that providers take it, or a model has refused it. Where the engine has more tools than a request
        holds, a sentence names those that are left out if a conversation is offered all of them.

        Raises `ConfigurationError` for a name that litellm does not know, a provider without a key, or a server that
        cannot be reached.
        """
        from ..effects.schemas.wire import wire_tools

        await asyncio.to_thread(self._parts.models.check)
        if servers:
            left_out = await self._parts.servers.check()
        else:
            left_out = self._parts.servers.left_out
        cannot_be_sent = wire_tools(self._parts.tools.definitions(), " if all are offered together").left_out.values()
        return (*left_out, *cannot_be_sent, *self._parts.models.refused_tools())

    @property
    def server_faults(self) -> tuple[str, ...]:
        """A sentence for each MCP server that is not connected now, which the engine tries again, and for each reason
        why turns of an earlier process, or turns that no message began, cannot go on: their models are not known here,
        or have no key. They continue when the key is set, or in an engine that has it."""
        blocked = (f"A turn waits for its model. {fault}" for fault in self._blocked.faults)
        return (*self._parts.servers.faults(), *blocked)

    async def delivered(self) -> None:
        """Return when each text for a user so far has been tried once on every channel, and every message to another
        agent was posted once; `send` does not wait for that. A delivery that failed is tried again later; updates of
        the conversation report failures.

        Over a database that processes share this includes the texts of all processes. While no worker runs, it waits
        for one. Raises `StoreError` if such a database cannot be asked.
        """
        _ = self.store
        await self._dispatcher.wait_until_tried()
        await self._agents.wait_until_tried()
        await self._deliveries.wait_until_tried()
        if self._custody is not None:
            from .outbox import until_tried

            with self._closing_told():
                await until_tried(lambda: cast("SharedStore", self.store))

    def stop_updates(self) -> None:
        """End all iterators over updates, of this engine and of its conversations, after what is stored by now. An
        iterator that begins later ends after its snapshot. Nothing else stops.

        Call it when a server is told to stop: servers wait until open responses have ended before they let an
        application close its engine. `stopping_updates` does it at a signal.
        """
        self._tree.end_updates()
        self._registry.stop_updates()

    @contextmanager
    def stopping_updates(self, *signals: signal.Signals) -> Iterator[None]:
        """Return a context in which `stop_updates` is called when the process is told to stop: by SIGINT or SIGTERM, or
        the signals that are given. Other handlers of these signals are still called. Enter it in the main thread, after
        other handlers are installed: in the lifespan of an application, for example.

        In another thread, such as that of a test client, it does nothing: only the main thread is told of signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
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

    async def refresh(self, conversation_id: str) -> None:
        """Follow the steps that other engines over the same store have stored. Raises `UnknownConversation`."""
        from ..persistence.summaries import checked_id

        await (await self._registry.get_loop(checked_id(conversation_id))).catch_up()

    @property
    def in_memory(self) -> int:
        """How many conversations are in memory."""
        return len(self._registry)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The ids of the conversations that wait for a model, a tool, a timer or the like; over a database that
        processes share, of those that this one looks after."""
        return self._registry.waiting

    @property
    def performers(self) -> Mapping[type[Effect], Performer]:
        """What carries out each type of effect."""
        return self._performers

    # --- for dispatchers, and for handles on conversations

    def answer(self, conversation_id: str, answer: Answer) -> None:
        """Hand in the answer to an effect, as a dispatcher does. Returns at once.

        The answer is stored as soon as the conversation gets to it. It is dropped if its effect is not in flight or
        cannot have an answer of this type. It is also dropped while the engine closes; then its effect is asked for
        again when the conversation is taken over.

        Raises `InvalidInput` for what is not an answer, or does not hold what it declares. Then the effect still waits
        for its answer: hand in another one, such as an `EffectFailed`. Other threads give a function that does both to
        `loop.call_soon_threadsafe`, because an error that leaves this call there is only logged.
        """
        from ..persistence.summaries import checked_id

        self.check_may_write()
        asyncio.get_running_loop()  # raises RuntimeError in another thread
        self._take_answer(checked_id(conversation_id), answer)

    def _take_answer(self, conversation_id: str, answer: Answer) -> None:
        from .requests import checked_answer

        taken = checked_answer(answer)
        if not self._registry.answer(conversation_id, taken) and self._closing is None:
            task = asyncio.ensure_future(self._load_and_answer(conversation_id, taken))
            self._taking_answers.add(task)
            task.add_done_callback(self._taking_answers.discard)

    async def _load_and_answer(self, conversation_id: str, answer: Answer) -> None:
        """Hand an answer to a conversation that is not in memory. A dispatcher does not wait for that."""
        try:
            loop = await self._registry.get_loop(conversation_id)
            loop.answer(answer)
            await loop.handled()
        except (EngineClosed, UnknownConversation, StoreError) as error:
            logger.warning("An answer for the conversation %s could not be taken: %s", conversation_id, error)

    def spent_on(self, conversation_id: str) -> Usage:
        """Return about what has been spent on the answers of this conversation that are under way here."""
        return self._answering.spent_on(conversation_id)

    def now(self) -> datetime:
        """Return the current time, by the clock of the engine."""
        return self._parts.clock.now()

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`, or `EngineNotOpen`, which is one."""
        if self._store is None:
            raise EngineNotOpen if self._closing is None else EngineClosed
        return self._store

    def check_may_write(self) -> None:
        """Raise `Refused` with `read_only` if the engine was opened for reading only."""
        if self._parts.source.read_only:
            raise Refused("read_only")

    def note_copy(self) -> None:
        """Note that a conversation was copied: those who watch a tree read the list again."""
        self._tree.begin_again()

    # --- opening and closing: once each, however many ask for it, and whichever of them are cancelled meanwhile

    async def _open(self) -> None:
        self._store = await self._parts.source.open()
        if self._parts.source.read_only:
            return
        if self._custody is not None:
            await self._open_shared(self._custody, self._store)
            return
        self._loading = self._parts.models.get_ready()
        await self._parts.servers.open()  # before the calls that a crash interrupted run again
        await self._agents.wake_ups.look_at_clock()
        await self._recovery.take_over_all()
        await self._agents.open()
        if self._parts.source.store is not None:
            self._recovery.join(self._parts.source.store)

    async def _open_shared(self, custody: Custody, conversations: Store) -> None:
        """Have the conversations show what the other processes do that share the store, and take part in the work."""
        from .relay import Relay

        custody.claim_store()
        store = cast("SharedStore", conversations)
        self._registry.services = replace(self._registry.services, show_others=store.show)
        self._relay = Relay(store, conversations, self._registry, self._tree, self._drop_deleted)
        self._relay.open()
        if self._parts.worker:
            self._loading = self._parts.models.get_ready()
        await self._parts.servers.open()
        if self._parts.worker:
            custody.serve()

    async def _close(self) -> None:
        await self._stop_opening()
        if self._loading is not None:
            self._loading.cancel()
        waiting = self._registry.waiting
        handed: Set[str] = frozenset()
        store = self._store
        try:
            await self._stop_hearing()
            await self._agents.stop()  # this posts what waits, for which the store is read
            self._store = None
            await self._recovery.stop()
            await self._registry.shut_down(EngineClosed())
            self._tree.end_updates()
            await self._deliveries.stop()
            if self._taking_answers:
                await asyncio.wait(self._taking_answers)
            handed = await self._recovery.hand_over(waiting, self._deliveries.left | self._agents.queues.left)
            await self._memory.stop()
            await self._parts.servers.close()
            if self._parts.tracing is not None:
                self._parts.tracing.close()
        finally:
            self._store = None
            if store is not None:
                self._recovery.leave()
                await self._parts.source.release(store, self._recovery.claimed - handed)

    async def _stop_hearing(self) -> None:
        """Follow no other process."""
        if self._relay is not None:
            await self._relay.stop()

    async def _stop_opening(self) -> None:
        """Let go of what this process looks after, load nothing more, and wait until the engine has opened, or has
        not: a lock half taken could not be given back."""
        if self._opening is None:
            return
        if not self._opening.done():
            self._registry.stop_loading(EngineClosed())
            self._parts.servers.stop_opening()
            await asyncio.wait([self._opening])
        if self._custody is not None:  # it may have begun at the last moment
            await self._custody.stop()
        self._registry.stop_loading(EngineClosed())
        self._parts.servers.stop_opening()

    def _note_loaded(self, conversation_id: str, context: Context) -> None:
        """Log which rules of a conversation that was read cannot be carried out here."""
        if not self._parts.source.read_only:
            self.choices.log_faults(conversation_id, context)

    async def _resume(self, loop: Loop) -> None:
        """Have a conversation go on with what an earlier process left in the middle, unless this engine only reads."""
        if not self._parts.source.read_only:
            await self._recovery.resume(loop)

    async def _forget(self, conversation_id: str, unread: Sequence[Waiting | Owed], link: bytes) -> None:
        """Forget what is kept of a conversation that was deleted, and tell the agents whose messages are unread."""
        await self._forget_kept(conversation_id)
        await self._agents.mail.return_unread(conversation_id, unread, link)

    async def _drop_deleted(self, conversation_id: str) -> None:
        """Drop a conversation that another process has deleted, which also tells the agents."""
        await self._registry.drop_deleted(conversation_id)
        await self._forget_kept(conversation_id)

    async def _forget_kept(self, conversation_id: str) -> None:
        self._recovery.drop(conversation_id)
        await self._deliveries.drop(conversation_id)
        await self._agents.drop(conversation_id)
        self._tree.delete(conversation_id)
        if self._parts.tracing is not None:
            self._parts.tracing.drop(conversation_id)

    async def _confirm(self, conversation_id: str) -> None:
        """Return if this process may touch the world for the conversation; see `Custody.confirm`."""
        assert self._custody is not None, "only an engine with custody confirms it"
        await self._custody.confirm(conversation_id)

    async def _left_by_others(self, conversation_id: str, effect_id: int, target: str) -> tuple[tuple[int, int], ...]:
        return await self._recovery.left_by_others(conversation_id, effect_id, target)

    async def _listed(self, owner: str | None) -> Sequence[Summary]:
        from ..persistence.summaries import ConversationFilter

        return await self.store.list(ConversationFilter(owner=owner))
