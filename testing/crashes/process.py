"""A process of its own for a scenario, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn, TypeAlias

from .boundaries import observed
from .journal import Journal

Scenario: TypeAlias = Callable[[Path], Awaitable[None]]
"""What is run over the database at this path; see `crash_at_every_boundary`."""

SECONDS = 60.0
"""How long a process may take: far longer than a scenario that does not hang."""

POLL = 0.002
"""Seconds between two checks whether a process has ended."""


class ScenarioFailed(AssertionError):
    """A scenario raised an error, or did not end in time."""


class Process:
    """A copy of this process that runs a scenario. It starts at once; you must `wait` for it.

    It is made by `fork`, so the scenario may be any function, and it starts within milliseconds, since everything is
    imported already. Raises NotImplementedError where the operating system has no `fork`.
    """

    def __init__(self, scenario: Scenario, database: Path, journal: Path, dies_at: int | None = None) -> None:
        if not hasattr(os, "fork"):
            raise NotImplementedError("Processes are copied with fork, which this operating system does not have.")
        self._failure = journal.with_suffix(".failure")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads do not matter to the copy
            self._pid = os.fork()
        if self._pid == 0:
            _live(scenario, database, journal, dies_at, self._failure)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self, seconds: float = SECONDS) -> bool:
        """Wait for the process to end. Returns True if it ended by itself, False if it was killed.

        Raises `ScenarioFailed` if the scenario raised an error, or took too long.
        """
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                self.kill()
                os.waitpid(self._pid, 0)
                raise ScenarioFailed(f"The scenario did not come to its end within {seconds:g} s.")
            time.sleep(POLL)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return False
        if self._failure.exists():
            raise ScenarioFailed(self._failure.read_text(encoding="utf-8"))
        if status:
            raise ScenarioFailed(f"The process of the scenario ended with the status {status}.")
        return True


def _live(scenario: Scenario, database: Path, journal: Path, dies_at: int | None, failure: Path) -> NoReturn:
    """Run the scenario in the copy. At its end nothing that belongs to the original process is cleaned up."""
    try:
        with observed(Journal(journal), dies_at):
            asyncio.run(_run(scenario, database))
    except BaseException:
        failure.write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)
    os._exit(0)


async def _run(scenario: Scenario, database: Path) -> None:
    await scenario(database)
