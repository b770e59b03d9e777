"""The settings of a run, and what they name: the database, the conversation, the models, the policy, the profiles and
the tools.

A value comes from the command line, else from an environment variable `TURNWISE_…`, else from the file `turnwise.toml`
in the working directory, else from the defaults below. The names are the same everywhere:

    db = "dinner.db"
    model = "openai/gpt-4.1-mini"
    tools = ["ask_user_question", "dinner:find_table"]

What the settings name is found before a conversation begins, so that whatever is wrong with one is told in one sentence
at once. What users write may be short: the beginning of an id that no other id shares, the name of a preset, the name
of a built-in tool, or a function as package.module:function.

The other way round, settings become command lines for users to copy: to resume a conversation, or to try something
next. Such a line does not depend on the environment of this run: it contains every option whose value differs from the
settings of the working directory.
"""

from __future__ import annotations

import inspect
import logging
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from getpass import getuser
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource

from ...effects.tools.registry import ToolRegistry
from ...engine.settings import FirstOf, values_of_file
from ...engine.settings import Settings as EngineSettings
from ...persistence.errors import StorageFailed
from ...persistence.folder_files import FolderFiles
from ...persistence.opening import address_of, open_store
from ...persistence.ports import Store
from ...states import presets
from ...states.errors import ConfigurationError, InvalidInput, StoreError, UnknownConversation
from ...states.policy import Policy, Recent
from ...states.values.messages import Message
from .output.lines import one_line

if TYPE_CHECKING:
    from ...engine.engine import Engine


class Settings(EngineSettings):
    """The settings of one run, with those of its engine. Use `read_settings` to create them."""

    refuses_unknown_keys: ClassVar[bool] = True

    db: str = Field(default="turnwise.db", min_length=1, repr=False)
    """The database: a path, or a URL like sqlite:///dinner.db or postgresql://user@host/name."""

    model: str = Field(default="rehearsal", min_length=1)
    """The model, as litellm names it; `rehearsal` needs no key."""

    models: Annotated[tuple[str, ...], NoDecode] = ()
    """More models, which /model can choose in a chat. A string is split at its commas."""

    tools: Annotated[tuple[str, ...], NoDecode] = ("ask_user_question",)
    """Names of built-in tools, and functions as package.module:function. A string is split at its commas."""

    channels: Annotated[tuple[str, ...], NoDecode] = ()
    """The channels of `turnwise serve` and `turnwise worker`, each as package.module:name: an object of the `Channel`
    port, or a function that makes one. All processes on one database have the same. A string is split at its
    commas."""

    preset: str = "assistant"
    """The name of the preset: a function of `turnwise.states.presets`, for an agent with a user."""

    profile: str = ""
    """The name of the profile that a chat has in each turn; without it one of `profiles` is chosen for each turn."""

    owner: str = ""
    """Whose conversations these are. Recall searches the conversations of their owner, and no others."""

    system: str = ""
    """The system prompt of a new conversation."""

    thoughts: bool = False
    """Whether to show what the model thinks."""

    speak: bool = False
    """Whether to speak what is said to the user."""

    plain: bool = False
    """Whether to show answers as the model wrote them, without rendering their Markdown."""

    debug: bool = False
    """Whether to write a log to stderr."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Where `turnwise serve` listens: an address of this machine, or a name that is resolved to some."""

    port: int = Field(default=8000, ge=0, le=65535)
    """The port of `turnwise serve`; 0 stands for a free one."""

    token: str = Field(default="", repr=False)
    """What the clients of `turnwise serve` have to present; without it, only programs of this machine are served."""

    allow_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """More names under which clients may address `turnwise serve`. A string is split at its commas."""

    origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins of other sites whose pages may call `turnwise serve`. A string is split at its commas."""

    worker: bool = True
    """Whether `turnwise serve` also looks after conversations, where several processes share the database. If not,
    `turnwise worker` does."""

    drain: float = Field(default=20.0, ge=0, allow_inf_nan=False)
    """Seconds in which `turnwise worker`, told to stop, lets the conversations at hand come to rest; and `turnwise
    serve`, where other processes share the database."""

    health: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    """Every so many seconds `turnwise worker` writes a line that says how it fares, if that has changed; 0 stands for
    never."""

    @field_validator("models", "tools", "channels", "allow_hosts", "origins", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        names = (given,) if isinstance(given, str) else given
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return given
        return tuple(part.strip() for name in names for part in name.split(",") if part.strip())


class _DirectorySettings(Settings):
    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (FirstOf(settings_cls, partial(values_of_file, settings_cls, keeps_unknown=True)),)


def read_settings(**options: object) -> Settings:
    """Return the settings of a run with these options of the command line; an option that was not given is None.

    Raises `ConfigurationError`.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return Settings(**given)


