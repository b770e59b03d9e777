"""Walks through the table of the machine: random conversations that look for pairs of rows not yet seen in sequence.

A property test looks for a counterexample in what it happens to generate. A walk knows the table: at each step it
looks at several events and takes one that follows the last row by a row that seldom or never followed it. So no pair of
rows stays untested by chance.

A long search finds the pairs that can be reached. The walks that found them are kept in a file that is small enough to
take them again in every test run. Which events are generated is decided in `generation/`.

    python -m tests.walking tests/fixtures/walks.txt                 print what the kept walks cover
    python -m tests.walking tests/fixtures/walks.txt --search 600    search for more for ten minutes
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from turnwise.states.context import Context
from turnwise.states.events import Event, Opened
from turnwise.states.grammar import Entry, Junction, Row, Same, Target
from turnwise.states.machine import begin, entry_for, transition
from turnwise.states.policy import Questions, Recovery, SubAgentRules
from turnwise.states.states import State
from turnwise.states.table import TABLE
from turnwise.states.values.value import FailureKind
from turnwise.testing.generation.chance import NOON, Chance, Seeded
from turnwise.testing.generation.events import candidates, request
from turnwise.testing.generation.vocabulary import (
    FORM,
    PLAIN,
    TOOLS,
    Vocabulary,
    an_attempt,
    one_of,
    plain_policy,
)

__all__ = [
    "Coverage",
    "CuriousChooser",
    "Pair",
    "RecordedChoices",
    "TakenRow",
    "possible_pairs",
    "read_walks",
    "walk",
    "write_walks",
]

LENGTH = 60
"""The most steps of a walk: enough for a few turns."""

LOOKED_AT = 36
"""The most events among which one is chosen."""


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


@dataclass(frozen=True)
class WalkStep:
    """One step of a walk: its input, and the row that it took directly after another."""

    state: State
    event: Event
    context: Context
    pair: Pair


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


class Chooser(Protocol):
    """Chooses how a walk continues."""

    def choose(self, pairs: Sequence[Pair]) -> int | None:
        """Return the place of the pair to take among those that are possible now; None ends the walk."""
        ...


CURIOUS = 0.8
"""How often the pair that was seen least is taken, and not any pair."""


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


@dataclass(frozen=True)
class Theme:
    """What a walk is about, where rare things must coincide: the rules that it always has, and its tools."""

    rules: dict[str, Any]
    tools: tuple[str, ...]


Kept = tuple[int, tuple[int, ...]]
"""A seed and the choices of its walk."""

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def read_walks(path: Path) -> list[Kept]:
    """Return the walks of a file, in order; none if there is no such file.

    The kept walks together take every pair of rows that was ever found. Each line is a walk: its seed, and its choices
    as one character each. A walk whose choices no longer fit, because the table or the generators have changed, ends
    where they stop fitting.
    """
    if not path.is_file():
        return []
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return [(int(seed), tuple(LETTERS.index(letter) for letter in choices)) for seed, choices in lines]


def write_walks(path: Path, walks: Iterable[Kept]) -> None:
    """Write these walks to the file, in the place of what it held."""
    lines = (f"{seed} {''.join(LETTERS[choice] for choice in choices)}\n" for seed, choices in walks)
    path.write_text("".join(lines), encoding="ascii")


_ASK_USER = SubAgentRules(depth=2, questions="ask_user")

_THEMES = (
    Theme({}, ()),
    Theme({}, ()),
    Theme({"parallel": 3, "recovery": Recovery(resumes=2)}, ("pay", "book", "look", "ask_beside")),
    Theme({"verify": 3, "text": "fallback"}, ("finish", "respond", "look")),
    Theme({"sub_agents": _ASK_USER}, ("spawn", "look")),
    Theme({"sub_agents": _ASK_USER, "questions": Questions(cancel="resume")}, ("spawn", "ask")),
)

_TYPED_FROM = 8_000_000
"""From this seed on, walks ask for typed answers. Those that were kept before stay as they are."""

_FAILURES: tuple[FailureKind, ...] = ("timeout", "timeout", "content_filter", "context_window")


def generator_of(seed: int) -> tuple[Chance, Vocabulary]:
    """What the events of the walk of this seed are generated from. The same seed gives the same events for the same
    states."""
    chance, theme = Seeded(seed), _THEMES[seed % len(_THEMES)]
    if seed >= _TYPED_FROM and seed % 2:
        theme = Theme({**theme.rules, "output_retries": seed % 3}, theme.tools)
    few = chance.sample(TOOLS, chance.pick((1, 2, 3, 6)))  # so that the same tools meet again
    tools = [tool for tool in TOOLS if tool.name in theme.tools] or few
    policy = partial(plain_policy, **theme.rules)
    words = replace(PLAIN, tool=one_of(*tools), policy=policy)
    if seed >= _TYPED_FROM:
        words = replace(words, attempt=an_attempt, output=one_of(FORM, FORM, None))
    return chance, replace(words, model_failure=one_of(*_FAILURES))


def opening_of(seed: int) -> Opened:
    """How the walk of this seed begins."""
    _, vocabulary = generator_of(seed)
    return request(Seeded(seed), vocabulary, Opened, "opened", NOON)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the kept walks cover. With `--search`, look for pairs that they do not cover, and keep the walks that
    were found. Returns 1 if there were any."""
    parser = argparse.ArgumentParser(prog="python -m tests.walking", description="Walk through the table.")
    parser.add_argument("file", type=Path, help="the kept walks")
    parser.add_argument("--search", type=float, metavar="SECONDS", default=0.0, help="search for more, for so long")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: after all kept walks)")
    wanted = parser.parse_args(arguments)
    kept = read_walks(wanted.file)
    coverage = take(kept)
    print(f"{len(kept)} walks cover {coverage}.")
    if not wanted.search:
        return 0
    first = max((seed for seed, _ in kept), default=-1) + 1 if wanted.seed is None else wanted.seed
    found = list(search(coverage, first, wanted.search))
    shortest = list(needed([*kept, *found]))
    write_walks(wanted.file, shortest)
    print(f"{len(shortest)} walks cover {take(shortest)}; the search began at seed {first}.")
    return 1 if found else 0


def take(walks: Iterable[Kept]) -> Coverage:
    """Return what these walks cover."""
    coverage = Coverage()
    for seed, choices in walks:
        for step in walk(seed, RecordedChoices(choices)):
            coverage.add(step.pair)
    return coverage


def search(coverage: Coverage, seed: int, seconds: float) -> Iterator[Kept]:
    """Yield walks that cover something new, each up to the last step that did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        curious, useful = CuriousChooser(coverage, Random(~seed)), 0
        for place, step in enumerate(walk(seed, curious), start=1):
            useful = place if coverage.add(step.pair) else useful
        if useful:
            yield seed, tuple(curious.choices[:useful])
        seed += 1


def pairs_of(kept: Kept) -> Iterator[Pair]:
    """The pairs that a walk takes."""
    seed, choices = kept
    return (step.pair for step in walk(seed, RecordedChoices(choices)))


def needed(walks: Sequence[Kept], pairs: Callable[[Kept], Iterable[Pair]] = pairs_of) -> Iterator[Kept]:
    """Yield the walks that cover something that no longer walk covers, the longest first."""
    coverage = Coverage()
    for kept in sorted(walks, key=lambda kept: -len(kept[1])):
        if sum([coverage.add(pair) for pair in pairs(kept)]):
            yield kept


if __name__ == "__main__":
    raise SystemExit(main())
