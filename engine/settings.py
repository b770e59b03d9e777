"""What an operator may tune without changing the program: deadlines, sizes, profiles, MCP servers.

A value comes from the arguments of `Settings`, else from an environment variable `TURNWISE_…`, else from the file
`turnwise.toml` in the working directory, else from the defaults below. The names are the same everywhere:

    agentic_max_turns = 12

    [profiles.chef]
    description = "Cooking, recipes and shopping."
    prompt = "You are a chef."

The first source that has a value decides it alone. pydantic-settings would merge the dicts of several sources; here a
dict of profiles that an application passes is all there is, whatever file lies in the working directory.

Settings are not stored and do not affect replay. Those that are rules of a conversation reach it through `reply_flow`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from ..effects.mcp.server import McpServer
from ..effects.tools.tool import MAX_STORED
from ..persistence.opening import CONNECTIONS
from ..states import presets
from ..states.errors import ConfigurationError
from ..states.policy import MIN_RESULT, Policy, Profile

PREFIX = "TURNWISE_"


def _checked_address(address: str | None) -> str | None:
    return None if address is None else str(ip_address(address))


Deadline = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Seconds, above 0."""


def _with_names(given: Any) -> Any:
    """Profiles under their names, as a file writes them, each with its name."""
    if not isinstance(given, Mapping):
        return given
    return {
        name: {"name": name, **profile} if isinstance(profile, Mapping) else profile for name, profile in given.items()
    }


def _named_alike(profiles: Mapping[str, Profile]) -> Mapping[str, Profile]:
    for name, profile in profiles.items():
        if profile.name != name:
            raise ValueError(f"the profile {name} cannot have the name {profile.name}")
    return profiles


NamedProfiles = Annotated[dict[str, Profile], BeforeValidator(_with_names), AfterValidator(_named_alike)]
"""Profiles by name. A profile that is written as a dict has no name in it."""

_MESSAGES = {
    "tuple_type": "Input should be a list",
    "dict_type": "Input should be a table of names and values",
    "model_type": "Input should be a table of names and values",
}
"""What is said where pydantic names a type of Python, which neither a file nor a variable has."""