def directory_settings() -> Settings:
    """Return the settings that hold for every run in the working directory: those of the file, and the defaults. A file
    with a value that is not valid counts as empty: the run has replaced that value, or it would not have begun."""
    try:
        return _DirectorySettings()
    except ConfigurationError:
        return _DirectorySettings.model_construct()


logger: logging.Logger = logging.getLogger("turnwise.terminal")


@asynccontextmanager
async def open_for_reading(settings: Settings) -> AsyncIterator[Store]:
    """Open the database read-only and without its lock. Raises `StoreError`."""
    files, connections = FolderFiles.named(settings.files_folder), settings.database_connections
    store = await open_store(settings.db, read_only=True, connections=connections, file_store=files)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_for_writing(settings: Settings, *, create: bool = False) -> AsyncIterator[Store]:
    """Open the database, and lock it. Unless `create` is given it must exist.

    Raises `StoreError`, also if another program has it open.
    """
    if address_of(settings.db).is_in_memory:
        raise StoreError("A database in memory ends with this command; name a file with --db.")
    files, connections = FolderFiles.named(settings.files_folder), settings.database_connections
    store = await open_store(settings.db, create=create, connections=connections, file_store=files)
    try:
        yield store
    finally:
        await store.close()


async def is_left_to_workers(settings: Settings) -> bool:
    """Whether workers look after the conversations of the database, so that a chat need not: it would look after those
    of others, too, and may have other models and tools. Raises `StorageFailed`."""
    address = address_of(settings.db)
    if not address.is_shared:
        return False
    try:
        return await address.is_in_use()
    except StorageFailed:
        raise
    except StoreError:  # there are no tables yet; whoever opens it says what else is wrong
        return False


_SHORTEST = 8
"""The fewest characters of a short id: enough to stay unique while a few more conversations are begun."""

_MAX_CANDIDATES = 5


async def resolve_id(store: Store, given: str) -> str:
    """Return the id that is `given`, or else the only one that begins with it.

    The id of a sub-agent is that of the conversation that started it, a number and a mark, behind slashes. So the
    beginning that these two share names the conversation itself. The number may stand behind a beginning, too, and the
    mark may be left out.

    Raises `UnknownConversation`, and `InvalidInput` with the candidates if there are several.
    """
    found = await _beginning_with(store, given)
    upper, slash, number = given.rpartition("/")
    while found is None and slash:
        started_by = await _beginning_with(store, upper)
        found = None if started_by is None else await _beginning_with(store, f"{started_by}/{number}")
        upper, slash, rest = upper.rpartition("/")
        number = f"{rest}/{number}"
    if found is None:
        raise UnknownConversation(given)
    return found


async def _beginning_with(store: Store, given: str) -> str | None:
    """Return the id that is `given`, or the only one that begins with it, apart from those of its sub-agents."""
    candidates = await store.ids(given) if given else ()
    if given in candidates or not candidates:
        return given if candidates else None
    candidates = tuple(each for each in candidates if each.startswith(f"{given}/")) or candidates
    shortest = min(candidates, key=len)
    if not all(each == shortest or each.startswith(f"{shortest}/") for each in candidates):
        raise InvalidInput(_ambiguity(given, candidates))
    return shortest


def _ambiguity(given: str, candidates: Sequence[str]) -> str:
    listed = ", ".join(one_line(each) for each in candidates[:_MAX_CANDIDATES])
    more = len(candidates) - _MAX_CANDIDATES
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(candidates)} conversations have an id that begins with {one_line(given)}: {listed}{rest}."


def short_ids(ids: Iterable[str]) -> Mapping[str, str]:
    """Return for each id its shortest beginning that no other one shares, of at least `_SHORTEST` characters. That of a
    sub-agent is the one of the conversation that started it, with the rest. `Pure.`"""
    everything = set(ids)
    uppers = {each: _started_by(each, everything) for each in everything}
    short = _shortest({each for each, upper in uppers.items() if upper is None})
    for each in sorted(everything - short.keys(), key=len):  # a conversation comes before those that it started
        upper = uppers[each] or ""
        short[each] = f"{short[upper]}{each[len(upper) :]}"
    return short


def _started_by(conversation_id: str, ids: Container[str]) -> str | None:
    """Return the longest of these ids that this one continues behind a slash."""
    upper = conversation_id
    while "/" in upper:
        upper = upper.rpartition("/")[0]
        if upper in ids:
            return upper
    return None


