"""A server in a process of its own, for tests that kill it."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .live_server import PATIENCE

ADDRESS = re.compile(r"https?://[^\s/]+")


class ServerProcess:
    """A process that prints the address at which it serves. `lines` is what it has printed so far."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self._addresses: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self._addresses.get(timeout=PATIENCE) or ""
        assert self.url, f"The process ended without an address: {''.join(self.lines)}"

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)
            if found := ADDRESS.search(line):
                self._addresses.put(found[0])
        self._addresses.put(None)

    @property
    def port(self) -> int:
        """The port, so that a second process can serve at the same one."""
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End the process at once, as a crash of the machine does (SIGKILL)."""
        self.process.kill()
        self.wait()

    def terminate(self) -> int:
        """Ask the process to stop (SIGTERM), and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


@contextmanager
def started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Start a program that serves and prints its address, and kill it at the end if it still runs.

    A command that begins with a dash or with the name of a Python file is run by this interpreter.
    """
    by_python = command[0].startswith("-") or command[0].endswith(".py")
    server = ServerProcess([sys.executable, *command] if by_python else command, folder, environment or {})
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
        if server.process.stdout:
            server.process.stdout.close()
