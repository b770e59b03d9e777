"""How long a program that uses turnwise takes to start, beside the least that a Python program takes.

A command that hesitates feels broken, and what it hesitates over is nearly always imports. So each figure is the wall
time of a new process, from its start until a person would see something: the end of the help, a prompt to type at, the
first word of an answer. The baseline is `python -c pass`, measured before each of the other processes in the same run.

    python benchmarks/startup.py                all parts, about half a minute
    python benchmarks/startup.py chat demo      some of them
    python benchmarks/startup.py --quick        each process once, to see that it works; its figures say little

The processes run from compiled modules, as those of an installed package do: pip compiles them when it installs. Here
each part lets its process run once before it measures.

How to read it: each line is one figure, its aim beside it, and whether it is met. Of several rounds the best one
counts, as everything else in them is the work of other programs. The aims in seconds hold for an idle machine; on a
busy one only the ratios to the baseline say something. An aim that is missed does not fail the program.

`chat` and `demo` run on a pseudo-terminal, as a person meets them, in a folder without a database.

| part | what it measures |
|---|---|
| imports | `import turnwise`, beside the two libraries that it may cost, and `from turnwise import Engine` |
| help | `turnwise --help` and `turnwise --version`, to their ends |
| chat | `turnwise chat`, until it prompts for a message |
| demo | `turnwise demo`, until it says what it is, and until the model's first word |
| first_word | a program that asks a model by `OpenAICompatible`, until the first word, beside one that uses httpx |
"""

from __future__ import annotations

import argparse
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import perf_counter

from figures import Figure, at_most, print_figures

SCRIPT = Path(sys.executable).with_name("turnwise")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "turnwise"]
ROUNDS = 5
SECONDS = 60.0
"""How long to wait for a process before it counts as hung."""

PROMPT = b"\x1b[0;36;1m> "
GREETING, FIRST_WORD = b"A conversation", b"This"

_SETTINGS = re.compile(r"TURNWISE_|.*_API_KEY$|NO_COLOR$|FORCE_COLOR$|PYTHONDONTWRITEBYTECODE$")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not _SETTINGS.match(name)},
    "TERM": "xterm-256color",
    "PROMPT_TOOLKIT_NO_CPR": "1",
}

Part = Callable[[int], Iterator[Figure]]


