"""A program that stands in for espeak-ng, and records what it is to speak."""

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


def fake_speaker(folder: Path, seconds: float = 0, ends: str = "") -> Path:
    """Create the program, which takes some `seconds` and then runs the code `ends`; return the file of its texts."""
    spoken, program = folder / "spoken.txt", folder / "bin" / "espeak-ng"
    program.parent.mkdir()
    program.write_text(SPEAKER.format(python=sys.executable, spoken=str(spoken), seconds=seconds, ends=ends))
    program.chmod(0o755)
    # pyttsx3 would be preferred if it were installed. This module cannot be imported.
    (folder / "bin" / "pyttsx3.py").write_text("raise ImportError\n")
    return spoken


def fake_speaker_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables under which the program is found."""
    path = os.pathsep.join((str(folder / "bin"), os.environ.get("PYTHONPATH", "")))
    return {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
