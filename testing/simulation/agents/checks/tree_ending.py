"""How a simulation of agents has ended: what is stored of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...storage.storage import Delivered
from ...users.call_recorder import CallRecorder
from ..tree import Tree


@dataclass(frozen=True)
class TreeEnding:
    """How a simulation of agents has ended.

    `outbox` is what was still to be handed over; `is_cut_short` says that the engines were closed before the agents
    came to rest, and `was_set_back` that the clock was set back at some time. `recorders` hold what users called, by
    the agent that they used; an agent without users has none.
    """

    tree: Tree
    outbox: Sequence[Delivered]
    is_cut_short: bool
    was_set_back: bool
    recorders: Mapping[str, CallRecorder]


TreeCheck: TypeAlias = Callable[[TreeEnding], Iterator[str]]
"""Yields a sentence for each place where an invariant of the tree does not hold."""
