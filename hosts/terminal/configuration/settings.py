"""What the command works with: which database, which model, which tools.

An option on the command line is heard first, then a variable `TURNWISE_…` of the environment, then the file
`turnwise.toml` in the working directory, then the defaults below. The names are the same everywhere:

    db = "dinner.db"
    model = "openai/gpt-4.1-mini"
    tools = ["ask_user_question", "dinner:find_table"]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from ....states.errors import ConfigurationError

FILE = "turnwise.toml"


class Settings(BaseSettings):
    """The settings of one run. Make them with `settings_of`."""

    model_config = SettingsConfigDict(
        env_prefix="TURNWISE_", env_ignore_empty=True, toml_file=FILE, extra="forbid", frozen=True
    )

    db: str = Field(default="turnwise.db", min_length=1)
    """The database: a path, or a URL like sqlite:///dinner.db."""

    model: str = Field(default="rehearsal", min_length=1)
    """The model, as litellm names it; `rehearsal` needs no key."""

    tools: Annotated[tuple[str, ...], NoDecode] = ("ask_user_question",)
    """Names of built-in tools, and functions as package.module:function; as text, separated by commas."""

    preset: str = "assistant"
    """The set of rules: a function of `turnwise.states.policy.presets`."""

    system: str = ""
    """The system prompt of a new conversation."""

    thoughts: bool = False
    """Whether to show what the model thinks."""

    speak: bool = False
    """Whether what is said to the user is also spoken."""

    debug: bool = False
    """Whether to write a log to stderr."""

    @field_validator("tools", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        names = (given,) if isinstance(given, str) else given
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return given
        return tuple(part.strip() for name in names for part in name.split(",") if part.strip())

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Options, environment, file: in this order, and no others."""
        return sources["init_settings"], sources["env_settings"], TomlConfigSettingsSource(settings_cls)


class _OfTheDirectory(Settings):
    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (TomlConfigSettingsSource(settings_cls),)


def settings_of(**options: object) -> Settings:
    """The settings, with the options of a command line; one that is None was not given. Raises `ConfigurationError`."""
    return _read(Settings, {name: value for name, value in options.items() if value is not None})


def settings_of_the_directory() -> Settings:
    """The settings that hold in the working directory whoever comes: those of the file, and the defaults. Raises
    `ConfigurationError`."""
    return _read(_OfTheDirectory, {})


def _read(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    try:
        return kind(**given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigurationError(f"The setting {where} is not valid: {fault['msg']}.") from None
    except (SettingsError, ValueError, OSError) as error:
        raise ConfigurationError(f"{FILE} cannot be read: {error}.") from None
