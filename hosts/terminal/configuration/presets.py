"""Finds the policy that a preset names."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ....states.errors import ConfigurationError
from ....states.policy import presets
from ....states.policy.policy import Policy


def preset_named(name: str) -> Policy:
    """Return the policy of this preset; `-` may stand for `_`. Raises `ConfigurationError`, which lists the presets."""
    known = known_presets()
    try:
        return known[name.replace("-", "_")]()
    except KeyError:
        raise ConfigurationError(f"There is no preset called {name}. Known: {', '.join(known)}.") from None


def known_presets() -> dict[str, Callable[[], Policy]]:
    """Return the functions that make the presets, by name, in the order of their module."""
    functions = vars(presets).items()
    return {
        name: function
        for name, function in functions
        if inspect.isfunction(function) and function.__module__ == presets.__name__ and not name.startswith("_")
    }
