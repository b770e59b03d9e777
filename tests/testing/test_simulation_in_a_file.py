"""Whole conversations in virtual time above the real store, in a real file, through processes that die.

The writer with its batches, the log, the outbox and the courier are turnwise's own. These seeds are the same each time;
`TURNWISE_SEED` names another first one, and `make faults` runs thousands. Each bug in `planted_stores` must be found.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from turnwise.effects.channels.delivery_dispatcher import DeliveryDispatcher
from turnwise.persistence.sqlite.writer import Writer
from turnwise.testing import SimulationFailed, simulate

from ..support.fault_profile import LONG
from ..support.planted_stores import COURIERS, WRITERS
from .test_simulation import run

pytestmark = pytest.mark.faults

START = int(os.environ.get("TURNWISE_SEED", "0"))
PORTION, PORTIONS = (100, 20) if LONG else (50, 2)
SEEDS = [range(first, first + PORTION) for first in range(START, START + PORTIONS * PORTION, PORTION)]


def failure(seeds: Iterable[int], **parts: Any) -> SimulationFailed | None:
    """The first failure of a simulation with these parts in it, if there is one."""
    for seed in seeds:
        try:
            simulate(seed, file=True, **parts)
        except SimulationFailed as failed:
            return failed
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_what_is_stored_is_there(seeds: range) -> None:
    """Durability, fault 2, with the store in the loop: what was said to be stored is stored, through crashes between
    any two statements, disks that fail, and commits that are said to have failed; each log is whole and replays; what
    was said to the user arrives, in order (S13, S20, P28)."""
    for seed in seeds:
        simulate(seed, file=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_bug_of_the_writer_is_found(writer: type[Writer]) -> None:
    """Some seed among the first ones fails with it."""
    assert failure(range(100), writer=writer) is not None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("courier", COURIERS)
def test_a_bug_of_the_courier_is_found(courier: type[DeliveryDispatcher]) -> None:
    """Some seed among the first ones fails with it."""
    assert failure(range(200), courier=courier) is not None


def test_a_seed_gives_the_same_log_and_the_same_story_again() -> None:
    """In this process, whatever ran before, and in another one, in which sets have another order."""
    program = (
        "import hashlib; from turnwise.testing import simulate\n"
        f"reports = [simulate(seed, file=True) for seed in range({START}, {START + 6})]\n"
        "print(hashlib.sha256(repr(reports).encode()).hexdigest())"
    )
    once = [simulate(seed, file=True) for seed in reversed(range(START, START + 6))]

    there = run("-c", program, PYTHONHASHSEED="4711")

    assert there.stdout.strip() == hashlib.sha256(repr(once[::-1]).encode()).hexdigest()


def test_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where all is well nor where it is not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate(START, file=True)
    failed = failure(range(10), writer=WRITERS[0])

    assert failed is not None
    assert list(tmp_path.iterdir()) == []
    assert str(failed).endswith(f"--seed {failed.seed} --file")