def _shortest(ids: Iterable[str]) -> dict[str, str]:
    known = sorted(ids)
    lengths = dict.fromkeys(known, _SHORTEST)
    for first, second in pairwise(known):
        needed = _shared(first, second) + 1
        lengths[first] = max(lengths[first], needed)
        lengths[second] = max(lengths[second], needed)
    return {each: each[:length] for each, length in lengths.items()}


def _shared(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


class ModelChoice:
    """The models of the settings, and the one that was `chosen` for the conversation, if one was.

    A conversation keeps a chosen model when it is resumed. Otherwise it asks the model of the settings.
    """

    def __init__(self, settings: Settings, chosen: str | None = None) -> None:
        self.chosen = chosen
        self._settings = settings

    @property
    def names(self) -> list[str]:
        """The names of the models; the one that is asked from the next turn on comes first."""
        asked = (self.chosen,) if self.chosen is not None else ()
        return list(dict.fromkeys((*asked, self._settings.model, *self._settings.models)))


def owner_of(settings: Settings, policy: Policy) -> str | None:
    """Return the owner of a new conversation under this policy.

    A policy that looks into other conversations of the owner would find none without one, so then it is the user who is
    logged in, if the settings name nobody.
    """
    if settings.owner or not (policy.recall or isinstance(policy.dialogue, Recent)):
        return settings.owner or None
    try:
        return getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return None


_WITHOUT_USER = {"background", "sub_agent"}
"""The presets of agents without a user: a chat has one."""


def preset_of(settings: Settings) -> Policy:
    """Return the policy of the preset that the settings name, with what they say about it; `-` may stand for `_`.

    Raises `ConfigurationError`, which lists the presets that a chat may have.
    """
    known = known_presets() | {"reply_flow": settings.reply_flow}
    try:
        return known[settings.preset.replace("-", "_")]()
    except KeyError:
        sentence = f"There is no preset called {settings.preset}. Known: {', '.join(known)}."
        raise ConfigurationError(sentence) from None


def check_rules(engine: Engine, policy: Policy) -> None:
    """Raise `ConfigurationError` for rules that an engine cannot carry out, before its store is opened.

    Recall is left out: only an open store knows whether it can find older texts, and that of the terminal can.
    """
    engine.choices.rules(policy.replace(recall=False, dialogue="transcript"), None)


def known_presets() -> dict[str, Callable[[], Policy]]:
    """Return the functions that make the presets of agents with a user, by name, in the order of their module."""
    functions = vars(presets).items()
    made_here = {name: f for name, f in functions if inspect.isfunction(f) and f.__module__ == presets.__name__}
    return {name: f for name, f in made_here.items() if name not in _WITHOUT_USER and not name.startswith("_")}


def with_chosen_profile(settings: Settings) -> Settings:
    """Return the settings with the one profile that they name, or as they are if they name none.

    Where there is only one profile, no request is made to choose among them. Raises `ConfigurationError`.
    """
    name, profiles = settings.profile, settings.profiles
    if not name:
        return settings
    if name not in profiles:
        known = f"Known: {', '.join(profiles)}." if profiles else "Describe it in turnwise.toml, under [profiles]."
        raise ConfigurationError(f"There is no profile called {name}. {known}")
    return settings.model_copy(update={"profiles": {name: profiles[name]}})


def tools_named(names: Iterable[str]) -> list[Any]:
    """Return the tools with these names, for `Engine.open`.

    `package.module:function` is imported, also from the working directory. Any other name stays as it is, because the
    engine knows the built-in tools. Raises `ConfigurationError`.
    """
    return [_tool(name) if ":" in name else name for name in names]


def channels_named(names: Iterable[str]) -> list[Any]:
    """Return the channels with these names, for `Engine.open`: objects as they are, and what functions make.

    Raises `ConfigurationError`.
    """
    return [_channel(name) for name in names]


def _channel(name: str) -> Any:
    found = _imported(name, "channel")
    return found if hasattr(found, "deliver") and not isinstance(found, type) else _made_by(found, name)


def _made_by(maker: Any, name: str) -> Any:
    if not callable(maker):
        raise ConfigurationError(f"{name} is neither a channel nor a function that makes one.")
    try:
        return maker()
    except Exception as error:
        logger.debug("The channel %s could not be made.", name, exc_info=error)
        reason = one_line(str(error) or type(error).__name__).rstrip(".")
        raise ConfigurationError(f"The channel {name} cannot be made: {reason}.") from error


def missing_tools(registry: ToolRegistry, servers: Container[str], messages: Iterable[Message]) -> list[str]:
    """Return the names of the tools that the messages call and that are not in the registry. A tool of one of the MCP
    `servers` is not missing: it may come back."""
    called = dict.fromkeys(call.name for message in messages for call in message.tool_calls if call.fault is None)
    return [name for name in called if registry.find(name) is None and name.partition(":")[0] not in servers]


def with_required_tools(names: tuple[str, ...], policy: Policy) -> tuple[str, ...]:
    """Return the names, and behind them those of the built-in tools that the policy requires and that are missing.

    Raises `ConfigurationError`.
    """
    registry = ToolRegistry(tools_named(names))
    return (*names, *(name for name in _required(policy) if registry.find(name) is None))


def _required(policy: Policy) -> tuple[str, ...]:
    """Return the tools without which, under this policy, no text would reach the user or no turn would end well."""
    if policy.ends_on == "work_complete":
        return "respond_to_user", "mark_work_complete"
    return ("talk",) if policy.text == "thought" and policy.speech.keep == "each" else ()


def _tool(name: str) -> Any:
    found = _imported(name, "tool")
    if not callable(found):
        raise ConfigurationError(f"{name} is not a function, so it cannot be a tool.")
    return found


def _imported(name: str, kind: str) -> Any:
    """Return what a name like package.module:function means. Raises `ConfigurationError`."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise ConfigurationError(f"{name} does not name a {kind}: write it as package.module:function.")
    try:
        return attrgetter(attribute)(_module(module_name))
    except AttributeError:
        raise ConfigurationError(f"There is no {attribute} in {module_name}.") from None


def _module(name: str) -> object:
    working_directory = str(Path.cwd())
    if working_directory not in sys.path:
        sys.path.insert(0, working_directory)
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        logger.debug("The module %s could not be imported.", name, exc_info=error)
        raise ConfigurationError(_import_failure(name, error)) from error


def _import_failure(name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"There is no module called {name}, neither installed nor in this directory."
    if isinstance(error, ConfigurationError):
        return f"The module {name} cannot be imported: {error.sentence}"
    return f"The module {name} cannot be imported: {one_line(str(error) or type(error).__name__).rstrip('.')}."


NAME = "turnwise"


def resume_hint(conversation_id: str, settings: Settings, model: ModelChoice, name: str = "this conversation") -> str:
    """Return the sentence that tells how to resume a conversation with the same models, tools, display and speech.

    `name` is what the sentence calls the conversation.
    """
    if address_of(settings.db).is_in_memory:
        return f"You cannot resume {name}: its database is in memory only."
    options = [
        *options_for(settings, "db"),
        *_models(settings, model),
        *options_for(settings, "tools", "profile", "thoughts", "speak", "plain", "voice_debug"),
    ]
    return f"To resume {name}: {command_line('chat', conversation_id, *options)}"


def _models(settings: Settings, model: ModelChoice) -> list[str]:
    """Return the options for the models, the one that is asked first. One that was chosen needs no option."""
    if options_for(settings, "models"):
        return [part for name in model.names for part in ("--model", name)]
    return options_for(settings, "model") if model.chosen is None else []


def command_line(*arguments: str) -> str:
    """Return a call of this command with these arguments, as one line for a shell."""
    return " ".join(map(_quoted, (_program(), *arguments)))


def _quoted(argument: str) -> str:
    """Quote a word. Invisible characters and line ends are written as octal escapes, which bash and zsh read."""
    if argument == one_line(argument):
        return shlex.quote(argument)
    return f"$'{''.join(map(_escaped, argument))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character == " " or character == one_line(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))


def options_for(settings: Settings, *names: str) -> list[str]:
    """Return the options that give the named settings their values again; the database without a password, which
    whoever copies them has in a file of their own."""
    default = directory_settings()
    changed = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(default, name)}
    if "db" in changed:
        changed["db"] = address_of(settings.db).url_without_password
    return [part for name, value in changed.items() for part in _option(name, value)]


def _option(name: str, value: str | bool | tuple[str, ...]) -> Iterator[str]:
    if value is not False:
        yield f"--{name.replace('_', '-')}"
    if not isinstance(value, bool):
        yield value if isinstance(value, str) else ",".join(value)


def _program() -> str:
    """Return the name of this command if the shell finds it, else its path."""
    called, found = Path(sys.argv[0]), which(NAME)
    if called.stem != NAME or (found is not None and Path(found).samefile(called)):
        return NAME
    short = called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called
    return str(short) if len(short.parts) > 1 else f"./{short}"  # a shell looks for a bare name in PATH only
