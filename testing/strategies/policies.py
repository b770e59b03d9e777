"""Strategies for policies, and for the contexts in which states rest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...states.policy import Limits, Policy
from ..generation import extremes
from ..generation.states import context_for
from .drawn import Drawn, strategy_of


@cache
def policies(**rules: SearchStrategy[Any]) -> SearchStrategy[Policy]:
    """Policies of every kind, with the rules given: 1 to 3 models, up to 4 tools at once, limits down to nothing."""
    return _policies(rules)


@st.composite
def _policies(draw: st.DrawFn, rules: Mapping[str, SearchStrategy[Any]]) -> Policy:
    return extremes.any_policy(Drawn(draw), **{name: draw(rule) for name, rule in rules.items()})


@cache
def tight_limits() -> SearchStrategy[Limits]:
    """Limits that a conversation soon meets."""
    return strategy_of(extremes.tight_limits)()


contexts_for = strategy_of(context_for)
