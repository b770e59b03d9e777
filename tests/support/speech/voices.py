"""The voices of this machine, programs that stand in for one, and a measure of what a sound file holds."""

from __future__ import annotations

import subprocess
import sys
import wave
from array import array
from pathlib import Path

import pytest

from turnwise import ConfigurationError
from turnwise.effects.channels.speech import ESPEAK, PYTTSX3, Voice, find_voices, speak

WORDS = "The table is booked for two, at half past six."


def program(code: str, name: str = "program") -> Voice:
    """A voice that is this Python program. It has the text in `text`, and in `file` the file to write, or None."""
    reads = "import sys, time; text = sys.stdin.read(); file = sys.argv[2] if len(sys.argv) > 2 else None\n"
    return Voice(name, (sys.executable, "-S", "-c", reads + code))


WRITES = program("open(file, 'w').write(text)", "writes")
HANGS = program("time.sleep(60)", "hangs")
BREAKS = program("sys.exit(1)", "breaks")


def voice_that_works(name: str, folder: Path) -> Voice:
    """Return the voice of this name. Skips the test, with the reason, if the voice does not work here."""
    try:
        voice = next((voice for voice in find_voices() if voice.name == name), None)
    except ConfigurationError:
        voice = None
    if voice is None:
        pytest.skip(f"{name} is not installed")
    if fault := speak(voice.start(folder / "trial"), "a"):
        pytest.skip(f"{name} does not work here: {fault}")
    return voice


def any_voice_that_works(folder: Path) -> Voice:
    """Return a voice that works here. Skips the test if there is none."""
    for name in (ESPEAK, PYTTSX3):
        try:
            return voice_that_works(name, folder)
        except pytest.skip.Exception:
            continue
    pytest.skip("there is no speech engine here")


def heard(file: Path) -> tuple[float, float]:
    """Return how many seconds a WAV file plays, and how loud it is: the root mean square, where 32767 is full scale."""
    with wave.open(str(file)) as sound:
        assert (sound.getsampwidth(), sound.getnchannels()) == (2, 1)
        samples = array("h", sound.readframes(sound.getnframes()))
        seconds = sound.getnframes() / sound.getframerate()
    return seconds, (sum(sample * sample for sample in samples) / max(1, len(samples))) ** 0.5


def plays_nothing() -> bool:
    """Whether espeak-ng finds no loudspeaker on this machine."""
    done = subprocess.run([ESPEAK, "a"], capture_output=True)
    return b"error:" in done.stderr
