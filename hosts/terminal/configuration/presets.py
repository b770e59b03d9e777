"""Finds a set of rules by the name of its preset."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ....states.errors import ConfigurationError
from ....states.policy import presets
from ....states.policy.policy import Policy


def preset_named(name: str) -> Policy:
    """The ready set of rules of this name. Raises `ConfigurationError`, which says what there is."""
    known = _presets()
    try:
        return known[name.replace("-", "_")]()
    except KeyError:
        raise ConfigurationError(f"There is no preset called {name}. Known: {', '.join(known)}.") from None


def _presets() -> dict[str, Callable[[], Policy]]:
    """The public functions of the module, in the order in which they stand there."""
    functions = vars(presets).items()
    return {
        name: function
        for name, function in functions
        if inspect.isfunction(function) and function.__module__ == presets.__name__ and not name.startswith("_")
    }
