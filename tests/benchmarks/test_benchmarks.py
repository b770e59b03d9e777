"""The benchmarks run. Times depend on the machine, so no test looks at a figure that is a time."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
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

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
STARTUP = BENCHMARKS / "startup.py"
TRANSITION = BENCHMARKS / "transition.py"
LIVE_CONVERSATIONS = BENCHMARKS / "live_conversations.py"
LONG_DIALOGUE = BENCHMARKS / "long_dialogue.py"
LONG_TURN = BENCHMARKS / "long_turn.py"
WAKE_UPS = BENCHMARKS / "wake_ups.py"


def figures(benchmark: Path, *arguments: str) -> list[str]:
    """Run a benchmark and return the lines that it prints."""
    command = [sys.executable, str(benchmark), "--quick", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)

    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_the_commands_start_on_a_terminal() -> None:
    """Each line that has an aim says whether it was met, and the last line has the baseline."""
    lines = figures(STARTUP)

    aims = [line for line in lines if "at most" in line]
    assert len(aims) == 7
    assert all(line.startswith(("met ", "MISSED ")) for line in aims)
    assert "python -c pass" in lines[-1]


@pytest.mark.slow
def test_a_transition_is_measured_beside_its_baselines() -> None:
    """The median row is compared with a dictionary and with the `transitions` library."""
    median, bare, library, *_ = figures(TRANSITION)

    assert "the median row" in median
    assert "beside a dictionary" in bare
    assert "beside the library `transitions`" in library


@pytest.mark.slow
def test_a_pause_is_measured_with_and_without_the_library() -> None:
    """Each figure has a name by which the report finds it."""
    found = [json.loads(line)["name"] for line in figures(BENCHMARKS / "pauses.py", "--json")]

    assert found == ["pauses-none", "pauses-each", "pauses-lost"]


@pytest.mark.slow
def test_live_conversations_leave_neither_tasks_nor_timers() -> None:
    """Each figure has a name by which the report finds it, and what rests does not run."""
    found = {figure["name"]: figure for figure in map(json.loads, figures(LIVE_CONVERSATIONS, "--json"))}

    assert {"live-memory", "live-memory-loaded", "live-rate", "live-turn-ratio"} < found.keys()
    assert found["live-tasks"]["number"] == 0


@pytest.mark.slow
def test_a_part_that_does_not_exist() -> None:
    """The command exits with one sentence."""
    ran = subprocess.run([sys.executable, str(STARTUP), "speed"], capture_output=True, text=True, timeout=200)

    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith("there is no part called speed")


@pytest.mark.slow
def test_a_long_dialogue_compares_its_ends() -> None:
    """Under each of the rules, and what is sent stands beside what it costs."""
    lines = figures(LONG_DIALOGUE)

    assert [line.split(":")[0].strip() for line in lines if "messages sent" in line] == [
        "last minutes",
        "recalled",
        "whole",
    ]
    assert len([line for line in lines if "at most" in line]) == 4
    assert "24, 24" in lines[0]


@pytest.mark.slow
def test_a_long_turn_compares_its_ends() -> None:
    """The late rounds of a turn and the late turns of a conversation are compared with the early ones."""
    lines = figures(LONG_TURN)

    assert [line.split("the late ")[1].split()[0] for line in lines if "at most" in line] == ["round", "turn"]


@pytest.mark.slow
def test_schedules_cost_one_task_and_one_timer() -> None:
    """However many conversations have one; these two are counted, so they are the same on every machine."""
    tasks, timers, *others = figures(WAKE_UPS)

    assert "20 scheduled conversations, tasks" in tasks and tasks.startswith("met ")
    assert "20 scheduled conversations, timers" in timers and timers.startswith("met ")
    assert len([line for line in others if "at most" in line]) == 3


@pytest.mark.slow
def test_agents_at_rest_have_neither_tasks_nor_timers() -> None:
    """Memory is compared with that of the transcripts alone."""
    lines = figures(BENCHMARKS / "idle_agents.py")

    aims = [line for line in lines if "at most" in line]
    assert len(aims) == 9
    assert all(line.startswith("met ") for line in aims if "tasks" in line or "timers" in line)


@pytest.mark.slow
def test_a_replay_is_measured_beside_a_parser() -> None:
    """Each kind of conversation is replayed to its end, and has its ratio to the standard library alone."""
    measured = [json.loads(line) for line in figures(BENCHMARKS / "replay.py", "--json")]

    names = {figure["name"] for figure in measured}
    kinds = {name.removeprefix("replay-ratio-") for name in names if name.startswith("replay-ratio-")}
    assert kinds == {"standard-turns", "questions", "many-calls", "sub-agents", "compactions", "long-turn"}
    assert {"replay-rate", "replay-processor"} < names


# --- The benchmark of streams over HTTP runs, and its clients notice what is wrong with a stream.
#
# How long anything takes depends on the machine, so only what is counted is looked at.


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_out_of_order() -> None:
    """Eight subscribers of four conversations receive every update and every piece once, in order, though some of them
    break their connections, and others never read."""
    command = [sys.executable, str(BENCHMARKS / "http_streams.py"), "--quick"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)

    assert (ran.returncode, ran.stderr) == (0, "")
    lines = [line.split() for line in ran.stdout.splitlines()]
    counted = {words[1]: (words[0], words[2]) for words in lines if words[1] in ("lost", "doubled", "disordered")}
    assert counted == dict.fromkeys(("lost", "doubled", "disordered"), ("met", "0"))
    assert ["subscribers", "that", "resumed", "2"] in lines


SNAPSHOT = {"type": "snapshot", "id": "2.0", "data": {}}
ENDED = {"type": "turn_ended", "id": "4.3", "data": {}}


def token(*numbers: int, from_start: bool = False, request: int = 1) -> dict[str, Any]:
    """The pieces of these numbers."""
    text = "".join(f"{number}@5 " for number in numbers)
    extra = {"from_start": True} if from_start else {}
    return {"type": "token", "id": None, "data": {"text": text, "request": request, "attempt": 1, **extra}}


def answer(count: int, update_id: str = "4.1") -> dict[str, Any]:
    """The complete answer of so many pieces."""
    text = "".join(f"{number}@5 " for number in range(count))
    return {"type": "message", "id": update_id, "data": {"role": "assistant", "text": text}}


def message(update_id: str) -> dict[str, Any]:
    """The message of a user."""
    return {"type": "message", "id": update_id, "data": {"role": "user", "text": "Hi"}}


async def faults(monkeypatch: pytest.MonkeyPatch, *connections: Sequence[dict[str, Any]], **options: Any) -> Any:
    """What a subscriber counts that receives these events, on one connection after the other. The log has the updates
    2.1, 2.2, 4.1, 4.2 and 4.3."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from stream_clients import Subscriber  # type: ignore[import-not-found]

    sent, heads = [*connections], []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        body = b": keep-alive\n\n" + b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in sent.pop(0))
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        for place in range(0, len(head + body), 7):  # events arrive in pieces, whatever their borders
            writer.write((head + body)[place : place + 7])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        subscriber = Subscriber(port, "/", turns=1, **options)
        await asyncio.wait_for(subscriber.follow(), 60)
        if len(connections) > 1:
            assert b"last-event-id: 2.2" in heads[-1].lower()
        counted = subscriber.faults([(2, 1), (2, 2), (4, 1), (4, 2), (4, 3)])
        return counted.lost, counted.doubled, counted.disordered
    finally:
        server.close()


