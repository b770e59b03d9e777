"""Runs what docs/development/benchmarks.md reports, and writes it as one JSON: the comparison, and turnwise alone.

    python benchmarks/run.py                       everything, under 15 minutes on two cores; `make bench` runs this
    python benchmarks/run.py --quick               tiny sizes, to see that it works; its figures say nothing
    python benchmarks/run.py --systems turnwise floor --parts long many --programs     some of it

The first run installs the libraries that turnwise is compared with, each into an environment of its own in a cache
folder. What is written has every round; docs/generate.py makes the page from it, and docs/plots.py the plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from peers.environments import CACHE, FLOOR, PEERS, TURNWISE
from peers.rounds import ENVIRONMENT, LONGEST, QUICK, Rounds, Sizes, reason_of

BENCHMARKS = Path(__file__).parent
OUTPUT = BENCHMARKS.parent / "docs" / "development" / "benchmarks.json"
SYSTEMS = {system.name: system for system in (TURNWISE, FLOOR, *PEERS)}
PARTS = tuple(Rounds(Path(), Path(), Sizes()).parts())

PROGRAMS = {
    "long_turn": ("long_turn.py",),
    "live_conversations": ("live_conversations.py",),
    "model_path": ("model_path.py",),
    "replay": ("replay.py",),
    "startup": ("startup.py", "help", "chat"),
    "transition": ("transition.py",),
    "pauses": ("pauses.py",),
    "turn_profile": ("turn_profile.py",),
    "scale": ("scale.py",),
}
"""What is measured of turnwise alone: each prints its figures as JSON."""


def machine(folder: Path) -> dict[str, Any]:
    """Return what the figures depend on; the databases are written into the folder."""
    information = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", information.read_text()) if information.exists() else []
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "files": file_system(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def file_system(folder: Path) -> str:
    """Return the type of the file system that holds the folder, such as ext4; "" where the system does not tell."""
    mounts = Path("/proc/mounts")
    lines = [line.split() for line in mounts.read_text().splitlines()] if mounts.exists() else []
    holding = [(len(place), kind) for _, place, kind, *_ in lines if folder.resolve().is_relative_to(place)]
    return max(holding, default=(0, ""))[1]


def figures(program: str, quick: bool, folder: Path) -> list[dict[str, Any]]:
    """Run a program of turnwise alone, and return its figures that have a name, or one that says why there are none."""
    file, *arguments = PROGRAMS[program]
    command = [sys.executable, file, *arguments, "--json", *(["--quick"] if quick else [])]
    options: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "timeout": LONGEST}
    began = perf_counter()
    try:
        done = subprocess.run(command, cwd=BENCHMARKS, env={**ENVIRONMENT, "TMPDIR": str(folder)}, **options)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
        print(f"{program} failed: {reason_of(failed)}", file=sys.stderr)
        return [{"what": program, "not measured": reason_of(failed)}]
    print(f"{program}, {perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return [figure for figure in map(json.loads, done.stdout.splitlines()) if figure["name"]]


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure everything that the command line asks for."""
    began = perf_counter()
    rounds = Rounds(folder, given.cache, QUICK if given.quick else Sizes())
    rounds.prepare(SYSTEMS[name] for name in given.systems)
    for part in given.parts:
        rounds.measure(part)
    alone = {program: figures(program, given.quick, folder) for program in given.programs}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "minutes": round((perf_counter() - began) / 60, 1),
        "machine": machine(folder),
        "sizes": asdict(rounds.sizes),
        "systems": rounds.systems,
        "results": rounds.results,
        "figures": alone,
    }


def as_text(results: dict[str, Any]) -> str:
    """Return the JSON, with each list of numbers on one line."""
    text = json.dumps(results, indent=1)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def options(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what docs/development/benchmarks.md reports.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--systems", nargs="*", choices=[*SYSTEMS, []], default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--parts", nargs="*", choices=[*PARTS, []], default=list(PARTS), metavar="PART")
    parser.add_argument("--programs", nargs="*", choices=[*PROGRAMS, []], default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--folder", type=Path, help="where the databases are written, on a disk; else in the cache")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the environments are kept")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the JSON that is written")
    return parser.parse_args(None if arguments is None else list(arguments))


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure, and write the JSON."""
    given = options(arguments)
    place = given.folder or given.cache  # the folder for temporary files is in memory on many machines
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        given.output.write_text(as_text(measured(given, Path(folder))), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
