"""Pairs of rows: one taken directly after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...states.grammar import Entry, Junction, Row, Same, Target
from ...states.states import State
from ...states.table import TABLE


class TakenRow(NamedTuple):
    """A row of the table: the state that it leaves, and its place among the entries of that state."""

    source: type[State]
    place: int

    @property
    def row(self) -> Row:
        """The row itself."""
        row = TABLE[self.source][self.place]
        assert isinstance(row, Row), "refusals and no-ops are no steps"
        return row

    def __str__(self) -> str:
        row = self.row
        guard = "" if row.when is None else f" when {row.when.__name__}"
        return f"{self.source.__name__} on {row.event.__name__}{guard}"


Pair = tuple[TakenRow | None, TakenRow]
"""A row, and the one taken directly before it: None where a walk begins."""


_PLACES = {(source, id(entry)): place for source, entries in TABLE.items() for place, entry in enumerate(entries)}


def place_of(source: type[State], entry: Entry) -> int:
    """The place of an entry among those of its state. `Pure.`"""
    return _PLACES[source, id(entry)]


def rows() -> Iterator[TakenRow]:
    """Every row of the table. `Pure.`"""
    for source, entries in TABLE.items():
        for place, entry in enumerate(entries):
            if isinstance(entry, Row):
                yield TakenRow(source, place)


def ends(source: type[State], to: Target) -> frozenset[type[State]]:
    """The states that a row may come to rest in, as far as the table tells. `Pure.`"""
    if isinstance(to, Same):
        return frozenset({source})
    if isinstance(to, Junction):
        return frozenset(end for branch in to.branches for end in ends(source, branch.to))
    return frozenset({to})


def possible_pairs() -> frozenset[Pair]:
    """Every pair that the table allows, whatever its guards say. `Pure.`"""
    every = tuple(rows())
    leaving = {source: [step for step in every if step.source is source] for source in TABLE}
    return frozenset(
        (first, second) for first in every for end in ends(first.source, first.row.to) for second in leaving[end]
    )


@dataclass
class Coverage:
    """How often each pair was taken."""

    seen: Counter[Pair] = field(default_factory=Counter)

    def add(self, pair: Pair) -> bool:
        """This pair was taken; says whether it was the first time."""
        self.seen[pair] += 1
        return self.seen[pair] == 1

    def __str__(self) -> str:
        taken = {row for _, row in self.seen}
        every = sum(1 for _ in rows())
        return f"{len(taken):,} of {every:,} rows, {len(self.seen):,} pairs of rows in sequence"
