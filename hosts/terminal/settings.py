"""The settings of a run: which database, which model, which tools.

A value comes from the command line, else from an environment variable `TURNWISE_…`, else from the file `turnwise.toml`
in the working directory, else from the defaults below. The names are the same everywhere:

    db = "dinner.db"
    model = "openai/gpt-4.1-mini"
    tools = ["ask_user_question", "dinner:find_table"]
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource

from ...engine import settings
from ...engine.settings import File, FirstOf
from ...states.errors import ConfigurationError


class Settings(settings.Settings):
    """The settings of one run, with those of its engine. Use `read_settings` to create them."""

    refuses_unknown_keys: ClassVar[bool] = True

    db: str = Field(default="turnwise.db", min_length=1)
    """The database: a path, or a URL like sqlite:///dinner.db."""

    model: str = Field(default="rehearsal", min_length=1)
    """The model, as litellm names it; `rehearsal` needs no key."""

    models: Annotated[tuple[str, ...], NoDecode] = ()
    """More models, which /model can choose in a chat. A string is split at its commas."""

    tools: Annotated[tuple[str, ...], NoDecode] = ("ask_user_question",)
    """Names of built-in tools, and functions as package.module:function. A string is split at its commas."""

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

    @field_validator("models", "tools", "allow_hosts", "origins", mode="before")
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
        file = File(settings_cls, settings.FILE, keeps_unknown=True)
        return (FirstOf(settings_cls, file),)


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
