"""Speaks what stands on stdin with pyttsx3: `python pyttsx3_voice.py [-w FILE]`.

It is run by its path, in a process of its own, because on some systems pyttsx3 works in the main thread only, plays
inside a callback during which nothing stops it, tells of its files on stdout, and where playing fails does not say so.
A process can be ended at any moment, writes where it is told to, and has an exit code: 0 if the text was spoken.
"""

import ctypes
import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

PLAYER = "aplay"
"""What plays a file on Linux; pyttsx3 uses it there, too."""

ESPEAK = "libespeak-ng.so.1"


def speak(text: str, file: Path | None) -> None:
    """Speak into the file, or aloud. Raises whatever goes wrong."""
    if file is not None:
        _into(text, file)
    elif sys.platform.startswith("linux"):
        with TemporaryDirectory(prefix="turnwise-speech-") as folder:
            spoken = Path(folder, "speech.wav")
            _into(text, spoken)
            played = subprocess.run([PLAYER, "-q", str(spoken)])
        if played.returncode:
            sys.exit(played.returncode)  # the player has said why
    else:
        engine = _engine()
        engine.say(text)
        _run(engine)


def _into(text: str, file: Path) -> None:
    engine = _engine()
    engine.save_to_file(text, str(file))
    _run(engine)


def _engine() -> Any:
    if sys.platform.startswith("linux"):
        _borrow_espeak()
    return importlib.import_module("pyttsx3").init()


def _borrow_espeak() -> None:
    """Where the system has no espeak-ng, which pyttsx3 speaks with on Linux, load the one that the package
    espeakng-loader brings, if that is installed: whoever asks for a library by this name then gets what is loaded."""
    try:
        ctypes.CDLL(ESPEAK)
    except OSError:
        if find_spec("espeakng_loader"):
            lent = importlib.import_module("espeakng_loader")
            os.environ["ESPEAK_DATA_PATH"] = lent.get_data_path()
            ctypes.CDLL(lent.get_library_path())


def _run(engine: Any) -> None:
    """Do what was asked of the engine, and return when it has ended. On Linux `runAndWait` returns after 10 ms, while
    a thread of espeak-ng still works: a longer text, or a busy machine, needs more."""
    started, ended = Event(), Event()
    faults: list[BaseException | None] = []

    def fail(fault: BaseException | None) -> None:
        faults.append(fault)
        ended.set()

    sys.unraisablehook = lambda unraisable: fail(unraisable.exc_value)  # what fails in that thread is reported here
    engine.connect("started-utterance", lambda name: started.set())
    engine.connect("finished-utterance", lambda name, completed: ended.set())
    engine.connect("error", lambda name, exception: fail(exception))
    engine.runAndWait()
    if started.is_set():
        ended.wait()
    for fault in filter(None, faults):
        raise fault


if __name__ == "__main__":
    speak(sys.stdin.buffer.read().decode(), Path(sys.argv[2]) if sys.argv[1:2] == ["-w"] else None)
