"""Walks through the table of the machine: random conversations that look for pairs of rows not yet seen in sequence.

A property test looks for a counterexample in what it happens to generate. A walk knows the table: at each step it
looks at several events and takes one that follows the last row by a row that seldom or never followed it. So no pair of
rows stays untested by chance.

A long search finds the pairs that can be reached. The walks that found them are kept in a file that is small enough to
take them again in every test run. Which events are generated is decided in `generation/`.

    python -m turnwise.testing.walking tests/fixtures/walks.txt                 print what the kept walks cover
    python -m turnwise.testing.walking tests/fixtures/walks.txt --search 600    search for more for ten minutes
"""

from __future__ import annotations

from .corpus import read_walks, write_walks
from .pairs import Coverage, Pair, TakenRow, possible_pairs
from .walk import CuriousChooser, RecordedChoices, walk

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
