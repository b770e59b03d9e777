"""Programs that speak: text goes in, and comes out of the loudspeaker or into a file.

A voice is a process for each text. So it is heard while the event loop goes on, it can be cut off in the middle of a
word, and one that breaks or hangs takes nothing with it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from ...states.errors import ConfigurationError

PYTTSX3, ESPEAK = "pyttsx3", "espeak-ng"
_SCRIPT = Path(__file__).with_name("pyttsx3_voice.py")

PATIENCE, PATIENCE_PER_CHARACTER = 30.0, 0.2
"""Seconds that a voice may take for a text before it counts as hung. Ours: speech takes less than 0.1 s a character."""

_SOUNDS = re.compile(r"\[(?=\[)")
"""Where text has two brackets together: to espeak-ng they mean sounds instead of words."""

_FAILED = re.compile(rb"^error:", re.IGNORECASE | re.MULTILINE)
"""How espeak-ng says that it was not heard; its exit code is 0 even so."""


@dataclass(frozen=True)
class Voice:
    """A program that speaks what stands on its stdin as UTF-8, or with `-w FILE` behind its command writes it there."""

    name: str
    command: tuple[str, ...]

    def start(self, file: Path | None) -> subprocess.Popen[bytes]:
        """Start it, for one text. Raises OSError if it cannot be."""
        into = () if file is None else ("-w", str(file))
        return subprocess.Popen(
            [*self.command, *into],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that whatever it starts is cut off with it
        )


def has_spoken(process: subprocess.Popen[bytes], text: str) -> bool:
    """Give a voice its text, wait for its end, and tell whether it has spoken. One that hangs is cut off."""
    given = _SOUNDS.sub("[ ", text).encode()
    try:
        _, complaints = process.communicate(given, timeout=PATIENCE + PATIENCE_PER_CHARACTER * len(given))
    except subprocess.TimeoutExpired:
        cut_off(process)
        process.communicate()
        return False
    return process.returncode == 0 and not _FAILED.search(complaints)


def cut_off(process: subprocess.Popen[bytes]) -> None:
    """End a voice, and what it started, at once. One that has ended stays as it is."""
    if process.poll() is None:
        with suppress(OSError):  # it may just have ended
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


def voices_here() -> tuple[Voice, ...]:
    """The voices of this machine, the one to try first at the front: pyttsx3, which the extra `speech` installs, and
    the program espeak-ng. Raises `ConfigurationError` if there is none."""
    found = [Voice(PYTTSX3, (sys.executable, "-P", str(_SCRIPT)))] if find_spec(PYTTSX3) else []
    program = which(ESPEAK)
    if program:
        found.append(Voice(ESPEAK, (program, "--stdin", "-b", "1")))
    if not found:
        raise ConfigurationError("There is nothing here to speak with: install pyttsx3, or the program espeak-ng.")
    return tuple(found)
