"""Reads docs/development/benchmarks.json, which `make bench` writes, and says what follows from its rounds.

Of several rounds the best one counts: whatever else a machine does makes a round slower, never faster. The page and the
plots are made from what is computed here, without measuring anything again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

Round = dict[str, Any]

OURS, FLOOR = "turnwise", "floor"


@dataclass(frozen=True)
class Measure:
    """A number that a system has for each round of a part."""

    title: str
    unit: str
    part: str
    value: Callable[[Round], float]
    higher_is_better: bool = False
    digits: int = 1

    def text(self, value: float) -> str:
        """Return the number as the tables show it."""
        return f"{value:,.{0 if abs(value) >= 100 else self.digits}f}"


def growth(clock: str) -> Callable[[Round], float]:
    """Return what compares the median turn of the last fifth with that of the first, by a clock."""

    def last_to_first(taken: Round) -> float:
        turns = taken[clock]
        fifth = max(1, len(turns) // 5)
        return float(median(turns[-fifth:]) / max(1, median(turns[:fifth])))

    return last_to_first


RATE = Measure("one conversation of 200 turns", "turns/s", "long", lambda r: r["turns"] / sum(r["wall"]) * 1e6, True)
PROCESSOR = Measure("its processor time", "ms/turn", "long", lambda r: sum(r["processor"]) / r["turns"] / 1e3, digits=2)
MANY_RATE = Measure("100 conversations of 10 turns at once", "turns/s", "many", lambda r: r["turns"] / r["wall"], True)
MANY = Measure("their processor time", "ms/turn", "many", lambda r: r["processor"] / r["turns"] * 1e3, digits=2)
GROWTH = Measure("a late turn beside an early one", "×", "growth", growth("processor"), digits=2)
BYTES = Measure("database", "bytes/turn", "long", lambda r: r["bytes"])
SYNCS = Measure("waits for the disk (fsync)", "/turn", "syncs", lambda r: r["syncs"])
PROCESS = Measure("start, go on after 200 turns, to the request", "ms", "reopen", lambda r: r["process"] * 1e3)
REOPEN = Measure("open, go on after 200 turns, to the request", "ms", "reopen", lambda r: r["asked"] * 1e3)
READY = Measure("opened and ready for the next message", "ms", "reopen", lambda r: r["ready"] * 1e3)
"""Of turnwise only: what a system reads before it takes a message differs, so this says nothing beside others."""

ANSWER = Measure("answer to next request", "ms", "answer", lambda r: median(r["seconds"]) * 1e3, digits=2)
STEP = Measure("a step in memory, processor", "µs", "steps", lambda r: r["seconds"] * 1e6)
IMPORT = Measure("import", "ms", "imports", lambda r: (r["seconds"] - r["nothing"]) * 1e3)
IDLE = Measure("an idle conversation, in Python", "bytes", "idle", lambda r: r["bytes"])

MEASURES = (
    *(RATE, PROCESSOR, MANY_RATE, MANY, GROWTH, BYTES, SYNCS),
    *(PROCESS, REOPEN, ANSWER, STEP, IMPORT, IDLE),
)


@dataclass(frozen=True)
class Results:
    """What docs/development/benchmarks.json says."""

    data: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read the file. Raises OSError if it cannot be read."""
        return cls(json.loads(file.read_text(encoding="utf-8")))

    @property
    def systems(self) -> list[str]:
        """The systems that were measured, turnwise first."""
        return [name for name, about in self.data["systems"].items() if "not measured" not in about]

    @property
    def peers(self) -> list[str]:
        """The libraries that turnwise is compared with."""
        return [name for name in self.systems if name not in (OURS, FLOOR)]

    def rounds(self, part: str, system: str) -> list[Round]:
        """Return the rounds that a part of a system has; none if it was not measured or is not offered."""
        taken = self.data["results"].get(part, {}).get(system, [])
        return [each for each in taken if "not measured" not in each and "not offered" not in each]

    def missing(self, part: str, system: str) -> str:
        """Say why there are no rounds: a dash where the part means nothing for the system."""
        results = self.data["results"]
        if part in results and system not in results[part]:
            return "–"
        taken = results.get(part, {}).get(system, [])
        return "not offered" if any("not offered" in each for each in taken) else "not measured"

    def best(self, measure: Measure, system: str) -> float | None:
        """Return the best of the rounds."""
        values = [measure.value(each) for each in self.rounds(measure.part, system)]
        return (max if measure.higher_is_better else min)(values) if values else None

    def best_round(self, measure: Measure, system: str) -> Round | None:
        """Return the round that is the best by this measure."""
        rounds = sorted(self.rounds(measure.part, system), key=measure.value)
        return rounds[-1 if measure.higher_is_better else 0] if rounds else None

    def typical(self, measure: Measure, system: str) -> float | None:
        """Return the median of the rounds."""
        values = [measure.value(each) for each in self.rounds(measure.part, system)]
        return median(values) if values else None

    def advantage(self, measure: Measure, system: str) -> float | None:
        """Return how many times better turnwise is than this system."""
        ours, theirs = self.best(measure, OURS), self.best(measure, system)
        if ours is None or theirs is None or not ours or not theirs:
            return None
        return ours / theirs if measure.higher_is_better else theirs / ours

    def best_peer(self, measure: Measure) -> float | None:
        """Return the value of the peer that is the best by this measure."""
        values = [value for value in (self.best(measure, name) for name in self.peers) if value is not None]
        return (max if measure.higher_is_better else min)(values) if values else None

    def figure(self, name: str) -> dict[str, Any] | None:
        """Return a figure of turnwise alone."""
        found = [each for figures in self.data["figures"].values() for each in figures if each.get("name") == name]
        return found[0] if found else None

    def number(self, name: str) -> float | None:
        """Return the number of a figure of turnwise alone."""
        figure = self.figure(name)
        return figure["number"] if figure else None
