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

from ....states.errors import ConfigurationError
from ....states.values.value import shortened
from ...text import printable

PYTTSX3, ESPEAK = "pyttsx3", "espeak-ng"
_SCRIPT = Path(__file__).with_name("pyttsx3_voice.py")

PATIENCE, PATIENCE_PER_CHARACTER = 30.0, 0.2
"""Seconds that a voice may take for a text before it counts as hung. Ours: speech takes less than 0.1 s a character."""

_SOUNDS = re.compile(r"\[(?=\[)")
"""Where text has two brackets together: to espeak-ng they mean sounds instead of words."""

_FAILED = re.compile(r"^error:", re.IGNORECASE)
"""How espeak-ng says that it was not heard; its exit code is 0 even so."""

WIDEST = 300
"""The most characters of what a voice complains of that are told. Ours."""


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


def speak(process: subprocess.Popen[bytes], text: str) -> str | None:
    """Give a voice its text, and wait for its end. Returns None if it has spoken, else why not, on one line. One that
    hangs is cut off."""
    given = _SOUNDS.sub("[ ", text).encode()
    try:
        _, complaints = process.communicate(given, timeout=PATIENCE + PATIENCE_PER_CHARACTER * len(given))
    except subprocess.TimeoutExpired:
        cut_off(process)
        process.communicate()
        return "it did not come to an end, and was cut off"
    lines = [line for line in printable(complaints.decode(errors="replace")).splitlines() if line.strip()]
    failures = [line for line in lines if _FAILED.match(line)]
    if process.returncode == 0 and not failures:
        return None
    last = next(reversed(failures or lines), f"it ended with the exit code {process.returncode}")
    return shortened(last.strip(), WIDEST)


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
        raise ConfigurationError(f"There is nothing here to speak with: install {_what_to_install()}.")
    return tuple(found)


def _what_to_install() -> str:
    """On Linux pyttsx3 speaks with espeak-ng too, which it does not bring."""
    if sys.platform.startswith("linux"):
        return f"the program {ESPEAK}, or with pip {PYTTSX3} and espeakng-loader"
    return f"{PYTTSX3}, or the program {ESPEAK}"
