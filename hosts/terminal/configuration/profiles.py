"""Which profiles a chat has: those of the settings, or one of them for all turns."""

from __future__ import annotations

from ....states.errors import ConfigurationError
from .settings import Settings


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
