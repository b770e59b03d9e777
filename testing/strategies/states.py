"""Strategies for states and effects."""

from __future__ import annotations

from functools import cache

from hypothesis.strategies import SearchStrategy

from ...states.effects import EFFECTS, Effect
from ...states.states import State
from ..generation.chance import Chance
from ..generation.from_types import from_type
from ..generation.states import a_state
from .drawn import strategy_of


@cache
def states(*kinds: type[State]) -> SearchStrategy[State]:
    """States of these types, or of any."""
    return strategy_of(a_state)(*kinds)


@strategy_of
def effects(chance: Chance, *kinds: type[Effect]) -> Effect:
    """Effects of these types, or of any, whatever the step that they are part of."""
    return from_type(chance.pick(kinds or EFFECTS), chance)
