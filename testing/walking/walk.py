"""One walk: a conversation from its opening on, which follows from a seed and from choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Protocol

from ...states.context import Context
from ...states.events import Event
from ...states.grammar import Row
from ...states.machine import begin, entry_for, transition
from ...states.states import State
from ..generation.events import candidates
from ..generation.values import NOON
from .opening import generator_of, opening_of
from .pairs import Coverage, Pair, TakenRow, place_of

LENGTH = 60
"""The most steps of a walk: enough for a few turns."""

LOOKED_AT = 16
"""The most events among which one is chosen."""

CURIOUS = 0.8
"""How often the pair that was seen least is taken, and not any pair."""


class Chooser(Protocol):
    """Chooses how a walk continues."""

    def choose(self, pairs: Sequence[Pair]) -> int | None:
        """Return the place of the pair to take among those that are possible now; None ends the walk."""
        ...


@dataclass
class CuriousChooser:
    """Chooses the pair that was seen least, and records its choices."""

    coverage: Coverage
    chance: Random
    choices: list[int] = field(default_factory=list)

    def choose(self, pairs: Sequence[Pair]) -> int:
        """Return a pair that was seen least, or now and then any pair."""
        if self.chance.random() > CURIOUS:
            place = self.chance.randrange(len(pairs))
        else:
            place = min(range(len(pairs)), key=lambda place: self.coverage.seen[pairs[place]])
        self.choices.append(place)
        return place


@dataclass
class RecordedChoices:
    """Repeats recorded choices."""

    choices: Sequence[int]
    _next: int = 0

    def choose(self, pairs: Sequence[Pair]) -> int | None:
        """Return the next of the recorded choices."""
        if self._next >= len(self.choices) or self.choices[self._next] >= len(pairs):
            return None
        self._next += 1
        return self.choices[self._next - 1]


@dataclass(frozen=True)
class WalkStep:
    """One step of a walk: its input, and the row that it took directly after another."""

    state: State
    event: Event
    context: Context
    pair: Pair


def walk(seed: int, chooser: Chooser) -> Iterator[WalkStep]:
    """Yield the steps of the walk of this seed. The same seed and choices give the same walk."""
    chance, vocabulary = generator_of(seed)
    opened = opening_of(seed)
    state, context, at = begin(opened).state, Context().after(opened), NOON
    last: TakenRow | None = None
    for _ in range(LENGTH):
        at += timedelta(seconds=1)
        ways = list(_ways(candidates(chance, vocabulary, state, at)[:LOOKED_AT], state, context))
        place = chooser.choose([(last, taken) for _, taken in ways]) if ways else None
        if place is None:
            return
        event, taken = ways[place]
        yield WalkStep(state, event, context, (last, taken))
        state, context, last = transition(state, event, context).state, context.after(event), taken


def _ways(events: Sequence[Event], state: State, context: Context) -> Iterator[tuple[Event, TakenRow]]:
    for event in events:
        entry = entry_for(state, event, context)
        if isinstance(entry, Row):
            yield event, TakenRow(type(state), place_of(type(state), entry))
