"""Workers in processes of their own, and tools by which a test sees them at work and holds them up."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .terminal import COMMAND, ENVIRONMENT, TIMEOUT

HELD_TOOL = '''
import asyncio, os
from pathlib import Path
from turnwise import ToolContext, tool

FOLDER = Path(__file__).parent

async def held(context: ToolContext) -> None:
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{os.getpid()} {context.key}\\n")
    while not (FOLDER / "let_go").exists():
        await asyncio.sleep(0.02)

@tool(crash="idempotent")
async def look(context: ToolContext, place: str) -> str:
    """Look at a place."""
    await held(context)
    return "It is fine."

@tool(crash="at_most_once")
async def pay(context: ToolContext, amount: int) -> str:
    """Pay an amount."""
    await held(context)
    return "It is paid."
'''
TOOL = "held:look,held:pay"
MESSAGE = "Look at the place: Rome"
PAYMENT = "Pay the amount: 7"


def write_tool(folder: Path) -> None:
    """Write the module of the tool, and the file in which it notes its runs."""
    (folder / "held.py").write_text(HELD_TOOL, encoding="utf-8")
    (folder / "ledger").touch()


def runs(folder: Path) -> list[list[str]]:
    """The processes in which the tool began, each with the key of the call."""
    return [line.split() for line in (folder / "ledger").read_text().splitlines()]


class WorkerProcess:
    """A command that runs until it is told to stop. `lines` is what it has printed, on stdout and stderr."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._new.put(line)
        self._new.put(None)

    def expect(self, text: str) -> str:
        """Wait for a line with this text, and return it."""
        while (line := self._new.get(timeout=TIMEOUT)) is not None:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"The process ended without saying “{text}”: {''.join(self.lines)}")

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        while (line := self._new.get(timeout=TIMEOUT)) is not None:
            self.lines.append(line)
        return self.process.wait(TIMEOUT)


@contextmanager
def worker(folder: Path, url: str, *options: str) -> Iterator[WorkerProcess]:
    """Start a worker with the held tool, and wait until it works. Kill it at the end if it still runs."""
    process = WorkerProcess(folder, "worker", "--db", url, "--tools", TOOL, *options)
    try:
        process.expect("turnwise works for ")
        yield process
    finally:
        process.process.kill()
        process.process.wait()
