"""Processes that are killed at every moment at which it could matter, and what must hold afterwards.

A scenario opens an engine over the database that it is given, drives conversations until they rest, and closes the
engine. It runs in a process of its own, which is killed (SIGKILL) at one boundary: before or after a commit, a call to
the outside world or its answer. Then it runs again over the same database, to its end, and the database is checked.

    def test_no_crash_loses_anything():
        crash_at_every_boundary(books_a_table)

`crash_at_every_boundary` says how a scenario must be written. Crashes in virtual time belong in `simulation/`.
"""

from .boundaries import Boundary
from .checks import check_after_crashes
from .every import CrashFound, CrashReport, crash_at_every_boundary
from .journal import Journal
from .process import Process, ScenarioFailed

__all__ = [
    "Boundary",
    "CrashFound",
    "CrashReport",
    "Journal",
    "Process",
    "ScenarioFailed",
    "check_after_crashes",
    "crash_at_every_boundary",
]
