"""Walks through the table: conversations made up at random, which seek out what was not seen yet.

Property tests look for a counterexample in what they happen to make. A walk knows the table: at each step it looks at
several events and takes one that continues the last row by a row that seldom or never followed it. So a pair of rows
that nobody has ever seen in sequence does not stay unseen by chance.

A long search finds the pairs that can be reached; the walks that found them are kept, in a file so small that every
test run can take them again.

    python -m turnwise.testing.walking tests/fixtures/walks.txt                 tell what the kept walks cover
    python -m turnwise.testing.walking tests/fixtures/walks.txt --search 600    look for more for ten minutes
"""

from __future__ import annotations

from .corpus import read_walks, write_walks
from .pairs import Coverage, Pair, Taken, possible_pairs
from .walk import Curious, Recorded, walk

__all__ = ["Coverage", "Curious", "Pair", "Recorded", "Taken", "possible_pairs", "read_walks", "walk", "write_walks"]
