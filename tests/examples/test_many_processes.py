"""The demonstration of several processes: it tells what happened, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ..support.postgres.fixtures import installation_or_skip
from ..support.scenarios.examples import EXAMPLES
from ..support.terminal import ENVIRONMENT, TIMEOUT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="/proc says what runs.")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files, which another user may use as well: a server does not run as root."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@pytest.fixture
def demonstration(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demonstration, started in a group of its own, with a folder for temporary files."""
    installation_or_skip()
    process = subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLES / "many_processes.py")],
        env={**ENVIRONMENT, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def processes_in(said: str) -> list[int]:
    """The processes that the demonstration says that it has started."""
    return [int(number) for number in re.findall(r"^(?:serve|worker \d)\s+process (\d+) ", said, re.MULTILINE)]


def run(process: int) -> bool:
    """Whether a process runs."""
    return Path(f"/proc/{process}").exists()


def test_a_worker_is_killed_and_the_other_takes_over(demonstration: subprocess.Popen[str], folder: Path) -> None:
    """All turns end, and none twice. It ends by itself, and nothing of it is left."""
    said = demonstration.communicate(timeout=TIMEOUT)[0]

    assert demonstration.returncode == 0, said
    assert re.search(r"kill -9 worker 1 \(process \d+\), in the middle of \d+ tools\n", said)
    assert "the other worker takes over, " in said
    assert "12 of 12 turns are completed, none of them twice.\n" in said
    assert "12 logs were replayed, with no divergence.\n" in said
    assert len(processes_in(said)) == 3
    assert not any(map(run, processes_in(said)))
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_stopped(number: signal.Signals, demonstration: subprocess.Popen[str], folder: Path) -> None:
    """In the middle of everything: it ends what it has started."""
    assert demonstration.stdout
    said = ""
    while "kill -9" not in said:
        line = demonstration.stdout.readline()
        assert line, said
        said += line
    os.kill(demonstration.pid, number)
    rest = demonstration.communicate(timeout=TIMEOUT)[0]

    assert demonstration.returncode == 130, said + rest
    assert rest.endswith("Stopped; everything that was started has ended.\n")
    assert not any(map(run, processes_in(said)))
    assert [*folder.iterdir()] == []


def test_without_a_server_it_says_how_to_get_one(tmp_path: Path) -> None:
    """In one sentence."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "many_processes.py")],
        env={**ENVIRONMENT, "TURNWISE_POSTGRES_BIN": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"No PostgreSQL server was found: install PostgreSQL, .*\n", done.stderr)
