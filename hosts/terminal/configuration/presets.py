"""Finds the policy that a preset names, and checks that an engine can carry it out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....states import presets
from ....states.errors import ConfigurationError
from ....states.policy import Policy

if TYPE_CHECKING:
    from ....engine.engine import Engine
    from .settings import Settings


WITHOUT_USER = {"background", "sub_agent"}
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
    return {name: f for name, f in made_here.items() if name not in WITHOUT_USER and not name.startswith("_")}
