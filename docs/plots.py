"""Draws the plots of docs/development/benchmarks.md from the JSON beside it; needs matplotlib, the extra `bench`.

    python docs/plots.py                           write docs/development/benchmarks/*.svg
    python docs/plots.py RESULTS.json FOLDER       the same of another run, somewhere else

The same JSON gives the same files. They have no background, and colours that can be read on a light and a dark page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from generator.benchmark_plots import draw
from generator.benchmark_results import Results

PAGES = Path(__file__).parent / "development"


def main(arguments: list[str] | None = None) -> None:
    """Draw the plots."""
    parser = argparse.ArgumentParser(description="Draw the plots of docs/development/benchmarks.md.")
    parser.add_argument("results", type=Path, nargs="?", default=PAGES / "benchmarks.json")
    parser.add_argument("folder", type=Path, nargs="?", default=PAGES / "benchmarks")
    given = parser.parse_args(arguments)
    given.folder.mkdir(exist_ok=True)
    draw(Results.read(given.results), given.folder)


if __name__ == "__main__":
    main()
