"""The benchmarks run. Times depend on the machine, so no test looks at a figure that is a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_the_commands_start_on_a_terminal() -> None:
    """Each line that has an aim says whether it was met, and the last line has the baseline."""
    lines = figures(STARTUP)

    aims = [line for line in lines if "at most" in line]
    assert len(aims) == 5
    assert all(line.startswith(("met ", "MISSED ")) for line in aims)
    assert "python -c pass" in lines[-1]


def test_a_transition_is_measured_beside_its_baselines() -> None:
    """The median row is compared with a dictionary and with the `transitions` library."""
    median, bare, library, *_ = figures(TRANSITION)

    assert "the median row" in median
    assert "beside a dictionary" in bare
    assert "beside the library `transitions`" in library


def test_a_pause_is_measured_with_and_without_the_library() -> None:
    """Each figure has a name by which the report finds it."""
    found = [json.loads(line)["name"] for line in figures(BENCHMARKS / "pauses.py", "--json")]

    assert found == ["pauses-none", "pauses-each", "pauses-lost"]


def test_live_conversations_leave_neither_tasks_nor_timers() -> None:
    """Each figure has a name by which the report finds it, and what rests does not run."""
    found = {figure["name"]: figure for figure in map(json.loads, figures(LIVE_CONVERSATIONS, "--json"))}

    assert {"live-memory", "live-memory-loaded", "live-rate", "live-turn-ratio"} < found.keys()
    assert found["live-tasks"]["number"] == 0


def test_a_part_that_does_not_exist() -> None:
    """The command exits with one sentence."""
    ran = subprocess.run([sys.executable, str(STARTUP), "speed"], capture_output=True, text=True, timeout=200)

    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith("there is no part called speed")


def test_a_long_dialogue_compares_its_ends() -> None:
    """Under each of the rules, and what is sent stands beside what it costs."""
    lines = figures(LONG_DIALOGUE)

    assert [line.split(":")[0].strip() for line in lines if "messages sent" in line] == [
        "last minutes",
        "recalled",
        "whole",
    ]
    assert len([line for line in lines if "at most" in line]) == 4
    assert "23, 23" in lines[0]


def test_a_long_turn_compares_its_ends() -> None:
    """The late rounds of a turn and the late turns of a conversation are compared with the early ones."""
    lines = figures(LONG_TURN)

    assert [line.split("the late ")[1].split()[0] for line in lines if "at most" in line] == ["round", "turn"]


def test_schedules_cost_one_task_and_one_timer() -> None:
    """However many conversations have one; these two are counted, so they are the same on every machine."""
    tasks, timers, *others = figures(WAKE_UPS)

    assert "20 scheduled conversations, tasks" in tasks and tasks.startswith("met ")
    assert "20 scheduled conversations, timers" in timers and timers.startswith("met ")
    assert len([line for line in others if "at most" in line]) == 3


def test_agents_at_rest_have_neither_tasks_nor_timers() -> None:
    """Memory is compared with that of the transcripts alone."""
    lines = figures(BENCHMARKS / "idle_agents.py")

    aims = [line for line in lines if "at most" in line]
    assert len(aims) == 9
    assert all(line.startswith("met ") for line in aims if "tasks" in line or "timers" in line)


def test_a_replay_is_measured_beside_a_parser() -> None:
    """Each kind of conversation is replayed to its end, and has its ratio to the standard library alone."""
    measured = [json.loads(line) for line in figures(BENCHMARKS / "replay.py", "--json")]

    names = {figure["name"] for figure in measured}
    kinds = {name.removeprefix("replay-ratio-") for name in names if name.startswith("replay-ratio-")}
    assert kinds == {"standard-turns", "questions", "many-calls", "sub-agents", "compactions", "long-turn"}
    assert {"replay-rate", "replay-processor"} < names
