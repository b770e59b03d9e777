"""Whole conversations in virtual time: nothing is lost, doubled or left hanging, whatever happens and in what order.

These seeds are the same each time; `TURNWISE_SEED` names another first one, and `make simulate` runs thousands. That
simulations can fail is tested, too: an engine with a bug in it must be found out.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import pytest

from turnwise import Engine
from turnwise.engine.loop import Loop
from turnwise.states import Answer, Request
from turnwise.states.events import ANSWERS, REQUESTS
from turnwise.testing import SimulationFailed, simulate
from turnwise.testing.clock import NOON
from turnwise.testing.simulation import answers, simulation, user_actions, world
from turnwise.testing.simulation.event_loop import Hangs, VirtualLoop
from turnwise.testing.simulation.generated_values import made_up
from turnwise.testing.simulation.random_source import RandomSource

from ..support.planted_loops import PLANTED, planted

T = TypeVar("T")

START = int(os.environ.get("TURNWISE_SEED", "0"))
PORTION = 100
PORTIONS = [range(first, first + PORTION) for first in range(START, START + 8 * PORTION, PORTION)]


def failure(engine: type[Engine], seeds: Iterable[int]) -> SimulationFailed | None:
    """The first failure of a simulation with this engine, if there is one."""
    for seed in seeds:
        try:
            simulate(seed, engine=engine)
        except SimulationFailed as failed:
            return failed
    return None


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What comes of a Python process of its own."""
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, timeout=200)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]], seed: int = 0) -> T:
    """Run this in virtual time, for a day at most."""
    return VirtualLoop(RandomSource(str(seed)), disorder=1.0).run(main(), bound=86_400)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", PORTIONS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_conversations_keep_their_promises(seeds: range) -> None:
    """Durability, fault 2: virtual clock, random interleavings of answers, cancels, duplicates, late events."""
    for seed in seeds:
        simulate(seed)


class TestRepeating:
    """The same seed gives the same conversation, to the byte."""

    def test_a_seed_gives_the_same_log_and_the_same_story_twice(self) -> None:
        """In one process, whatever ran before."""
        once = [simulate(seed) for seed in range(START, START + 10)]

        again = [simulate(seed) for seed in reversed(range(START, START + 10))]

        assert once == again[::-1]
        assert len({report.log for report in once}) == 10

    @pytest.mark.parametrize("hash_seed", ["0", "4711"])
    def test_a_seed_gives_the_same_log_in_another_process(self, hash_seed: str) -> None:
        """One in which sets of texts have another order."""
        program = (
            "import hashlib; from turnwise.testing import simulate\n"
            f"reports = [simulate(seed) for seed in range({START}, {START + 10})]\n"
            "print(hashlib.sha256(repr(reports).encode()).hexdigest())"
        )
        here = hashlib.sha256(repr([simulate(seed) for seed in range(START, START + 10)]).encode()).hexdigest()

        there = run("-c", program, PYTHONHASHSEED=hash_seed)

        assert there.stdout.strip() == here

    def test_no_time_passes(self) -> None:
        """Hours of virtual time take no real time, and the clock of the machine does not matter."""
        began = time.monotonic()

        story = simulate(START).story

        assert float(story[-1].split()[0]) > 3_600
        assert time.monotonic() - began < 60

    async def test_it_brings_its_own_loop(self) -> None:
        """Where one is running it refuses to start."""
        with pytest.raises(RuntimeError, match="brings its own event loop"):
            simulate(0)


class TestFinding:
    """A simulation finds bugs, and says how to see them again."""

    @pytest.mark.parametrize("kind", PLANTED)
    def test_a_bug_is_found(self, kind: type[Loop]) -> None:
        """Some seed among the first hundreds fails on an engine with this bug in it."""
        assert failure(planted(kind), range(400)) is not None

    def test_a_failure_says_how_to_see_it_again(self) -> None:
        """The seed, what is wrong, what led to it, and the command."""
        failed = failure(planted(PLANTED[0]), range(10))

        assert failed is not None
        first, *story, command = str(failed).splitlines()
        assert first == f"Seed {failed.seed}: request_llm:1 is begun twice"
        assert story[-1].endswith("FAULT     request_llm:1 is begun twice")
        assert command.endswith(f"python -m turnwise.testing.simulation --seed {failed.seed}")

    def test_it_fails_the_same_way_again(self) -> None:
        """Not only what holds can be repeated."""
        engine = planted(PLANTED[2])

        once, again = failure(engine, range(100)), failure(engine, range(100))

        assert once is not None and again is not None
        assert (once.seed, once.story) == (again.seed, again.story)