class Baseline:
    """The times of `python -c pass`, taken before each of the other processes."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def measure(self) -> None:
        """Take the time once more."""
        self._times.append(time_of([sys.executable, "-c", "pass"]))

    @property
    def seconds(self) -> float:
        """The best time."""
        return min(self._times)

    def __str__(self) -> str:
        return f"{self.seconds * 1e3:.0f} ms (of {len(self._times)}: up to {max(self._times) * 1e3:.0f} ms)"


BASELINE = Baseline()


def time_of(command: Sequence[str]) -> float:
    """The seconds until the process has ended. Raises `CalledProcessError` if it fails."""
    started = perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS, env=ENVIRONMENT)
    return perf_counter() - started


def times_until(command: Sequence[str], marks: Sequence[bytes]) -> list[float]:
    """The seconds until each of the marks was written on the terminal, one after the other; then the process is ended.

    Raises `RuntimeError` if one of them does not come.
    """
    with tempfile.TemporaryDirectory() as folder:
        master, slave = os.openpty()
        started = perf_counter()
        process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=ENVIRONMENT, start_new_session=True
        )
        os.close(slave)
        try:
            return list(_times_of_marks(master, marks, started))
        finally:
            process.kill()
            process.wait()
            os.close(master)


def _times_of_marks(terminal: int, marks: Sequence[bytes], started: float) -> Iterator[float]:
    written = b""
    for mark in marks:
        while mark not in written:
            written += _read(terminal)
        yield perf_counter() - started
        written = written.partition(mark)[2]


def _read(terminal: int) -> bytes:
    ready, _, _ = select.select([terminal], [], [], SECONDS)
    try:
        written = os.read(terminal, 65536) if ready else b""
    except OSError:  # how Linux reports that the process closed its end
        written = b""
    if not written:
        raise RuntimeError("the process ended, or hangs, before it wrote what it was started for")
    return written


def best_of(rounds: int, measure: Callable[[], float]) -> float:
    """The best of several rounds, in seconds. The baseline is measured before each of them. A first round, which does
    not count, compiles what is imported."""
    times = []
    if rounds > 1:
        measure()
    for _ in range(rounds):
        BASELINE.measure()
        times.append(measure())
    return min(times)


def ratio_of(seconds: float) -> str:
    """The time as a multiple of the baseline."""
    return f" ({seconds / BASELINE.seconds:.1f} × python)"


# --- the parts


def imports(rounds: int) -> Iterator[Figure]:
    """The public names of the package."""
    pure, stored, package, engine = (
        best_of(rounds, partial(time_of, [sys.executable, "-c", program]))
        for program in (
            "import pydantic, transitions",
            "import pydantic, sqlalchemy",
            "import turnwise",
            "from turnwise import Engine",
        )
    )
    beside, of_stored = package / pure, engine / stored
    yield at_most("import turnwise", beside, 1, "of pydantic, transitions", ratio_of(package), name="import-ratio")
    yield at_most(
        "from turnwise import Engine", of_stored, 1.3, "of pydantic, sqlalchemy", ratio_of(engine), name="import-engine"
    )


def help(rounds: int) -> Iterator[Figure]:
    """The list of commands, and the version."""
    for option in ("--help", "--version"):
        seconds = best_of(rounds, partial(time_of, [*COMMAND, option]))
        note, name = f" ({seconds * 1e3:.0f} ms)", f"{option.strip('-')}-ratio"
        yield at_most(f"turnwise {option}", seconds / BASELINE.seconds, 5, "× python", note, name=name)


def chat(rounds: int) -> Iterator[Figure]:
    """A new conversation in a new database."""
    if not hasattr(os, "openpty"):
        yield Figure("turnwise chat", "not measured: there is no pseudo-terminal")
        return
    seconds = best_of(rounds, lambda: times_until([*COMMAND, "chat"], [PROMPT])[0])
    yield at_most("turnwise chat, until its prompt", seconds, 1.5, "s", ratio_of(seconds), name="chat-ready")


def demo(rounds: int) -> Iterator[Figure]:
    """The first look."""
    if not hasattr(os, "openpty"):
        yield Figure("turnwise demo", "not measured: there is no pseudo-terminal")
        return
    greetings: list[float] = []

    def until_the_first_word() -> float:
        greeting, word = times_until([*COMMAND, "demo"], [GREETING, FIRST_WORD])
        greetings.append(greeting)
        return word

    seconds = best_of(rounds, until_the_first_word)
    yield at_most("turnwise demo, until the model's first word", seconds, 1, "s", ratio_of(seconds), name="demo-word")
    yield Figure("  until it says what it is", f"{min(greetings):.2f} s{ratio_of(min(greetings))}")


class _WordServer(BaseHTTPRequestHandler):
    """Streams one word in OpenAI's protocol."""

    def do_POST(self) -> None:
        """Answer whatever is asked."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b'data: {"choices":[{"delta":{"content":"Yes."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')

    def log_message(self, *details: object) -> None:
        """Print nothing."""


def first_word(rounds: int) -> Iterator[Figure]:
    """The first answer of a model, in a new process; litellm is not imported."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _WordServer)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        bare, asked = (
            best_of(rounds, partial(time_of, [sys.executable, "-c", program, url])) for program in (BARE, ASKED)
        )
    finally:
        server.shutdown()
    yield at_most("a first word over OpenAICompatible", asked, 1, "s", ratio_of(asked), name="first-word")
    yield Figure("  beside a request over httpx alone", f"{asked / bare:.1f} × {bare:.2f} s")


BARE = """
import os, sys, httpx
with httpx.stream("POST", f"{sys.argv[1]}/chat/completions", json={"messages": []}) as response:
    next(response.iter_lines())
    os._exit(0)
"""
ASKED = """
import asyncio, os, sys
from turnwise import Engine, OpenAICompatible

async def main():
    async with Engine.open("sqlite://", model=OpenAICompatible(sys.argv[1], None, "m")) as engine:
        async for update in (await engine.create()).stream("Is it?"):
            if update.type == "token":
                os._exit(0)

asyncio.run(main())
"""
"""Programs that end at the first word of an answer."""

PARTS: dict[str, Part] = {part.__name__: part for part in (imports, help, chat, demo, first_word)}


def main() -> None:
    """Print the figures of the parts asked for."""
    parser = argparse.ArgumentParser(description="How long a program that uses turnwise takes to start.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="each process once, to see that it works")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each figure")
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"there is no part called {', '.join(sorted(unknown))}")
    for name in given.parts or PARTS:
        print_figures(PARTS[name](1 if given.quick else ROUNDS), given.json)
    print_figures([Figure("python -c pass", str(BASELINE))], given.json)


if __name__ == "__main__":
    main()
