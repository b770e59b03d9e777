"""Python that is started by way of the server of the tests does what Python does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .support.forks.starting import python

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys
print(__name__, sys.argv, os.getcwd(), sys.path[0], sorted(os.environ.items()), input())
print(os.isatty(0), sys.stdout.line_buffering, sys.stderr.errors, file=sys.stderr)
sys.exit(3)
"""
KILLED = "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.{})\n"
RAISING = "raise ValueError('as it is')\n"


def ran(command: Sequence[str], program: Path) -> tuple[int, str, str]:
    """Run a program with an argument, and return its exit code and what it wrote."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": "", "LC_ALL": "C.UTF-8", "NAME": "ä"}
    options = {"cwd": program.parent, "env": given, "input": "said\n", "capture_output": True, "text": True}
    done = subprocess.run([*command, program.name, "one"], timeout=200, **options)
    return done.returncode, done.stdout, done.stderr.replace(f"{program}", program.name)


@pytest.mark.parametrize("text", [PROGRAM, KILLED.format("SIGKILL"), KILLED.format("SIGTERM")])
def test_a_program_is_the_same(text: str, tmp_path: Path) -> None:
    """Its arguments, folder, environment, streams, and the way in which it ends."""
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")

    assert ran(python(), program) == ran([sys.executable], program)


def test_an_exception_is_shown(tmp_path: Path) -> None:
    """On stderr, with exit code 1."""
    program = tmp_path / "program.py"
    program.write_text(RAISING, encoding="utf-8")

    code, out, error = ran(python(), program)

    assert (code, out) == (1, "")
    assert error.endswith("ValueError: as it is\n")


def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches the program, which ends by it."""
    program = tmp_path / "program.py"
    program.write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n", encoding="utf-8")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    with subprocess.Popen([*python(), str(program)], **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=200)

    assert process.returncode == -signal.SIGINT
    assert error.endswith("KeyboardInterrupt\n")