class TestWhatComesNew:
    """States, events and effects that nobody told the simulation about."""

    @pytest.mark.parametrize("kind", ANSWERS)
    def test_answers_are_made_up_from_their_type(self, kind: type[Answer]) -> None:
        """One that has no line in `ANSWERS` is valid all the same."""
        for seed in range(20):
            assert made_up(kind, RandomSource(str(seed)), effect_id=7, at=NOON).effect_id == 7

    @pytest.mark.parametrize("kind", REQUESTS)
    def test_requests_are_made_up_from_their_type(self, kind: type[Request]) -> None:
        """One that has no line in `MENU` is sent all the same."""
        for seed in range(20):
            assert made_up(kind, RandomSource(str(seed)), event_id="id", at=NOON).event_id == "id"

    def test_effects_that_nobody_knows_get_any_answer_that_is_awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a line in `WORLD`, and without one in `ANSWERS`, conversations keep their promises."""
        monkeypatch.setattr(world, "WORLD", {world.StartTimer: world.wait})
        monkeypatch.setattr(answers, "ANSWERS", {answers.LlmResponse: answers.respond})

        for seed in range(START, START + 30):
            simulate(seed)

    def test_waits_that_nobody_knows_are_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a line in `ATTENDING` they come to rest by a cancel."""
        monkeypatch.setattr(user_actions, "ATTENDING", {})
        monkeypatch.setattr(simulation, "ATTENDING", {})

        for seed in range(START, START + 30):
            simulate(seed)


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

    def test_what_one_task_sets_off_keeps_its_order(self) -> None:
        """As asyncio promises, however disorderly the rest."""

        async def main() -> list[int]:
            order: list[int] = []
            for number in range(5):
                asyncio.get_running_loop().call_soon(order.append, number)
            await asyncio.sleep(1)
            return order

        orders = [run_virtually(main, seed) for seed in range(20)]

        assert orders == [[0, 1, 2, 3, 4]] * 20

    def test_what_different_tasks_do_has_no_order(self) -> None:
        """Any of those that wake at one moment may come first, and the seed says which."""

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

    def test_who_waits_for_ever_is_found(self) -> None:
        """Nothing is left that could wake the task; the message says where it waits."""

        async def main() -> None:
            await asyncio.Event().wait()

        with pytest.raises(Hangs, match=r"nothing happens any more; .*main at Event\.wait"):
            run_virtually(main)

    def test_what_takes_for_ever_is_found(self) -> None:
        """Something always happens, and it never ends."""

        async def main() -> None:
            while True:
                await asyncio.sleep(1)

        with pytest.raises(Hangs, match="it takes for ever"):
            run_virtually(main)

    def test_what_goes_round_in_circles_is_found(self) -> None:
        """Something always happens, and no time passes."""

        async def main() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(Hangs, match="it goes round in circles"):
            run_virtually(main)

    def test_there_are_no_threads(self) -> None:
        """What they do could not be repeated."""

        async def main() -> None:
            await asyncio.to_thread(print)

        with pytest.raises(RuntimeError, match="no threads"):
            run_virtually(main)


class TestTheCommand:
    """`python -m turnwise.testing.simulation`."""

    def test_it_runs_many_seeds(self) -> None:
        """And says which, and how fast."""
        done = run("-m", "turnwise.testing.simulation", "--seeds", "20", "--start", "7")

        assert done.returncode == 0
        assert done.stdout.startswith("Seeds 7 to 26 hold: ")
        assert "seeds/s" in done.stdout

    def test_it_tells_the_story_of_one_seed(self) -> None:
        """Each step, as it happened here, too."""
        done = run("-m", "turnwise.testing.simulation", "--seed", str(START))

        *story, last = done.stdout.splitlines()
        assert tuple(story) == simulate(START).story
        assert last.startswith(f"Seed {START} holds: ")

    def test_it_exits_1_on_a_failure_and_names_the_seed(self) -> None:
        """With a bug in the engine that it simulates."""
        program = (
            "import sys; from turnwise.engine.loop import Loop; from turnwise.testing.simulation.__main__ import main\n"
            "def twice(self, effects): dispatch(self, effects); dispatch(self, effects)\n"
            "dispatch, Loop._dispatch = Loop._dispatch, twice\n"
            "sys.argv[1:] = ['--seeds', '50']\n"
            "sys.exit(main())"
        )

        done = run("-c", program)

        assert done.returncode == 1
        assert "is begun twice" in done.stderr
        assert "python -m turnwise.testing.simulation --seed" in done.stderr
