"""Where settings come from: the first source that has a value decides it alone.

pydantic-settings would merge the dicts of several sources. Here a dict of profiles that an application passes is all
there is, whatever file lies in the working directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


class Environment(EnvSettingsSource):
    """The environment variables. Raises `ConfigurationError` for one that is not the JSON that it should be."""

    def __call__(self) -> dict[str, Any]:
        """Return the values by name. Usually no variable is set, and then no field is looked up: this halves the time
        that it takes to read the settings, which every engine does that is opened without any."""
        prefix = self.env_prefix.lower()
        return super().__call__() if any(name.lower().startswith(prefix) for name in self.env_vars) else {}

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
        self._path = path
        self._keeps_unknown = keeps_unknown

    def __call__(self) -> dict[str, Any]:
        """Return the values by name."""
        try:
            values = TomlConfigSettingsSource(self._settings, self._path)()
        except (ValueError, OSError, RecursionError) as error:
            raise ConfigurationError(f"{self._path} cannot be read: {error}.") from None
        known = self._settings.model_fields
        return {name: value for name, value in values.items() if self._keeps_unknown or name in known}
