"""Speaks the text on stdin with pyttsx3: `python speech_voice.py [-w FILE]`.

It runs as a script in a process of its own. On some systems pyttsx3 works only in the main thread, plays inside a
callback that cannot be stopped, prints the names of its files on stdout, and does not report that playing failed. A
process can be ended at any moment, and has an exit code: 0 if the text was spoken.
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
"""The program that plays a file on Linux, as pyttsx3 does."""

ESPEAK = "libespeak-ng.so.1"


def speak(text: str, file: Path | None) -> None:
    """Speak into the file, or aloud if there is none. Raises any error."""
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
        _load_espeak()
    return importlib.import_module("pyttsx3").init()


def _load_espeak() -> None:
    """Load espeak-ng, with which pyttsx3 speaks on Linux, from the package espeakng-loader if the system has none. A
    later request for a library of this name then gets the loaded one."""
    try:
        ctypes.CDLL(ESPEAK)
    except OSError:
        if find_spec("espeakng_loader"):
            loader = importlib.import_module("espeakng_loader")
            os.environ["ESPEAK_DATA_PATH"] = loader.get_data_path()
            ctypes.CDLL(loader.get_library_path())


def _run(engine: Any) -> None:
    """Have the engine speak, and return when it has finished. On Linux `runAndWait` returns after 10 ms although a
    thread of espeak-ng still works."""
    started, ended = Event(), Event()
    faults: list[BaseException | None] = []

    def fail(fault: BaseException | None) -> None:
        faults.append(fault)
        ended.set()

    sys.unraisablehook = lambda unraisable: fail(unraisable.exc_value)  # Python reports errors of that thread here
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
