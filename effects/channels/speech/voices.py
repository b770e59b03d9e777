"""Voices: programs that speak a text, aloud or into a file.

Each text is spoken by a process of its own. So the event loop goes on meanwhile, speech can be ended in the middle of a
word, and a voice that crashes or hangs harms nothing else.
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
from ...printable import printable

PYTTSX3, ESPEAK = "pyttsx3", "espeak-ng"
_SCRIPT = Path(__file__).with_name("pyttsx3_voice.py")

TIMEOUT, TIMEOUT_PER_CHARACTER = 30.0, 0.2
"""Seconds that a voice may take for a text before it counts as hung. Speech takes less than 0.1 s per character."""

_PHONEMES = re.compile(r"\[(?=\[)")
"""Two opening brackets, after which espeak-ng reads phonemes instead of words."""

_FAILED = re.compile(r"^error:", re.IGNORECASE)
"""How espeak-ng reports a failure to play; its exit code is 0 nevertheless."""

LONGEST_FAULT = 300
"""The most characters of a voice's error message that are reported."""


@dataclass(frozen=True)
class Voice:
    """A program that speaks the UTF-8 text on its stdin aloud, or into FILE if its command ends in `-w FILE`."""

    name: str
    command: tuple[str, ...]

    def start(self, file: Path | None) -> subprocess.Popen[bytes]:
        """Start it for one text. Raises OSError if that fails."""
        into = () if file is None else ("-w", str(file))
        return subprocess.Popen(
            [*self.command, *into],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its child processes are terminated with it
        )


def speak(process: subprocess.Popen[bytes], text: str) -> str | None:
    """Send a voice its text, and wait for its end. Returns None if it has spoken, otherwise one line that says why not.
    A voice that hangs is terminated."""
    data = _PHONEMES.sub("[ ", text).encode()
    try:
        _, errors = process.communicate(data, timeout=TIMEOUT + TIMEOUT_PER_CHARACTER * len(data))
    except subprocess.TimeoutExpired:
        terminate(process)
        process.communicate()
        return "it did not finish in time and was terminated"
    lines = [line for line in printable(errors.decode(errors="replace")).splitlines() if line.strip()]
    failures = [line for line in lines if _FAILED.match(line)]
    if process.returncode == 0 and not failures:
        return None
    last = next(reversed(failures or lines), f"it ended with the exit code {process.returncode}")
    return shortened(last.strip(), LONGEST_FAULT)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Kill a voice and its child processes, unless it has ended."""
    if process.poll() is None:
        with suppress(OSError):  # it may just have ended
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


def find_voices() -> tuple[Voice, ...]:
    """The voices of this machine, in the order in which to try them: pyttsx3, which the extra `speech` installs, and
    the program espeak-ng. Raises `ConfigurationError` if there is none."""
    voices = [Voice(PYTTSX3, (sys.executable, "-P", str(_SCRIPT)))] if find_spec(PYTTSX3) else []
    program = which(ESPEAK)
    if program:
        voices.append(Voice(ESPEAK, (program, "--stdin", "-b", "1")))
    if not voices:
        raise ConfigurationError(f"No speech engine is installed: install {_what_to_install()}.")
    return tuple(voices)


def _what_to_install() -> str:
    """On Linux pyttsx3 needs espeak-ng too, and does not install it."""
    if sys.platform.startswith("linux"):
        return f"the program {ESPEAK}, or with pip {PYTTSX3} and espeakng-loader"
    return f"{PYTTSX3}, or the program {ESPEAK}"
