"""Runs simulations from the command line: many seeds, or one, told step by step."""

from __future__ import annotations

import argparse
import sys
import time

from .simulation import SimulationFailed, simulate

PORTION = 500
"""Seeds between two lines of output."""


def main() -> int:
    """The command. Returns its exit status: 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="tell the story of this seed")
    parser.add_argument("--seeds", type=int, default=1_000, help="run so many seeds (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--file", action="store_true", help="with the real store, over a SQLite file")
    given = parser.parse_args()
    try:
        if given.seed is None:
            _run(range(given.start, given.start + given.seeds), file=given.file)
        else:
            _tell(given.seed, file=given.file)
    except SimulationFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


def _tell(seed: int, *, file: bool) -> None:
    try:
        report = simulate(seed, file=file)
    except SimulationFailed as failed:
        print(*failed.story, sep="\n")
        raise
    print(*report.story, sep="\n")
    print(f"Seed {seed} holds: {report.steps} steps.")


def _run(seeds: range, *, file: bool) -> None:
    steps, began = 0, time.monotonic()
    for first in range(seeds.start, seeds.stop, PORTION):
        portion = range(first, min(first + PORTION, seeds.stop))
        steps += sum(simulate(seed, file=file).steps for seed in portion)
        done = portion.stop - seeds.start
        speed = f"{done / (time.monotonic() - began):.0f} seeds/s, {steps / done:.0f} steps each"
        print(f"Seeds {portion.start} to {portion.stop - 1} hold: {speed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
