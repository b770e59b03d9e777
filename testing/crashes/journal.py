"""What was seen from outside, in a file that outlives the process.

The log of a conversation holds what the engine knows. The journal holds what can be compared with it: which effects
were begun, which requests were acknowledged, which deliveries arrived.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Journal:
    """A file to which lines are added. Once `add` returns the whole line is there, even if the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, kind: str, *fields: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps([kind, *fields]).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass
class Seen:
    """The content of a journal: how often each effect was begun, the requests that were taken, and what arrived."""

    boundaries: list[str] = field(default_factory=list)
    """The names of the boundaries that were reached, in order."""

    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each effect, by conversation and id, was begun."""

    taken: set[tuple[str, str]] = field(default_factory=set)
    """The requests that were acknowledged, by conversation and id."""

    arrived: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The effects whose deliveries arrived, by conversation and channel, in order."""

    @classmethod
    def read(cls, path: Path) -> Seen:
        """Read a journal. A missing one counts as empty."""
        seen = cls()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            kind, *fields = json.loads(line)
            if kind == "boundary":
                seen.boundaries.append(fields[0])
            elif kind == "begun":
                seen.begun[fields[0], fields[1]] += 1
            elif kind == "taken":
                seen.taken.add((fields[0], fields[1]))
            elif kind == "arrived":
                seen.arrived.setdefault((fields[0], fields[1]), []).append(fields[2])
        return seen
