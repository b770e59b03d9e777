"""The comparison with other libraries runs, up to its page and its plots. None of these libraries is installed here."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from time import time
from typing import Any

import pytest

import turn_profile
from generator import benchmarks_page
from generator.benchmark_aims import AIMS
from generator.benchmark_results import RATE, Results
from generator.pages import FIGURES
from peers import environments, measures, rounds
from peers.turnwise import Turnwise

from ..support.source.source_tree import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What a run of tiny sizes writes: turnwise and the floor, in processes of their own."""
    folder = tmp_path_factory.mktemp("comparison")
    run(folder, "--systems", "turnwise", "floor", "--parts", "long", "--programs")
    return Results.read(folder / "results.json")


def run(folder: Path, *arguments: str) -> None:
    """Run the command with tiny sizes; it writes into this folder."""
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--folder", str(folder), "--cache", str(folder)]
    subprocess.run(
        [*command, "--output", str(folder / "results.json"), *arguments], check=True, capture_output=True, timeout=200
    )


@pytest.mark.slow
class TestRun:
    """`python benchmarks/run.py`."""

    def test_every_round_is_in_the_json(self, results: Results) -> None:
        """Each turn of a conversation has its times, and the machine and the versions stand beside them."""
        for system in ("turnwise", "floor"):
            (long,) = results.rounds("long", system)
            assert len(long["wall"]) == len(long["processor"]) == long["turns"] == 4
            assert long["journal"] == "wal"
        assert results.data["machine"]["cores"] >= 1
        assert set(results.data["systems"]["turnwise"]["versions"]) == {"turnwise", "SQLAlchemy", "pydantic"}

    def test_every_part_of_the_floor_runs(self, tmp_path: Path) -> None:
        """A floor has no questions, so it has no such part, and nothing fails. No file is left in the folder."""
        run(tmp_path, "--systems", "floor", "--programs")

        floor = Results.read(tmp_path / "results.json")
        taken = {part for part in floor.data["results"] if floor.rounds(part, "floor")}
        assert taken | {"syncs"} == set(environments.FLOOR.parts)  # a machine without strace cannot count syncs
        assert floor.missing("answer", "floor") == "–"
        assert [path.name for path in tmp_path.iterdir()] == ["results.json"]

    def test_a_library_that_cannot_be_installed_is_not_measured(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other systems are, and the result says why this one is not."""

        def refuse(system: Any, cache: Path) -> Path:
            if system.name == "Burr":
                raise environments.NotInstalled("there is no network")
            return Path(sys.executable)

        monkeypatch.setattr(rounds, "interpreter", refuse)
        some = rounds.Rounds(tmp_path, tmp_path, rounds.QUICK)
        some.prepare((environments.PEERS[0], environments.FLOOR))
        some.measure("many")

        assert some.systems["Burr"] == {"not measured": "there is no network"}
        assert list(some.results["many"]) == ["floor"]


@pytest.mark.slow
class TestTurnwise:
    """The parts that measure turnwise, each with a few turns."""

    @pytest.mark.parametrize(
        ("part", "sizes"),
        [
            ("many", {"conversations": 2, "turns": 1}),
            ("answer", {"repeats": 1}),
            ("steps", {"turns": 1, "repeats": 1}),
            ("idle", {"conversations": 1, "turns": 1}),
            ("syncs", {"turns": 1}),
        ],
    )
    def test_each_part_measures(self, part: str, sizes: dict[str, int], tmp_path: Path) -> None:
        """It checks the replies itself, and returns numbers."""
        assert all(value for value in measured(part, tmp_path, sizes).values())

    def test_a_conversation_is_resumed(self, tmp_path: Path) -> None:
        """From the file that the part before it left."""
        key = measured("long", tmp_path, {"turns": 1})["key"]

        reopened = measured("reopen", tmp_path, {"key": key, "repeats": 2, "started": time()})

        assert reopened["asked"] > reopened["ready"] > 0 and reopened["process"] > 0

    @pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts")
    def test_a_turn_waits_for_the_disk_once_for_each_step(self, tmp_path: Path) -> None:
        """Each of the four steps is synced to the disk once, and nothing else is."""
        some = rounds.Rounds(tmp_path, tmp_path, rounds.QUICK)
        some.prepare([environments.TURNWISE])
        some.measure("syncs")

        (counted,) = some.results["syncs"]["turnwise"]
        assert counted == {"syncs": 4.0} or "ptrace" in counted["not measured"]

    def test_a_message_that_is_not_stored_is_noticed(self, tmp_path: Path) -> None:
        """The history is counted in the file after it was closed."""
        key = measured("long", tmp_path, {"turns": 1})["key"]

        with pytest.raises(RuntimeError, match="4 messages are stored of 8"):
            asyncio.run(measures.check(Turnwise, tmp_path / "long.db", {key: 2}))


def measured(part: str, folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """Measure a part of turnwise in this process."""
    return asyncio.run(measures.PARTS[part](Turnwise, folder, sizes))


class TestProfile:
    """The profile of a turn."""

    def test_every_share_has_a_package(self, tmp_path: Path) -> None:
        """The shares of one conversation, and of several, are a whole each; the calls of all packages are counted."""
        figures = list(turn_profile.measure(turn_profile.QUICK, tmp_path))

        for name in ("one", "many"):
            shares = [each.number for each in figures if each.name.startswith(f"profile-{name}-")]
            (calls,) = (each.number for each in figures if each.name == f"calls-{name}")
            assert sum(shares) == pytest.approx(100)
            assert calls > 0
        assert {"the machine (states/)", "the engine (engine/)"} <= {each.what.strip() for each in figures}


@pytest.mark.slow
class TestPage:
    """What docs/benchmarks.md and README.md say of such a result."""

    def test_what_was_not_measured_is_said(self, results: Results) -> None:
        """A cell without a figure is not empty."""
        row = next(line for line in benchmarks_page.ratios(results).splitlines() if RATE.title in line)

        assert row.count("|") == 3
        assert "not measured" in benchmarks_page.aims(results)
        assert "**Not measured:**" in benchmarks_page.verdict(results)
        assert f"of our {len(AIMS)} aims" in benchmarks_page.summary(results)
        assert "times the fastest" not in benchmarks_page.summary(results)

    def test_each_missed_aim_is_named(self) -> None:
        """In a sentence above the table, in which they are not hidden among the others."""
        whole = Results.read(ROOT / "docs" / "benchmarks.json")
        missed = [aim for aim in AIMS if aim.is_met(whole) is False]

        assert all(aim.what in benchmarks_page.verdict(whole) for aim in missed)
        assert benchmarks_page.aims(whole).count("**missed**") == len(missed)

    def test_each_aim_says_whether_it_is_met(self) -> None:
        """On both sides of its bound, with the figures of the last run of `make bench` or without them."""
        whole = Results.read(ROOT / "docs" / "benchmarks.json")

        for aim in AIMS:
            assert aim.row(whole).endswith(("| met |", "| **missed** |", "| |"))

    def test_no_part_of_a_page_has_an_empty_line(self, results: Results) -> None:
        """An empty line ends a part that is generated."""
        for part in FIGURES.values():
            assert "\n\n" not in part(results)

    def test_the_plots_are_the_same_each_time(self, results: Results, tmp_path: Path) -> None:
        """Two runs of the command write the same bytes, and no date."""
        pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
        file = tmp_path / "results.json"
        file.write_text(json.dumps(results.data), encoding="utf-8")
        plots = importlib.import_module("plots")

        for folder in ("first", "second"):
            plots.main([str(file), str(tmp_path / folder)])

        first, second = (
            {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("first", "second")
        )
        assert first == second
        assert len(first) == 8