STATE = {"type": "state_change", "id": "4.2", "data": {}}
BEGINNING = [SNAPSHOT, message("2.1"), message("2.2")]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([*BEGINNING, token(0), token(1), token(2), answer(3), STATE, ENDED], (0, 0, 0)),
        ([*BEGINNING, token(0), token(2), answer(3), STATE, ENDED], (1, 0, 0)),
        ([*BEGINNING, token(0), token(1), token(1), token(2), answer(3), STATE, ENDED], (0, 1, 0)),
        ([*BEGINNING, token(0), token(2), token(1), answer(3), STATE, ENDED], (0, 0, 1)),
        ([*BEGINNING, answer(3), STATE, ENDED], (3, 0, 0)),
        ([*BEGINNING, token(0), token(1), token(0, 1, 2, from_start=True), answer(3), STATE, ENDED], (0, 0, 0)),
        ([SNAPSHOT, message("2.2"), answer(0), STATE, ENDED], (1, 0, 0)),
        ([*BEGINNING, message("2.2"), answer(0), STATE, ENDED], (0, 1, 0)),
        ([SNAPSHOT, message("2.2"), message("2.1"), answer(0), STATE, ENDED], (0, 0, 1)),
    ],
    ids=["right", "piece lost", "piece twice", "pieces turned", "all lost", "caught up", "lost", "twice", "turned"],
)
async def test_a_client_counts(events: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault once, and none in a stream that is right."""
    assert await faults(monkeypatch, events) == expected


@pytest.mark.parametrize(
    ("resumed", "expected"),
    [
        ([token(0, 1, from_start=True), token(2), answer(3), STATE, ENDED], (0, 0, 0)),
        ([answer(3), STATE, ENDED], (0, 0, 0)),
        ([token(2), answer(3), STATE, ENDED], (2, 0, 0)),
        ([message("2.2"), answer(3), STATE, ENDED], (0, 1, 0)),
    ],
    ids=["text so far", "complete by then", "text so far is missing", "what was received before"],
)
async def test_a_client_that_resumed_counts(resumed: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for what follows the last update, and takes the text so far for what it had."""
    assert await faults(monkeypatch, [*BEGINNING, token(0)], resumed, resumes_at=2) == expected


# --- The comparison with other libraries runs, up to its page and its plots. None of these libraries is installed here.


COMPARISON_BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What a run of tiny sizes writes: turnwise and the floor, in processes of their own."""
    folder = tmp_path_factory.mktemp("comparison")
    run(folder, "--systems", "turnwise", "floor", "--parts", "long", "--programs")
    return Results.read(folder / "results.json")


def run(folder: Path, *arguments: str) -> None:
    """Run the command with tiny sizes; it writes into this folder."""
    command = [
        sys.executable,
        str(COMPARISON_BENCHMARKS / "run.py"),
        "--quick",
        "--folder",
        str(folder),
        "--cache",
        str(folder),
    ]
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
    """What docs/development/benchmarks.md and README.md say of such a result."""

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
        whole = Results.read(ROOT / "docs" / "development" / "benchmarks.json")
        missed = [aim for aim in AIMS if aim.is_met(whole) is False]

        assert all(aim.what in benchmarks_page.verdict(whole) for aim in missed)
        assert benchmarks_page.aims(whole).count("**missed**") == len(missed)

    def test_each_aim_says_whether_it_is_met(self) -> None:
        """On both sides of its bound, with the figures of the last run of `make bench` or without them."""
        whole = Results.read(ROOT / "docs" / "development" / "benchmarks.json")

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
