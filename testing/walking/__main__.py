"""The command that prints what the kept walks cover, and searches for more."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from .corpus import Kept, read_walks, write_walks
from .pairs import Coverage, Pair
from .walk import CuriousChooser, RecordedChoices, walk


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the kept walks cover. With `--search`, look for pairs that they do not cover, and keep the walks that
    were found. Returns 1 if there were any."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.testing.walking", description="Walk through the table.")
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
