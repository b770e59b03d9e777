"""Whole conversations in virtual time: nothing is lost, doubled or left hanging, whatever happens and in what order."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from turnwise.persistence.errors import StoreConflict
from turnwise.states import Answer, Opened, Request, UnknownConversation, UserMessage, begin, transition
from turnwise.states.context import Context
from turnwise.states.events import ANSWERS, REQUESTS
from turnwise.testing.generation import events
from turnwise.testing.generation.chance import NOON, Seeded, from_type

from .simulation import simulate, simulate_agents, users
from .simulation.disk import Disk
from .simulation.environment import EventTrace, Hangs, HostClock, RandomSource, VirtualClock, VirtualLoop
from .simulation.faulty_store import FaultyStorage
from .support.cases import holds_for
from .support.fault_profile import LONG, portions
from .support.planted.engines import CONFLICT_FAULTS, CUSTODY_FAULTS, FAULTS, FILE_FAULTS, Fault
from .support.simulations import START, failure, run

# --- Whole conversations in virtual time: nothing is lost, doubled or left hanging, whatever happens and in what
# order.
#
# These seeds are the same each time; `TURNWISE_SEED` names another first one. `make test` runs a sample, `make
# faults` and `make simulate` run thousands. That simulations can fail is tested, too: they find each fault of
# support/planted/engines.py.


T = TypeVar("T")

PORTION, PORTIONS = 100, portions(10)
SEEDS = [range(first, first + PORTION) for first in range(START, START + PORTIONS * PORTION, PORTION)]


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]], seed: int = 0) -> T:
    """Run this in virtual time, for a day at most."""
    return VirtualLoop(RandomSource(seed), disorder=1.0).run(main(), bound=86_400)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds(seeds: range) -> None:
    """Durability, fault 2: virtual clock, random interleavings of answers, cancels, duplicates, late events."""
    for seed in seeds:
        simulate(seed)


@pytest.mark.slow
class TestRepeating:
    """The same seed gives the same conversation, byte for byte."""

    def test_a_seed_gives_the_same_log_and_the_same_trace_twice(self) -> None:
        """In one process, whatever ran before."""
        once = [simulate(seed) for seed in range(START, START + 10)]

        again = [simulate(seed) for seed in reversed(range(START, START + 10))]

        assert once == again[::-1]
        assert len({report.log for report in once}) == 10

    @pytest.mark.parametrize("hash_seed", ["0", "4711"])
    def test_a_seed_gives_the_same_log_in_another_process(self, hash_seed: str) -> None:
        """One in which sets of texts have another order."""
        program = (
            "import hashlib; from tests.simulation import simulate\n"
            f"reports = [simulate(seed) for seed in range({START}, {START + 10})]\n"
            "print(hashlib.sha256(repr(reports).encode()).hexdigest())"
        )
        here = hashlib.sha256(repr([simulate(seed) for seed in range(START, START + 10)]).encode()).hexdigest()

        there = run("-c", program, PYTHONHASHSEED=hash_seed)

        assert there.stdout.strip() == here

    def test_no_time_passes(self) -> None:
        """Hours of virtual time take no real time, and the clock of the machine does not matter."""
        began = time.monotonic()

        trace = simulate(START).trace

        assert float(trace[-1].split()[0]) > 3_600
        assert time.monotonic() - began < 60

    async def test_it_brings_its_own_loop(self) -> None:
        """Where an event loop is running it refuses to start."""
        with pytest.raises(RuntimeError, match="brings its own event loop"):
            simulate(0)


@pytest.mark.slow
class TestFinding:
    """A simulation finds faults, and says how to see them again."""

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
    def test_a_fault_is_found(self, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some seed among the first fails on an engine with this fault."""
        assert failure(fault.plant(monkeypatch), range(400)) is not None

    def test_a_failure_says_how_to_see_it_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The seed, what is wrong, what led to it, and the command."""
        failed = failure(FAULTS[0].plant(monkeypatch), range(10))

        assert failed is not None
        first, *trace, command = str(failed).splitlines()
        assert first.startswith(f"Seed {failed.seed}: ")
        assert "is begun twice" in first
        assert trace[-1].endswith(first.partition(": ")[2])
        assert command.endswith(f"python -m tests.simulation --seed {failed.seed}")

    def test_it_fails_the_same_way_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Failures can be repeated, too."""
        once = failure(FAULTS[1].plant(monkeypatch), range(100))
        again = failure(FAULTS[1].plant(monkeypatch), range(100))

        assert once is not None and again is not None
        assert (once.seed, once.trace) == (again.seed, again.trace)


