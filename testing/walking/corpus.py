"""The file of kept walks, which together take every pair of rows that was ever found.

Each line is a walk: its seed, and its choices as one character each. A walk whose choices no longer fit, because the
table or the generators have changed, ends where they stop fitting.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"

Kept = tuple[int, tuple[int, ...]]
"""A seed and the choices of its walk."""


def read_walks(path: Path) -> list[Kept]:
    """Return the walks of a file, in order; none if there is no such file."""
    if not path.is_file():
        return []
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return [(int(seed), tuple(LETTERS.index(letter) for letter in choices)) for seed, choices in lines]


def write_walks(path: Path, walks: Iterable[Kept]) -> None:
    """Write these walks to the file, in the place of what it held."""
    lines = (f"{seed} {''.join(LETTERS[choice] for choice in choices)}\n" for seed, choices in walks)
    path.write_text("".join(lines), encoding="ascii")
