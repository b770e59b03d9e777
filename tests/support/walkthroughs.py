"""Follows a page as its reader does: writes the files that it shows, runs its commands, and compares what they print.

    ```python          A block whose first line names a file is that file.
    # hello.py
    ```
    ```sh              A block of commands is run by bash in the folder of the reader.
    python hello.py
    ```
    ```text            The block behind it is what the reader sees; … stands for anything, alone for any lines.
    Hello …
    ```

A command that serves runs until the page kills it, starts the next one, or ends. Its port is a free one, wherever the
page says 8000. Commands that install something are left out: what they install is installed.

No time is measured. Where the page waits some seconds, its next command is repeated until it prints what it should; and
before the page kills a server, what is looked at behind it is waited for, since nothing changes any more by then.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from .http.server_process import ServerProcess, started
from .pages import Page, run_block
from .programs.missing import missing

PATIENCE = 120.0
"""Seconds to wait for what certainly happens: the machine may be busy."""

FILE = re.compile(r"(?:#|<!--) ([\w./-]+\.\w+)(?: -->)?\n")
LEFT_OUT = re.compile(r"\bpip install\b|=sk-")
SERVES = re.compile(r"(?:\w+=\S+ )*(?:uvicorn|gunicorn|flask|turnwise serve)\b")
PID, PORT = "4711", "8000"
"""The process and the port of a server, as pages write them."""


@dataclass(frozen=True)
class Block:
    """A block of a page. `shown` is what the page says that its commands print, None if it does not say."""

    language: str
    text: str
    shown: str | None = None

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if it is one."""
        named = FILE.match(self.text)
        return named[1] if named else None

    @property
    def is_cell(self) -> bool:
        """Whether it is a cell of a notebook."""
        return self.language == "python" and self.text.startswith("# In [")

    @property
    def is_run(self) -> bool:
        """Whether it holds commands that are to be run."""
        return self.language == "sh" and not LEFT_OUT.search(self.text)


def blocks_of(page: Page) -> Iterator[Block]:
    """Yield the blocks of a page in order, what is printed with what prints it."""
    found: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", page.text, re.DOTALL | re.MULTILINE)
    for (language, text), (following, output) in zip(found, [*found[1:], ("", "")], strict=True):
        if language != "text":
            yield Block(language, text, output if following == "text" else None)


def matches(shown: str, printed: str) -> bool:
    """Whether this was printed, apart from spaces at the ends of lines."""
    lines = [r"(?:.*\n)*?" if line == "…" else _line(line) for line in shown.splitlines()]
    return re.fullmatch("".join(lines), "".join(f"{line.rstrip()}\n" for line in printed.splitlines())) is not None


def _line(line: str) -> str:
    return r".*".join(map(re.escape, line.rstrip().split("…"))) + r"\n"