@pytest.mark.slow
class TestNewTypes:
    """States, events and effects that have no generator of their own."""

    @holds_for("kind", ANSWERS)
    def test_answers_are_generated_from_their_type(self, kind: type[Answer]) -> None:
        """One that has no generator is valid all the same."""
        for seed in range(20):
            assert from_type(kind, Seeded(seed), effect_id=7, at=NOON).effect_id == 7

    @holds_for("kind", REQUESTS)
    def test_requests_are_generated_from_their_type(self, kind: type[Request]) -> None:
        """One that has no generator is valid all the same."""
        for seed in range(20):
            assert from_type(kind, Seeded(seed), event_id="id", at=NOON).event_id == "id"

    def test_answers_without_a_generator_keep_every_invariant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the model has a generator of its own."""
        monkeypatch.setattr(
            events, "ANSWER_GENERATORS", {events.LlmResponse: events.ANSWER_GENERATORS[events.LlmResponse]}
        )

        for seed in range(START, START + 20):
            simulate(seed)

    def test_waits_that_users_do_not_know_are_cancelled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a line in `RESPONSES` they come to rest by a cancel."""
        monkeypatch.setattr(users, "RESPONSES", {})

        for seed in range(START, START + 20):
            simulate(seed)


@pytest.mark.slow
class TestTheLoop:
    """The event loop in virtual time."""

    def test_time_jumps_to_what_comes_next(self) -> None:
        """Sleepers wake in order, at their very moments."""
        woke: list[tuple[str, float]] = []

        async def sleeps(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woke.append((name, asyncio.get_running_loop().time()))

        async def main() -> None:
            await asyncio.gather(sleeps("b", 7_200.5), sleeps("a", 3.25))

        run_virtually(main)

        assert woke == [("a", 3.25), ("b", 7_200.5)]

    def test_the_callbacks_of_one_task_keep_their_order(self) -> None:
        """As asyncio promises, however disorderly the rest."""

        async def main() -> list[int]:
            order: list[int] = []
            for number in range(5):
                asyncio.get_running_loop().call_soon(order.append, number)
            await asyncio.sleep(1)
            return order

        orders = [run_virtually(main, seed) for seed in range(20)]

        assert orders == [[0, 1, 2, 3, 4]] * 20

    def test_different_tasks_have_no_order(self) -> None:
        """Any of those that wake at one moment may come first, and the seed decides which."""

        async def main() -> list[int]:
            order: list[int] = []

            async def wakes(number: int) -> None:
                await asyncio.sleep(1)
                order.append(number)

            await asyncio.gather(*(wakes(number) for number in range(3)))
            return order

        orders = [tuple(run_virtually(main, seed)) for seed in range(60)]

        assert len(set(orders)) == 6
        assert orders == [tuple(run_virtually(main, seed)) for seed in range(60)]

    def test_a_wait_without_end_is_found(self) -> None:
        """Nothing is left that could wake the task; the message says where it waits."""

        async def main() -> None:
            await asyncio.Event().wait()

        with pytest.raises(Hangs, match=r"nothing happens any more; .*main at Event\.wait"):
            run_virtually(main)

    def test_a_loop_that_takes_time_without_end_is_found(self) -> None:
        """Something always happens, and it never ends."""

        async def main() -> None:
            while True:
                await asyncio.sleep(1)

        with pytest.raises(Hangs, match="it takes for ever"):
            run_virtually(main)

    def test_a_loop_without_end_is_found(self) -> None:
        """Something always happens, and no time passes."""

        async def main() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(Hangs, match="it goes round in circles"):
            run_virtually(main)

    def test_there_are_no_threads(self) -> None:
        """What they do could not be repeated. What one is to compute is computed by the loop, and its errors arrive."""

        async def main() -> tuple[int, int]:
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(divmod, 1, 0)
            return threading.get_ident(), await asyncio.to_thread(threading.get_ident)

        here, there = run_virtually(main)

        assert here == there


@pytest.mark.slow
class TestTheCommand:
    """`python -m tests.simulation`."""

    def test_it_runs_many_seeds(self) -> None:
        """And says which, and how fast."""
        done = run("-m", "tests.simulation", "--seeds", "20", "--start", "7")

        assert done.returncode == 0
        assert done.stdout.startswith("Seeds 7 to 26 hold: ")
        assert "seeds/s" in done.stdout

    def test_it_prints_the_trace_of_one_seed(self) -> None:
        """Each step, as it happened here, too."""
        done = run("-m", "tests.simulation", "--seed", str(START))

        *trace, last = done.stdout.splitlines()
        assert tuple(trace) == simulate(START).trace
        assert last.startswith(f"Seed {START} holds: ")

    def test_it_exits_1_on_a_failure_and_names_the_seed(self) -> None:
        """With a fault in the engine that it simulates: watchers do not see what is delivered."""
        program = (
            "import sys; from turnwise.engine import loop; from tests.simulation.__main__ import main\n"
            "class ShowsTooLittle(loop.Feed):\n"
            "    def publish(self, *updates): super().publish(*(one for one in updates if one.type != 'delivery'))\n"
            "loop.Feed = ShowsTooLittle\n"
            "sys.argv[1:] = ['--seeds', '50']\n"
            "sys.exit(main())"
        )

        done = run("-c", program)

        assert done.returncode == 1
        assert done.stderr.startswith("Seed ")
        assert re.match(
            r"Seed \d+: \w+, (watching from .* on, saw .* in the place of \(|stream \S+: saw \[)", done.stderr
        )
        assert "python -m tests.simulation --seed" in done.stderr


# --- Whole conversations in virtual time above turnwise's own store, in a real file, through processes that die.
#
# The writer with its batches, the log, the outbox and the dispatcher of deliveries are turnwise's own. These seeds
# are the same each time; `TURNWISE_SEED` names another first one, and `make faults` runs thousands.


FILE_PORTION, FILE_PORTIONS = 100 if LONG else 30, portions(20)
FILE_SEEDS = [
    range(first, first + FILE_PORTION) for first in range(START, START + FILE_PORTIONS * FILE_PORTION, FILE_PORTION)
]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", FILE_SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds_in_a_file(seeds: range) -> None:
    """Durability, fault 2, with the store in the loop: what is reported as stored is stored, through crashes between
    any two statements, disks that fail, and commits that are reported as failed; each log is whole and replays; what
    was said to the user arrives, in order (S13, S20, P28)."""
    for seed in seeds:
        simulate(seed, file=True)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", FILE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on an engine with this fault."""
    assert failure(fault.plant(monkeypatch), range(150), file=True) is not None


@pytest.mark.slow
@pytest.mark.faults
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


@pytest.mark.slow
@pytest.mark.faults
def test_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where every invariant holds nor where one does not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate(START, file=True)
    failed = failure(FILE_FAULTS[0].plant(monkeypatch), range(10), file=True)

    assert failed is not None
    assert list(tmp_path.iterdir()) == []
    assert str(failed).endswith(f"--seed {failed.seed} --file")


# --- Two engines over one store, in virtual time: each stores steps that the other has not seen.
#
# Each engine carries out exactly the effects of the steps that it stored, its watchers see everything once and in
# order, and each caller is told the truth. These seeds are the same each time; `TURNWISE_SEED` names another first
# one, and `make faults` runs a thousand.


CONFLICT_PORTION, CONFLICT_PORTIONS = 100 if LONG else 30, portions(10)
CONFLICT_SEEDS = [
    range(first, first + CONFLICT_PORTION)
    for first in range(
        START,
        START + CONFLICT_PORTIONS * CONFLICT_PORTION,
        CONFLICT_PORTION,
    )
]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", CONFLICT_SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds_with_two_engines(seeds: range) -> None:
    """A conflict is no fault: whoever is behind catches up, shows what it missed, and puts its request to the machine
    again; through crashes, cancels and disks that fail."""
    for seed in seeds:
        simulate(seed, engines=2)


@pytest.mark.slow
@pytest.mark.faults
def test_conflicts_happen() -> None:
    """Both engines store steps of one conversation, in turns."""
    traces = [simulate(seed, engines=2).trace for seed in range(START, START + 5)]

    turns = [[line.split()[2][0] for line in trace if " store " in line] for trace in traces]
    assert {name for writers in turns for name in writers} == {"A", "B"}
    assert max(sum(one != other for one, other in pairwise(writers)) for writers in turns) > 3


@pytest.mark.slow
@pytest.mark.faults
def test_a_retry_whose_clock_was_set_back_does_not_wait_for_hours() -> None:
    """In this seed the clock is set back by three hours between a step and the timer that it starts."""
    simulate(6100019, engines=2)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", CONFLICT_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_with_two_engines(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on engines with this fault."""
    assert failure(fault.plant(monkeypatch), range(100), engines=2) is not None


@pytest.mark.slow
@pytest.mark.faults
def test_a_file_has_one_engine() -> None:
    """A second one is refused before anything happens."""
    with pytest.raises(ValueError, match="one engine at a time"):
        simulate(0, engines=2, file=True)


@pytest.mark.slow
@pytest.mark.faults
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


# --- Several processes over one shared store, in virtual time, which look after the conversation in turn.
#
# They die, stand still for longer than a lease and go on as if nothing had happened, are drained, and begin again; the
# store fails, and commits stay in doubt. `make faults` runs two thousand seeds of one conversation, and a thousand of a
# tree of agents.


PROCESSES = 3

SHARED_PORTION, SHARED_PORTIONS = 100 if LONG else 20, portions(20)
SHARED_SEEDS = [
    range(first, first + SHARED_PORTION)
    for first in range(START, START + SHARED_PORTIONS * SHARED_PORTION, SHARED_PORTION)
]
SHARED_AGENTS_SEEDS = SHARED_SEEDS[: portions(10)]


def test_a_few_seeds_hold_with_several_processes() -> None:
    """A quick look at what the long tests look at thoroughly."""
    for seed in range(START, START + 5):
        simulate(seed, processes=PROCESSES)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", SHARED_SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds_with_several_processes(seeds: range) -> None:
    """Nothing that was acknowledged is lost or doubled, each log replays, what must run at most once does, what was
    said arrives in order, nothing of a process that has lost its custody is stored, and everything comes to rest."""
    for seed in seeds:
        simulate(seed, processes=PROCESSES)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", SHARED_AGENTS_SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_of_agents_holds_with_several_processes(seeds: range) -> None:
    """Sub-agents are looked after wherever there is room, mail arrives, and schedules wake each agent once."""
    for seed in seeds:
        simulate_agents(seed, processes=PROCESSES)


@pytest.mark.slow
@pytest.mark.faults
def test_custody_is_lost_and_taken_over() -> None:
    """By processes that stand still, and from processes that die."""
    traces = [line for seed in range(START, START + 40) for line in simulate(seed, processes=PROCESSES).trace]

    for happens in ("which was left", "has lost", "lets go of", "is taken from", "in the middle"):
        assert any(happens in line for line in traces), happens


@pytest.mark.slow
@pytest.mark.faults
def test_a_seed_of_several_processes_gives_the_same_trace_again() -> None:
    """Also where they stand still."""
    seeds = range(START, START + 5)
    once = [simulate(seed, processes=PROCESSES) for seed in seeds]

    assert [simulate(seed, processes=PROCESSES) for seed in reversed(seeds)] == once[::-1]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", CUSTODY_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_with_several_processes(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on engines with this fault."""
    assert failure(fault.plant(monkeypatch), range(100), processes=PROCESSES) is not None


# --- What a simulation stores: a conversation may be deleted, and another one created under its id.


OPENED = Opened(event_id="opened", at=NOON)
MESSAGE = UserMessage(event_id="task", at=NOON, text="Hi")


def test_a_conversation_with_the_id_of_a_deleted_one_is_another_one() -> None:
    """It may take the same requests, has a key of its own, and the log of the deleted one neither stores nor finds
    anything in it."""
    chance = RandomSource("disk")
    loop = VirtualLoop(chance, disorder=0.0)
    disk = Disk(chance, EventTrace(loop.time))
    opened = begin(OPENED)
    step = transition(opened.state, MESSAGE, Context().after(OPENED))

    async def live() -> None:
        store = (await FaultyStorage(disk).open("A1")).store
        first = await store.create("id", OPENED, opened)
        assert disk.key_of("id") == ("id", 0)

        await store.delete("id")
        assert disk.key_of("id") == ("id", 0)
        second = await store.create("id", OPENED, opened)
        with pytest.raises(StoreConflict):
            await first.append(MESSAGE, step)
        with pytest.raises(UnknownConversation):
            await first.catch_up()
        await second.append(MESSAGE, step)
        with pytest.raises(UnknownConversation):
            await first.request("task")

    loop.run(live(), bound=1_000.0)

    assert disk.key_of("id") == ("id", 1)
    assert [len(rows) for rows in disk.logs_of("id")] == [1, 2]
    assert disk.trace.faults == []
