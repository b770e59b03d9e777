"""What the world outside saw, written down so that it outlives the process that did it.

The log of a conversation tells what the engine knows. To hold it to that takes somebody else's book: which calls
reached the world, which requests were told to be taken, what arrived at the user.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Journal:
    """A file to which lines are added. A line is there, whole, once `add` returns, whatever becomes of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, kind: str, *fields: Any) -> None:
        """Write down that this happened."""
        os.write(self._file, json.dumps([kind, *fields]).encode() + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


@dataclass
class Seen:
    """What stands in a journal: how often each effect was begun, the requests that were taken, and what arrived."""

    boundaries: list[str] = field(default_factory=list)
    """The boundaries that were passed, in order."""

    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each effect, by conversation and id, was begun."""

    taken: set[tuple[str, str]] = field(default_factory=set)
    """The requests, by conversation and id, of which somebody was told that they were taken."""

    arrived: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The effects whose deliveries arrived, by conversation and channel, in order."""

    @classmethod
    def read(cls, path: Path) -> Seen:
        """Read a journal; one that nobody wrote is empty."""
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