class Walk:
    """A reader with a folder and two terminals. Use it as a context: at the end its server is killed."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.server: ServerProcess | None = None
        self.changes: dict[str, str] = {}
        """What is written otherwise in the files than the page has it, such as the seconds of a pause."""
        binaries = Path(sys.executable).parent
        # pytest has the plugins that the reader has.
        of_pytest = {"PYTEST_ADDOPTS": "-p no:cacheprovider", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        plain = {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **of_pytest}
        self._environment = {"PATH": f"{binaries}:{os.environ['PATH']}", **plain, **environment}
        self._resources = ExitStack()
        self._port = 0

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def follow(self, page: Page) -> None:
        """Do what the page says, from its first block to its last. Raises `AssertionError` where the reader would see
        something else than the page shows."""
        blocks = list(blocks_of(page))
        for place, block in enumerate(blocks):
            following = next((each for each in blocks[place + 1 :] if each.is_run), None)
            self.take(block, following)

    def take(self, block: Block, following: Block | None = None) -> None:
        """Take a block: write its file, or run its commands. `following` are the commands behind it. A cell of a
        notebook is passed over: `run_cells` runs them."""
        if block.is_cell:
            return
        if block.file is not None:
            self._write(block.file, block.text)
        elif block.language == "python":
            ran = run_block(self.folder, block.text, **self._environment)
            assert (ran.returncode, ran.stderr) == (0, ""), f"{block.text}\nexits with {ran.returncode}:\n{ran.stderr}"
        elif block.is_run and SERVES.match(block.text):
            self._serve(block)
        elif block.is_run:
            self._run(block, following)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for before, after in self.changes.items():
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")

    def _serve(self, block: Block) -> None:
        self.stop()
        command = block.text.strip().replace(PORT, str(self._port))
        if PORT not in block.text:
            command += f" --port {self._port}"
        self.server = self._resources.enter_context(
            started(["bash", "-c", f"exec {command}"], self.folder, self._environment)
        )
        self._port = self.server.port
        if block.shown is not None:
            self._until_shown(block, lambda: "".join(self._of_server().lines[: len(str(block.shown).splitlines())]))

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._of_server().url

    def kill(self) -> None:
        """Kill the server, as `kill -9` does."""
        self._of_server().kill()

    def stop(self) -> None:
        """Stop the server, as Ctrl-C does."""
        if self.server is not None and self.server.process.poll() is None:
            self.server.process.send_signal(signal.SIGINT)
            self.server.wait()

    def _of_server(self) -> ServerProcess:
        assert self.server is not None, "No server runs."
        return self.server

    def _run(self, block: Block, following: Block | None) -> None:
        before, kills, _ = block.text.partition("kill -9")
        commands = _without_sleep(before)
        if commands:
            shown = None if kills else block.shown
            waits = commands != before or "--max-time" in commands
            self._check(Block("sh", commands, shown), repeat=waits)
        if kills:
            if following is not None and following.shown is not None:
                self._check(following, repeat=True)
            self.kill()

    def _check(self, block: Block, *, repeat: bool) -> None:
        if block.shown is not None and repeat:
            attempts = count(1)
            self._until_shown(block, lambda: self.printed(_longer(block.text, next(attempts))))
            return
        printed = self.printed(block.text)
        assert block.shown is None or matches(self._here(block.shown), printed), _difference(block, printed)

    def _until_shown(self, block: Block, look: Callable[[], str]) -> None:
        end, printed = time.monotonic() + PATIENCE, ""
        while time.monotonic() < end:
            printed = look()
            if matches(self._here(block.shown or ""), printed):
                return
            time.sleep(0.1)
        raise AssertionError(_difference(block, printed))

    def printed(self, commands: str) -> str:
        """Return what the commands print, to whichever of the two streams. They must succeed."""
        if "curl " in commands and not shutil.which("curl"):
            missing("curl is not installed: `apt-get install curl`.")
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._here(commands)],
            cwd=self.folder,
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        assert ran.returncode == 0, f"{commands}\nexits with {ran.returncode}:\n{ran.stdout}"
        return ran.stdout

    def _here(self, text: str) -> str:
        """The text with the process and the port of this server."""
        if self.server is None:
            return text
        return text.replace(PID, str(self.server.process.pid)).replace(f":{PORT}", f":{self._port}")


NOTEBOOK = """
import ast, asyncio, inspect, json, sys

async def main():
    names = {}
    for cell in json.load(sys.stdin):
        made = eval(compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(made):
            await made

asyncio.run(main())
"""
"""Runs cells one after the other in one event loop, where they may await, as a notebook does."""


def run_cells(cells: Sequence[Block], folder: Path) -> str:
    """Run the cells of a notebook in one process, and return what they print."""
    ran = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        cwd=folder,
        input=json.dumps([cell.text for cell in cells]),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout


def _without_sleep(commands: str) -> str:
    return re.sub(r"^sleep .*\n", "", commands, flags=re.MULTILINE)


def _longer(commands: str, attempt: int) -> str:
    """The commands, with so many times the seconds that the page gives a stream: the machine may be busy."""
    return re.sub(r"(?<=--max-time )\d+", lambda seconds: str(int(seconds[0]) * attempt), commands)


def _difference(block: Block, printed: str) -> str:
    return f"{block.text}\nshould print\n{block.shown}\nand prints\n{printed}"
