"""Two engines over one store, in virtual time: each stores steps that the other has not seen.

Each engine carries out exactly the effects of the steps that it stored, its watchers see everything once and in order,
and each caller is told the truth. These seeds are the same each time; `TURNWISE_SEED` names another first one, and
`make faults` runs a thousand.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from turnwise.testing.generation.chance import NOON

from .simulation import simulate
from .simulation.environment import HostClock, RandomSource, VirtualClock, VirtualLoop
from .support.fault_profile import LONG, portions
from .support.planted.engines import CONFLICT_FAULTS, Fault
from .support.simulations import START, failure

pytestmark = [pytest.mark.slow, pytest.mark.faults]

PORTION, PORTIONS = 100 if LONG else 30, portions(10)
SEEDS = [range(first, first + PORTION) for first in range(START, START + PORTIONS * PORTION, PORTION)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds(seeds: range) -> None:
    """A conflict is no fault: whoever is behind catches up, shows what it missed, and puts its request to the machine
    again; through crashes, cancels and disks that fail."""
    for seed in seeds:
        simulate(seed, engines=2)


def test_conflicts_happen() -> None:
    """Both engines store steps of one conversation, in turns."""
    traces = [simulate(seed, engines=2).trace for seed in range(START, START + 5)]

    turns = [[line.split()[2][0] for line in trace if " store " in line] for trace in traces]
    assert {name for writers in turns for name in writers} == {"A", "B"}
    assert max(sum(one != other for one, other in pairwise(writers)) for writers in turns) > 3


def test_a_retry_whose_clock_was_set_back_does_not_wait_for_hours() -> None:
    """In this seed the clock is set back by three hours between a step and the timer that it starts."""
    simulate(6100019, engines=2)


@pytest.mark.parametrize("fault", CONFLICT_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on engines with this fault."""
    assert failure(fault.plant(monkeypatch), range(100), engines=2) is not None


def test_a_file_has_one_engine() -> None:
    """A second one is refused before anything happens."""
    with pytest.raises(ValueError, match="one engine at a time"):
        simulate(0, engines=2, file=True)


def test_hosts_read_different_microseconds() -> None:
    """Their timers are due at one moment. What they do then has different times, so that it is never equal."""
    loop = VirtualLoop(RandomSource("clocks"), disorder=1.0)
    clock = VirtualClock(loop)
    due = NOON + timedelta(seconds=5)

    async def wake(number: int) -> datetime:
        host = HostClock(clock, number)
        await host.sleep_until(due)
        return host.now()

    async def live() -> list[datetime]:
        return await asyncio.gather(wake(0), wake(1))

    assert loop.run(live(), bound=60) == [due, due + timedelta(microseconds=1)]
