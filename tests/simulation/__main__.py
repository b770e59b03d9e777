"""Runs simulations from the command line: many seeds, or one with its trace."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from .agents_simulation import simulate_agents
from .runs import Report, SimulationFailed
from .simulation import simulate

BATCH = 500
"""Seeds between two lines of output."""


def main() -> int:
    """Run the command. Returns its exit status: 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="print the trace of this seed")
    parser.add_argument("--seeds", type=int, default=1_000, help="run so many seeds (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--engines", type=int, choices=(1, 2), default=1, help="engines at once (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=0, help="so many processes that share a store")
    parser.add_argument("--file", action="store_true", help="with turnwise's own store, over a SQLite file")
    parser.add_argument("--agents", action="store_true", help="a tree of agents, in the place of one conversation")
    given = parser.parse_args()
    simulation = simulate_agents if given.agents else simulate

    def run(seed: int) -> Report:
        shared = {"processes": given.processes} if given.processes else {}
        return simulation(seed, engines=given.engines, file=given.file, **shared)

    try:
        if given.seed is None:
            _run_all(range(given.start, given.start + given.seeds), run)
        else:
            _print_trace(given.seed, run)
    except SimulationFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


def _print_trace(seed: int, run: Callable[[int], Report]) -> None:
    try:
        report = run(seed)
    except SimulationFailed as failed:
        print(*failed.trace, sep="\n")
        raise
    print(*report.trace, sep="\n")
    print(f"Seed {seed} holds: {report.steps} steps.")


def _run_all(seeds: range, run: Callable[[int], Report]) -> None:
    steps, began = 0, time.monotonic()
    for first in range(seeds.start, seeds.stop, BATCH):
        batch = range(first, min(first + BATCH, seeds.stop))
        steps += sum(run(seed).steps for seed in batch)
        done = batch.stop - seeds.start
        speed = f"{done / (time.monotonic() - began):.0f} seeds/s, {steps / done:.0f} steps each"
        print(f"Seeds {batch.start} to {batch.stop - 1} hold: {speed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
