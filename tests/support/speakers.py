"""A program that stands in for espeak-ng."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SPEAKER = """#!{python} -S
import sys, time
text = sys.stdin.read()
with open({spoken!r}, "a") as file:
    file.write(text + "\\n")
time.sleep({seconds})
{ends}
"""


def speaker_in(folder: Path, seconds: float = 0, ends: str = "") -> Path:
    """Put a program in the place of espeak-ng that writes down what it would speak; returns where."""
    spoken, program = folder / "spoken.txt", folder / "bin" / "espeak-ng"
    program.parent.mkdir()
    program.write_text(SPEAKER.format(python=sys.executable, spoken=str(spoken), seconds=seconds, ends=ends))
    program.chmod(0o755)
    # pyttsx3 comes first where it is installed; this one cannot be imported.
    (folder / "bin" / "pyttsx3.py").write_text("raise ImportError\n")
    return spoken


def with_speaker(folder: Path) -> dict[str, str]:
    """The environment in which that program is found."""
    path = os.pathsep.join((str(folder / "bin"), os.environ.get("PYTHONPATH", "")))
    return {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
