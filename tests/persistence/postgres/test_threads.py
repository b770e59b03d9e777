"""The threads that work for a PostgreSQL database."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from threading import Barrier, Event

import pytest

from turnwise.persistence.postgres.threads import DaemonThreads

PATIENCE = 60.0
"""Seconds within which a thread does what it is told, also on a slow machine."""


def named(name: str) -> list[threading.Thread]:
    """The threads with this name that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}_")]


class TestWorking:
    """What is handed in is done."""

    def test_what_is_handed_in_is_done_in_order(self) -> None:
        """By one thread, if there is no other."""
        threads, done = DaemonThreads(1, "ordered"), list[int]()

        jobs = [threads.submit(lambda number=number: done.append(number)) for number in range(100)]  # type: ignore[misc]
        for job in jobs:
            job.result(PATIENCE)

        assert done == list(range(100))
        assert len(named("ordered")) == 1

    def test_as_many_threads_as_are_needed_and_no_more(self) -> None:
        """Three that wait for each other run at once; what is more waits for a thread."""
        threads, together, more = DaemonThreads(3, "several"), Barrier(4), Event()
        jobs = [threads.submit(lambda: void(together.wait(PATIENCE))) for _ in range(3)]
        another = threads.submit(more.set)

        assert len(named("several")) == 3 and not more.is_set()
        together.wait(PATIENCE)
        for job in (*jobs, another):
            job.result(PATIENCE)

        assert len(named("several")) == 3

    def test_what_has_not_begun_can_be_cancelled(self) -> None:
        """It never begins. What has begun goes on."""
        threads, goes_on, done = DaemonThreads(1, "cancelled"), Event(), list[str]()
        begun = Event()

        def first() -> None:
            begun.set()
            goes_on.wait(PATIENCE)
            done.append("first")

        running, waiting = threads.submit(first), threads.submit(lambda: done.append("second"))
        begun.wait(PATIENCE)

        assert (running.cancel(), waiting.cancel()) == (False, True)
        goes_on.set()
        threads.submit(lambda: done.append("third")).result(PATIENCE)
        assert done == ["first", "third"]

    def test_an_error_ends_no_thread(self) -> None:
        """Whoever looks gets it."""
        threads = DaemonThreads(1, "failing")
        failed = threads.submit(lambda: void(1 / 0))

        with pytest.raises(ZeroDivisionError):
            failed.result(PATIENCE)
        threads.submit(lambda: None).result(PATIENCE)


class TestEnding:
    """When threads end."""

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_the_last_one_tells_of_the_end(self, count: int) -> None:
        """Once, behind what was handed in, also if none was started."""
        threads, ended, done = DaemonThreads(3, f"ending{count}"), Event(), list[int]()
        for number in range(count):
            threads.submit(lambda number=number: done.append(number))  # type: ignore[misc]

        threads.end(ended.set)

        assert ended.wait(PATIENCE)
        assert sorted(done) == list(range(count))
        for thread in named(f"ending{count}"):
            thread.join(PATIENCE)
        assert named(f"ending{count}") == []

    def test_they_end_when_nobody_holds_them(self) -> None:
        """What was handed in is done before."""
        done = Event()
        DaemonThreads(2, "dropped").submit(done.set)
        gc.collect()

        assert done.wait(PATIENCE)
        for thread in named("dropped"):
            thread.join(PATIENCE)
        assert named("dropped") == []

    @pytest.mark.slow
    def test_they_work_until_the_very_end_of_the_process(self) -> None:
        """For functions that are called at its exit, when executors do nothing any more."""
        program = (
            "import atexit\n"
            "from turnwise.persistence.postgres.threads import DaemonThreads\n"
            "threads = DaemonThreads(1, 'late')\n"
            "atexit.register(lambda: threads.submit(lambda: print('done')).result(60))\n"
        )
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

        assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)


def void(_: object) -> None:
    """Make a statement of an expression."""
