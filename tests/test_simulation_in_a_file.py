"""Whole conversations in virtual time above turnwise's own store, in a real file, through processes that die.

The writer with its batches, the log, the outbox and the dispatcher of deliveries are turnwise's own. These seeds are
the same each time; `TURNWISE_SEED` names another first one, and `make faults` runs thousands.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest

from .simulation import simulate
from .support.fault_profile import LONG, portions
from .support.planted.engines import FILE_FAULTS, Fault
from .support.simulations import START, failure, run

pytestmark = [pytest.mark.slow, pytest.mark.faults]

PORTION, PORTIONS = 100 if LONG else 30, portions(20)
SEEDS = [range(first, first + PORTION) for first in range(START, START + PORTIONS * PORTION, PORTION)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds(seeds: range) -> None:
    """Durability, fault 2, with the store in the loop: what is reported as stored is stored, through crashes between
    any two statements, disks that fail, and commits that are reported as failed; each log is whole and replays; what
    was said to the user arrives, in order (S13, S20, P28)."""
    for seed in seeds:
        simulate(seed, file=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", FILE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on an engine with this fault."""
    assert failure(fault.plant(monkeypatch), range(150), file=True) is not None


def test_a_seed_gives_the_same_log_and_the_same_trace_again() -> None:
    """In this process, whatever ran before, and in another one, in which sets have another order."""
    program = (
        "import hashlib; from tests.simulation import simulate\n"
        f"reports = [simulate(seed, file=True) for seed in range({START}, {START + 6})]\n"
        "print(hashlib.sha256(repr(reports).encode()).hexdigest())"
    )
    once = [simulate(seed, file=True) for seed in reversed(range(START, START + 6))]

    there = run("-c", program, PYTHONHASHSEED="4711")

    assert there.stdout.strip() == hashlib.sha256(repr(once[::-1]).encode()).hexdigest()


def test_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where every invariant holds nor where one does not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate(START, file=True)
    failed = failure(FILE_FAULTS[0].plant(monkeypatch), range(10), file=True)

    assert failed is not None
    assert list(tmp_path.iterdir()) == []
    assert str(failed).endswith(f"--seed {failed.seed} --file")
