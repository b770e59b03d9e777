"""Finds the policy that a preset names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....states.errors import ConfigurationError
from ....states.policy import presets
from ....states.policy.policy import Policy

if TYPE_CHECKING:
    from .settings import Settings


def preset_of(settings: Settings) -> Policy:
    """Return the policy of the preset that the settings name, with what they say about it; `-` may stand for `_`.

    Raises `ConfigurationError`, which lists the presets.
    """
    known = known_presets() | {"reply_flow": settings.reply_flow}
    try:
        return known[settings.preset.replace("-", "_")]()
    except KeyError:
        sentence = f"There is no preset called {settings.preset}. Known: {', '.join(known)}."
        raise ConfigurationError(sentence) from None


def known_presets() -> dict[str, Callable[[], Policy]]:
    """Return the functions that make the presets, by name, in the order of their module."""
    functions = vars(presets).items()
    return {
        name: function
        for name, function in functions
        if inspect.isfunction(function) and function.__module__ == presets.__name__ and not name.startswith("_")
    }