def _sentence_of(error: ValidationError, kind: type[Settings], arguments: Mapping[str, Any]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        message = _MESSAGES.get(first["type"], first["msg"].removeprefix("Value error, "))
        return f"The setting {name}{_origin(str(first['loc'][0]), arguments)} is not valid: {message}."
    return f"There is no setting called {name}." + _advice(name, kind) * (len(first["loc"]) == 1)


FILE = "turnwise.toml"


def _origin(name: str, arguments: Mapping[str, Any]) -> str:
    """Say which source has the value, unless it is an argument: a variable may hide what the file says."""
    variable = f"{PREFIX}{name}".upper()
    if name in arguments:
        return ""
    is_in_environment = any(value and given.upper() == variable for given, value in os.environ.items())
    return f" (variable {variable})" if is_in_environment else f" (in {FILE})"


def _advice(name: str, kind: type[Settings]) -> str:
    from difflib import get_close_matches  # only this sentence needs it

    own = [name for name in kind.__annotations__ if name in kind.model_fields]
    known = list(dict.fromkeys((*own, *kind.model_fields)))
    if similar := get_close_matches(name, known, n=1, cutoff=0.8):
        return f" Did you mean {similar[0]}?"
    return f" Known: {', '.join(known)}."


class Settings(BaseSettings):
    """Settings of an engine. Raises `ConfigurationError`, in a sentence that names the setting.

    A dict in an environment variable is written as JSON. A dict from one source replaces that of the sources behind it;
    they are not merged. Keys of the file and variables that are not settings are passed over; unknown arguments are
    errors.
    """

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    refuses_unknown_keys: ClassVar[bool] = False
    """Whether keys of the file that are not settings are errors. Another program may keep settings of its own there."""

    agentic_max_turns: int = Field(default=8, ge=1)
    """Model requests that one turn may make, in conversations under `reply_flow`."""

    llm_profile_select_timeout_sec: Deadline = 10.0
    """Seconds in which a profile is chosen for a turn; then the turn has the first one."""

    llm_tools_timeout_sec: Deadline = 10.0
    """Seconds in which the model finds the words by which older conversations are searched, and in which the document
    source answers; then the turn goes on without."""

    llm_embed_timeout_sec: Deadline = 10.0
    """Seconds that one call of the embedding function may take; then the search goes by keywords alone."""

    llm_chat_timeout_sec: Deadline = 120.0
    """Seconds that a model may be silent, before its answer and between two pieces of it; what a server sends to keep
    the connection open is no piece."""

    llm_chat_whole_timeout_sec: Deadline = 1800.0
    """Seconds that one model request may take as a whole, however steadily its pieces come."""

    llm_profile_select_model: str | None = Field(default=None, min_length=1)
    """The model that chooses the profile; None stands for the first model of the conversation."""

    llm_tools_model: str | None = Field(default=None, min_length=1)
    """The model that finds the words by which older conversations are searched; None stands for the first model of the
    conversation."""

    memory_enrichment_max_results: int = Field(default=10, ge=1)
    """The most texts of older conversations that are recalled for a turn."""

    dialogue_window_sec: Deadline = 300.0
    """How many seconds back the dialogue of a request reaches, in conversations under `reply_flow`."""

    profiles: NamedProfiles = {}
    """Profiles by name, beside those given to `Engine.open`, which replace these where the names are the same."""

    profile_allowed_tools: dict[str, tuple[str, ...]] = {}
    """For each profile the names of the tools that it may use at most; profiles that are not named keep theirs. Without
    `recall_conversation` among them nothing is recalled in turns with the profile, neither by the model nor for it."""

    mcps: dict[str, McpServer] = {}
    """MCP servers by name, beside those given to `Engine.open`, which replace these where the names are the same."""

    location_enabled: bool = False
    """Whether requests state where the user is. What is given as `Engine.open(location=…)` is stated unless this is set
    to false."""

    location_ip_address: Annotated[str | None, AfterValidator(_checked_address)] = None
    """The IP address whose location is stated."""

    location_auto_detect: bool = False
    """Whether the address may be found out by asking an outside service, which learns it by that."""

    voice_debug: bool = False
    """Whether the terminal shows the steps of a turn as labelled lines on stderr."""

    tts_enabled: bool = True
    """Whether speech channels speak."""

    tool_marker: str = Field(default="TOOL", min_length=1)
    """Lines of a reply that begin with this word are removed, in conversations under `reply_flow`."""

    kept_updates: int = Field(default=1024, ge=1)
    """How many updates of each conversation are kept for those who watch it, live ones included: several long streamed
    answers. A watcher that falls further behind reads what it missed from the log."""

    max_stored_result: int = Field(default=MAX_STORED, ge=MIN_RESULT)
    """The most characters that are stored of a tool's result. Of a longer one the beginning and the end are stored, and
    between them how much is left out. How much of a result a request shows is a rule: `Policy.max_result`."""

    db: str | None = Field(default=None, min_length=1, repr=False)
    """The database of an engine that is given neither a URL nor a store: a path, or a URL like
    postgresql://user@host/name. It may hold a password, which messages leave out."""

    files_folder: str | None = Field(default=None, min_length=1)
    """The folder for the bytes of files, in place of the database. All processes that share the database need the same
    one."""

    database_connections: int = Field(default=CONNECTIONS, ge=2, le=1000)
    """How many connections an engine may hold to a PostgreSQL server at once. Those of all processes together must
    stay below what the server admits."""

    worker_slots: int = Field(default=100, ge=1, le=100_000)
    """How many conversations one process looks after at once, where several processes share a database."""

    lease: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 15.0
    """Seconds after which a process whose heart has not beaten counts as dead, where several processes share a
    database: others take its conversations over then. A tool that blocks its event loop for so long is taken over,
    too."""

    if not TYPE_CHECKING:  # a type checker reads the arguments in the fields

        def __init__(self, **arguments: Any) -> None:
            try:
                super().__init__(**arguments)
            except ValidationError as error:
                raise ConfigurationError(_sentence_of(error, type(self), arguments)) from None

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where the values come from."""
        variables = partial(variables_of, settings_cls)
        file = partial(values_of_file, settings_cls, keeps_unknown=cls.refuses_unknown_keys)
        return (FirstOf(settings_cls, sources["init_settings"], variables, file),)

    def reply_flow(self) -> Policy:
        """Return the rules of `presets.reply_flow` with the numbers and the marker of these settings."""
        return presets.reply_flow(self.agentic_max_turns, self.dialogue_window_sec, self.tool_marker)


class FirstOf(PydanticBaseSettingsSource):
    """Several sources as one, those that take precedence first. A value is taken from the first that has it."""

    def __init__(self, settings: type[BaseSettings], *sources: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(settings)
        self._sources = sources

    def __call__(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: value for source in reversed(self._sources) for name, value in source().items()}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not called, because all values are returned at once."""
        raise NotImplementedError


def variables_of(settings: type[BaseSettings]) -> dict[str, Any]:
    """Return the values of the environment variables, by name. Raises `ConfigurationError` for a variable that does not
    hold the JSON that it should.

    Usually none is set, and there is no file either; then nothing of pydantic-settings is asked. This halves the time
    that it takes to read the settings, which every engine does that is opened without any.
    """
    is_any_set = any(name.upper().startswith(PREFIX) for name in os.environ)
    return _Variables(settings)() if is_any_set else {}


class _Variables(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return the value that a variable holds as JSON."""
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            variable = f"{self.env_prefix}{field_name}".upper()
            raise ConfigurationError(f"The environment variable {variable} does not hold valid JSON.") from None


def values_of_file(settings: type[BaseSettings], *, keeps_unknown: bool) -> dict[str, Any]:
    """Return the values of the file in the working directory, by name; none without a file. Raises `ConfigurationError`
    for a file that cannot be read. Keys that are not settings are passed over, unless `keeps_unknown`."""
    try:
        values = TomlConfigSettingsSource(settings, FILE)() if Path(FILE).exists() else {}
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigurationError(f"{FILE} cannot be read: {error}.") from None
    known = settings.model_fields
    return {name: value for name, value in values.items() if keeps_unknown or name in known}
