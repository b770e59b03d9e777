"""Kills a scenario at each of its boundaries in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from .boundaries import Boundary
from .checks import check_after_crashes
from .journal import Seen
from .process import Process, Scenario, ScenarioFailed

DATABASE, JOURNAL = "conversations.db", "journal.jsonl"


class CrashFound(AssertionError):
    """An invariant does not hold after a crash. The message says which, and at which boundary."""


@dataclass(frozen=True)
class CrashReport:
    """How many processes were killed, and at which kinds of boundary."""

    kills: int
    boundaries: Counter[str]

    def __str__(self) -> str:
        return f"{self.kills} kills at {len(self.boundaries)} kinds of boundary"


def crash_at_every_boundary(scenario: Scenario, *, every: int = 1, deaths: int = 1, seed: int = 0) -> CrashReport:
    """Kill the scenario at each boundary that it reaches, run it again to its end, and check what is stored.

    `scenario` is a coroutine function of the path of a database. It opens an engine there, drives conversations until
    they rest, and closes the engine. It is run again after a crash, over the same database: so it must look for its
    conversation with `engine.list()` before it creates one, send each message under a `message_id`, answer what is
    asked, and resolve what is in doubt. Everything in it must follow from the database, and nothing may wait for ever.

    With `every=n` only every n-th boundary is tried; `seed` decides which. With `deaths` greater than 1 the process
    that continues is killed, too, at boundaries that `seed` decides.

    Raises `CrashFound` if an invariant does not hold, and `ScenarioFailed` if a run that is not killed fails.
    """
    chance = Random(seed)
    with TemporaryDirectory(prefix="turnwise-crashes-") as folder:
        boundaries = _run(scenario, Path(folder, "whole"), ())
        tried: Counter[str] = Counter()
        kills = 0
        for boundary in _chosen(boundaries, every, chance):
            further = [chance.randint(1, len(boundaries)) for _ in range(deaths - 1)]
            kills += 1 + len(further)
            tried[boundary.name] += 1
            try:
                _run(scenario, Path(folder, str(boundary.number)), (boundary.number, *further))
            except AssertionError as broken:
                raise type(broken)(f"Killed at {boundary}{_then(further)}: {broken}") from None
        return CrashReport(kills, tried)


def _chosen(boundaries: list[str], every: int, chance: Random) -> Iterator[Boundary]:
    for number in range(1 + chance.randrange(every), len(boundaries) + 1, every):
        yield Boundary(number, boundaries[number - 1])


def _run(scenario: Scenario, folder: Path, deaths: tuple[int, ...]) -> list[str]:
    """Run the scenario in a folder of its own: until it is killed at each of these boundaries, and then to its end.
    Returns the names of the boundaries that were reached."""
    folder.mkdir()
    database, journal = folder / DATABASE, folder / JOURNAL
    for dies_at in deaths:
        Process(scenario, database, journal, dies_at).wait()
        if database.exists() and (faults := _faults(database, journal, at_rest=False)):
            raise CrashFound(faults)
    if not Process(scenario, database, journal).wait():
        raise ScenarioFailed("The process was killed, and not by this test.")
    if faults := _faults(database, journal, at_rest=True):
        raise CrashFound(faults)
    return Seen.read(journal).boundaries


def _faults(database: Path, journal: Path, *, at_rest: bool) -> str:
    try:
        return "; ".join(check_after_crashes(database, journal, at_rest=at_rest))
    except Exception as error:  # a database that cannot even be read
        return f"{type(error).__name__}: {error}"


def _then(further: list[int]) -> str:
    return f", and then at {', '.join(map(str, further))}" if further else ""
