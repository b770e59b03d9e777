"""Starts Python for tests, by a server that has imported the most already."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

SERVER, CLIENT = Path(__file__).with_name("server.py"), Path(__file__).with_name("client.py")


@cache
def python() -> list[str]:
    """Return the command that starts Python: with `-m` and a module, or with a file. What tests of imports and of the
    start itself look at is not the same as with `sys.executable`; everything else is.

    There is a server for each process of tests; it is started here, and ends with that process. Where the system has no
    descriptors of processes, as on macOS, there is none.
    """
    if not hasattr(os, "pidfd_open"):
        return [sys.executable]
    folder = Path(tempfile.mkdtemp())
    server = subprocess.Popen([sys.executable, str(SERVER), str(folder / "socket")], stdin=subprocess.PIPE)
    assert server.stdin is not None

    def end() -> None:
        server.stdin.close()
        server.wait()
        (folder / "socket").unlink(missing_ok=True)
        folder.rmdir()

    atexit.register(end)
    while not (folder / "socket").exists():
        if server.poll() is not None:
            raise RuntimeError("The server that starts Python for the tests did not start.")
        time.sleep(0.02)
    return [sys.executable, "-S", "-E", str(CLIENT), str(folder / "socket")]
