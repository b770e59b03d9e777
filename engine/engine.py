"""The engine: a store of conversations, and the models, tools and channels that they use.

Here are its two doors, for programs with an event loop and for those without; what it does is in `running.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec

from ..effects.clock import Clock, SystemClock
from ..effects.dispatcher import Performer
from ..effects.mcp.servers import McpServers
from ..effects.tools.registry import ToolRegistry
from ..states import presets
from ..states.effects import Effect
from ..states.errors import ConfigurationError
from ..states.policy import ModelSpec, Policy, Profile
from .composition import (
    DispatcherFactory,
    Providers,
    Source,
    checked_dispatcher,
    checked_performers,
    models_named,
)
from .models import Models
from .ports import Dispatcher
from .running import RunningEngine

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..effects.channels.port import Channel
    from ..effects.location import Location, LocationSource
    from ..effects.mcp.server import McpServer
    from ..effects.model.port import Llm
    from ..effects.recall.ports import DocumentSource, Embed
    from ..effects.redaction.redaction import Redaction
    from ..persistence.ports import Store
    from .blocking import BlockingEngine
    from .settings import Settings


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


def _blocking_door(opens: Callable[Concatenate[type[Any], P], RunningEngine]) -> _BlockingDoor[P]:
    """Return the door for programs without an event loop beside this one; a type checker reads the parameters here."""
    return _BlockingDoor()


class Engine(RunningEngine):
    """Conversations in one store, and what they need to go on. Open it with `Engine.open`."""

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        store: Store | None = None,
        read_only: bool = False,
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
        mcps: Mapping[str, McpServer] | None = None,
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

        A conversation asks `model`, and `fallback_models` in order if that fails, unless it chooses another one when it
        is created: one of these or of `models`. Each is a name that litellm knows, `rehearsal`, or an object of the
        `Llm` port; a `ModelSpec` is a name together with the model's window, for models that litellm does not list.
        `tools` are functions, `@tool` functions, or names of built-in tools; a conversation has all of them, unless it
        chooses some when it is created. Everything that is said to the user goes out through each of the `channels`,
        objects of the `Channel` port. `policy` is for conversations created without one; its models are replaced by
        those given here. `profiles` are for conversations whose policy names none; the first one is the default.
        `settings` are read from the environment and from `turnwise.toml` if they are not given. `clock` tells the time
        and waits: by default the clock of the operating system, in tests a `turnwise.testing.ManualClock`. With a
        `tracer_provider` of OpenTelemetry, each turn, model request, run of a tool and attempt to deliver is a span;
        the global one, `opentelemetry.trace.get_tracer_provider()`, is used only if you pass it.

        `mcps` are MCP servers by name, whose tools are offered as `<name>:<tool>`. The engine opens although a server
        is down, and tries it again; a conversation has their tools as it has those of `tools`, and may choose them by
        name (`files:read`, `files:*` for all) before their server is there.

        `location` says where the user is, or is a function that returns it, for conversations whose requests state it
        (`Policy.fresh_context`), unless the setting `location_enabled` is set to false. `documents` is a function
        that returns the parts of documents that belong to a user's message, for conversations that want them
        (`Policy.documents`). With `embed`, a coroutine function that returns a vector for each text, searches of older
        conversations also find what means the same in other words. `redaction` says what counts as a secret
        (`Policy.redact`).

        With `read_only` it is there to look at conversations: it takes no lock, and takes nothing over, so it works
        beside an engine that runs, and on a file that may only be read. Lists, logs, transcripts, replays and the
        snapshots of updates are as stored; each request raises `Refused` with `read_only`. What another engine stores
        is shown once `refresh` has read it.

        Instead of a URL you may give an open `store`, an object of the `Store` port. It stays yours: close it after the
        engine. `performers` maps types of effect to what carries them out, in addition to the built-in performers or in
        place of them. A `dispatcher` replaces the one that runs performers as tasks of the event loop. It is an object
        of the port `turnwise.engine.ports.Dispatcher`, which passes answers to `engine.answer`, or a function that
        returns such an object; the function is called at once, with the performers, the clock and `engine.answer`.

        Raises `ConfigurationError` at once for arguments that cannot be what they are given as, and when it opens,
        `StoreError` for a database that cannot be used. Whether a model's provider is known and has a key is found by
        `engine.check()`, or else by the first message, which raises `ConfigurationError` and is not stored. A turn that
        an earlier process left waits then, as `server_faults` says, for an engine that can ask its models.
        """
        from .settings import Settings  # loads pydantic-settings, which a program that opens no engine does without

        settings = Settings() if settings is None else settings
        policy = presets.assistant() if policy is None else policy
        clock = SystemClock() if clock is None else clock
        for given, kind in ((settings, Settings), (policy, Policy), (clock, Clock)):
            if not isinstance(given, kind):
                raise ConfigurationError(f"An engine takes {kind.__name__} as its {kind.__name__.lower()}.")
        providers = Providers.of(
            settings,
            profiles=profiles,
            redaction=redaction,
            location=location,
            documents=documents,
            embed=embed,
            mcps=mcps,
        )
        servers = McpServers(providers.mcps)
        return cls(
            Source(url, store, bool(read_only)),
            Models.of(model, fallback_models, models).with_named(models_named(settings, providers.profiles)),
            ToolRegistry(tools, [servers]),
            channels=channels,
            policy=policy,
            settings=settings,
            providers=providers,
            servers=servers,
            clock=clock,
            performers=checked_performers(performers),
            dispatcher=checked_dispatcher(dispatcher),
            tracer_provider=tracer_provider,
        )

    open_blocking = _blocking_door(open)
