"""Where settings come from: the first source that has a value decides it alone.

pydantic-settings would merge the dicts of several sources. Here a dict of profiles that an application passes is all
there is, whatever file lies in the working directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, TomlConfigSettingsSource

from ..states.errors import ConfigurationError


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


class Environment:
    """The environment variables whose names begin with `prefix`.

    Usually none is set, and there is no file either; then nothing of pydantic-settings is asked. This halves
    the time that it takes to read the settings, which every engine does that is opened without any.
    """

    def __init__(self, settings: type[BaseSettings], prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix

    def __call__(self) -> dict[str, Any]:
        """Return the values by name. Raises `ConfigurationError` for a variable that does not hold the JSON that it
        should."""
        is_any_set = any(name.upper().startswith(self._prefix) for name in os.environ)
        return _Variables(self._settings)() if is_any_set else {}


class _Variables(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return the value that a variable holds as JSON."""
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            variable = f"{self.env_prefix}{field_name}".upper()
            raise ConfigurationError(f"The environment variable {variable} does not hold valid JSON.") from None


class File:
    """The file in the working directory; without it there are no values. Raises `ConfigurationError` for a file that
    cannot be read. Keys that are not settings are passed over, unless `keeps_unknown`."""

    def __init__(self, settings: type[BaseSettings], path: str, *, keeps_unknown: bool) -> None:
        self._settings = settings
        self._path = Path(path)
        self._keeps_unknown = keeps_unknown

    def __call__(self) -> dict[str, Any]:
        """Return the values by name."""
        try:
            values = TomlConfigSettingsSource(self._settings, self._path)() if self._path.exists() else {}
        except (ValueError, OSError, RecursionError) as error:
            raise ConfigurationError(f"{self._path} cannot be read: {error}.") from None
        known = self._settings.model_fields
        return {name: value for name, value in values.items() if self._keeps_unknown or name in known}
