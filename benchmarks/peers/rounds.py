"""Runs every part for every system, each in a process of its own, and interleaves the systems within each round.

Whatever else the machine does then falls on all of them alike. All systems have the same number of rounds, so that the
best of them is no better for having been tried more often; the result holds every round.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, time
from typing import Any

from .environments import Measured, NotInstalled, interpreter

BENCHMARKS = Path(__file__).parent.parent

LONGEST = 240
"""Seconds that one process may take."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Modules are imported from compiled files, as those of an installed package are."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    rounds: int = 4
    turns: int = 200
    long_turns: int = 1000
    seconds: float = 15.0
    """How long the conversation of `long_turns` may take; the turns that were held by then count."""
    conversations: int = 100
    turns_each: int = 10
    counted: tuple[int, int] = (5, 25)
    """Turns of the two processes whose system calls strace counts; the difference is taken."""
    repeats: int = 5
    steps: int = 20
    """Turns in memory."""
    idle: tuple[int, int] = (50, 3)
    """Conversations that rest, and their turns."""


QUICK = Sizes(
    rounds=1,
    turns=4,
    long_turns=5,
    conversations=3,
    turns_each=2,
    counted=(1, 2),
    repeats=2,
    steps=2,
    idle=(3, 1),
)


@dataclass
class Rounds:
    """The results of all parts: for each part and system a list with an entry for each round."""

    folder: Path
    cache: Path
    sizes: Sizes
    results: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    systems: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The versions of each system and what it stores, or why it was not measured."""
    pythons: dict[Measured, Path] = field(default_factory=dict)

    def prepare(self, systems: Iterable[Measured]) -> None:
        """Make the environments."""
        for system in systems:
            self.systems[system.name] = {}
            try:
                self.pythons[system] = interpreter(system, self.cache)
            except NotInstalled as reason:
                self.systems[system.name] = {"not measured": str(reason)}

    def parts(self) -> dict[str, tuple[dict[str, Any], int]]:
        """Return what is measured: the sizes of each part, and how many rounds it has."""
        sizes = self.sizes
        few, some = min(2, sizes.rounds), min(3, sizes.rounds)
        return {
            "imports": ({}, sizes.rounds),
            "long": ({"turns": sizes.turns}, sizes.rounds),
            "reopen": ({"repeats": sizes.repeats}, some),
            "many": ({"conversations": sizes.conversations, "turns": sizes.turns_each}, sizes.rounds),
            "growth": ({"turns": sizes.long_turns, "seconds": sizes.seconds}, 1),
            "answer": ({"repeats": 2 * sizes.repeats}, few),
            "steps": ({"turns": sizes.steps, "repeats": sizes.repeats}, few),
            "idle": ({"conversations": sizes.idle[0], "turns": sizes.idle[1]}, 1),
            "syncs": ({}, 1),
        }

    def measure(self, part: str) -> None:
        """Run all rounds of a part."""
        sizes, rounds = self.parts()[part]
        taking_part = [system for system in self.pythons if not system.parts or part in system.parts]
        results = self.results[part] = {system.name: [] for system in taking_part}
        for number in range(rounds):
            for system in taking_part:
                began = perf_counter()
                results[system.name].append(self.once(system, part, sizes))
                took = perf_counter() - began
                print(f"{part} {number + 1}: {system.name}, {took:.1f} s", file=sys.stderr, flush=True)

    def once(self, system: Measured, part: str, sizes: dict[str, Any]) -> dict[str, Any]:
        """Run a part of a system once. Where it fails, the result says why."""
        try:
            if part == "imports":
                return self.imported(system)
            if part == "syncs":
                return self.synced(system)
            if part == "reopen":
                return self.reopened(system, sizes)
            return self.run(system, {"growth": "long"}.get(part, part), sizes)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
            print(f"{part}: {system.name} failed: {reason_of(failed)}", file=sys.stderr)
            return {"not measured": reason_of(failed)}

    def run(self, system: Measured, part: str, sizes: dict[str, Any], under: Sequence[str] = ()) -> dict[str, Any]:
        """Run a part in the system's own Python, and return what it measured."""
        folder = self.folder / system.module
        if part == "long":
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        program = [str(self.pythons[system]), "-m", f"peers.{system.module}", part, str(folder), json.dumps(sizes)]
        printed: dict[str, dict[str, Any]] = json.loads(_output([*under, *program]).splitlines()[-1])
        self.systems[system.name] = printed["about"]
        return printed["measured"]

    def reopened(self, system: Measured, sizes: dict[str, Any]) -> dict[str, Any]:
        """Open the conversation that the last round of `long` left."""
        left = [each["key"] for each in self.results.get("long", {}).get(system.name, ()) if "key" in each]
        if not left:
            return {"not measured": "it needs a conversation that the part `long` has left"}
        return self.run(system, "reopen", {**sizes, "key": left[-1], "started": time()})

    def imported(self, system: Measured) -> dict[str, Any]:
        """The seconds of a process that imports the system, and of one that does nothing."""
        programs = {"seconds": system.imports, "nothing": "pass"}
        return {name: _seconds([str(self.pythons[system]), "-c", code]) for name, code in programs.items()}

    def synced(self, system: Measured) -> dict[str, Any]:
        """How often a turn waits for the disk."""
        strace = shutil.which("strace")
        if strace is None:
            return {"not measured": "there is no strace on the PATH"}
        few, many = self.sizes.counted
        calls = [self.calls(strace, system, turns) for turns in (few, many)]
        return {"syncs": (calls[1] - calls[0]) / (many - few)}

    def calls(self, strace: str, system: Measured, turns: int) -> int:
        """How often a process syncs that holds so many turns."""
        seen = self.folder / "strace.txt"
        tracing = [strace, "-f", "-e", "trace=fsync,fdatasync", "-o", str(seen)]
        self.run(system, "syncs", {"turns": turns}, tracing)
        return sum("sync(" in line for line in seen.read_text().splitlines())


def reason_of(failed: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    """Return the last line that a process wrote before it failed, or what is known otherwise."""
    written = failed.stderr if isinstance(failed.stderr, str) else ""
    return (written.strip() or str(failed)).splitlines()[-1]


def _output(command: list[str]) -> str:
    options: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "timeout": LONGEST}
    return str(subprocess.run(command, cwd=BENCHMARKS, env=ENVIRONMENT, **options).stdout)


def _seconds(command: list[str]) -> float:
    began = perf_counter()
    _output(command)
    return perf_counter() - began
