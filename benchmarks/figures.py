"""What a benchmark measured: one figure each, with its aim beside it, as a line to read or as JSON for the report.

A benchmark that takes part in `make bench` has a function `measure(sizes, folder)` that yields figures, and calls `run`
when it is started as a program. `name` is how docs/development/benchmarks.md finds a figure; the sentence in `what` is
for people and may change.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

Sizes = TypeVar("Sizes")


@dataclass(frozen=True)
class Figure:
    """One thing that was measured, with the value that it should have."""

    what: str
    value: str
    aim: str = ""
    met: bool = True
    name: str = ""
    """A stable identifier, such as `replay-rate`. Figures without one are not in the report."""
    number: float | None = None
    unit: str = ""
    series: tuple[tuple[float, float], ...] = ()
    """Points of a plot, for example the number of a round and its milliseconds; at most about 200."""

    def __str__(self) -> str:
        verdict = "" if not self.aim else "met   " if self.met else "MISSED"
        return f"{verdict:6}  {self.what:<52} {self.value:<26} {self.aim}".rstrip()


def at_least(what: str, value: float, aim: float, unit: str, note: str = "", **more: object) -> Figure:
    """A figure that should not be lower than its aim. `more`: further fields of the figure, such as `name`."""
    return _compared(what, value, unit, note, f"at least {aim:g}", value >= aim, more)


def at_most(what: str, value: float, aim: float, unit: str, note: str = "", **more: object) -> Figure:
    """A figure that should not be higher than its aim. `more`: further fields of the figure, such as `name`."""
    return _compared(what, value, unit, note, f"at most {aim:g}", value <= aim, more)


def _compared(what: str, value: float, unit: str, note: str, aim: str, met: bool, more: dict) -> Figure:
    return Figure(what, f"{as_text(value)} {unit}".rstrip() + note, aim, met, **{"number": value, "unit": unit, **more})


def as_text(value: float) -> str:
    """Return a number with three digits or more, 0.98, 7.30, 48.0, 20,839, or one that was counted as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def print_figures(figures: Iterable[Figure], as_json: bool) -> None:
    """Print each figure as soon as it is measured: a line to read, or a line of JSON."""
    for figure in figures:
        print(json.dumps(asdict(figure)) if as_json else figure, flush=True)


def run(measure: Callable[[Sizes, Path], Iterable[Figure]], sizes: Sizes, quick: Sizes, description: str) -> None:
    """Run a benchmark as a program, with the options that all of them have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each figure")
    parser.add_argument("--folder", type=Path, help="where the databases are written for the while (a disk to measure)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print_figures(measure(quick if given.quick else sizes, Path(folder)), given.json)
