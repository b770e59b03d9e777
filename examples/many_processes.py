"""Several processes share one database, and one of them is killed: `make demo-scale`.

It starts a PostgreSQL server in a temporary folder, a `turnwise serve` that takes requests and carries nothing out, and
two `turnwise worker`. Conversations begin over HTTP, and each of them runs a tool that takes seconds. In the middle of
that one worker is killed, as by a machine that fails, and the other one takes its conversations over. At the end the
program says whether everything was done once. It needs no key, and removes everything that it has made.

    python examples/many_processes.py
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import httpx
from rich.console import Console
from rich.text import Text

from turnwise import Engine, ToolContext, tool
from turnwise.testing.postgres_server import NoPostgres, PostgresServer

CONVERSATIONS = 12
MESSAGE = "A table for two tonight, somewhere Japanese"
TOOL_SECONDS = 3.0
LEASE = 3.0
"""Seconds without a sign of life after which a worker counts as dead. 15 by default; here nobody wants to wait."""

LIMIT = 90.0
"""Seconds after which the program gives up, on the slowest machine."""

LEDGER = "DEMO_LEDGER"
"""The environment variable that names a file into which each run of the tool writes when it begins, so that this
program sees where it runs."""


@tool(crash="idempotent")
async def find_table(context: ToolContext, cuisine: str, time: str, party: int) -> str:
    """Look for a free table."""
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{context.conversation_id} {os.getpid()} {context.key}\n")
    await asyncio.sleep(TOOL_SECONDS)
    return f"Kikunoi has a table for {party} at {time}."


@dataclass
class Program:
    """A process of `turnwise`, and what it prints on stderr."""

    process: asyncio.subprocess.Process
    errors: Path

    async def first_line(self) -> str:
        """Return what it prints when it is ready."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().strip()
        if not line:
            raise RuntimeError(f"A process of turnwise did not start: {self.errors.read_text().strip()}")
        return line


@dataclass
class Scene:
    """What is shown: the conversations in the order in which they began, and what is known of each."""

    console: Console
    workers: Mapping[int, str]
    conversations: list[str] = field(default_factory=list)
    began: float = field(default_factory=monotonic)
    dead: set[int] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    places: dict[str, int] = field(default_factory=dict)
    """In which process the tool of a conversation runs, or ran last."""
    killed: float = 0.0
    """When a worker was killed."""
    taken_over: int = 0
    has_taken_over: bool = False
    runs: int = 0
    """How many runs of the tool have been read."""
    shown: str = ""

    def read(self, ledger: Path) -> None:
        """Read where the tools run. Say when the first one begins again that ran in a process which is dead."""
        new = ledger.read_text().splitlines()[self.runs :]
        self.runs += len(new)
        for conversation_id, process, _ in map(str.split, new):
            self.taken_over += self.places.get(conversation_id) in self.dead
            self.places[conversation_id] = int(process)
        if self.taken_over and not self.has_taken_over:
            self.has_taken_over = True
            self.say(f"the other worker takes over, {monotonic() - self.killed:.1f} s after that")

    def mark(self, conversation_id: str) -> str:
        """One character for a conversation."""
        place = self.places.get(conversation_id)
        if conversation_id in self.ended:
            return "✓"
        if place is None:
            return "·"
        return "x" if place in self.dead else self.workers[place]

    def show(self) -> None:
        """Print a row, if it is another one than the last."""
        row = " ".join(map(self.mark, self.conversations))
        if row != self.shown:
            self.shown = row
            self.say(row)

    def say(self, text: str) -> None:
        """Print a line with the time in front of it."""
        line = Text(f"{monotonic() - self.began:6.1f} s   {text}")
        for mark, style in {"✓": "green", "x": "bold red", "1": "cyan", "2": "yellow"}.items():
            if text == self.shown:
                line.highlight_words([mark], style)
        self.console.print(line)

    def held_by(self, process: int) -> list[str]:
        """The conversations whose tool runs in a process."""
        return [each for each in self.conversations if self.places.get(each) == process and each not in self.ended]


@asynccontextmanager
async def turnwise(folder: Path, *arguments: str) -> AsyncIterator[Program]:
    """Run a command of turnwise in a process of its own, which ends with this block."""
    errors = folder / f"{arguments[0]}-{len(list(folder.iterdir()))}.log"
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "turnwise", *arguments),
            cwd=Path(__file__).parent,  # where the tool is found
            env={**os.environ, LEDGER: str(folder / "ledger")},
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for this program, which then ends the others
        )
    try:
        yield Program(process, errors)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def begin_conversations(client: httpx.AsyncClient, scene: Scene) -> None:
    """Begin the conversations, each with the same message."""

    async def begin() -> str:
        opened = (await client.post("/conversations", json={})).raise_for_status().json()
        await client.post(f"/conversations/{opened['id']}/messages", json={"text": MESSAGE})
        return str(opened["id"])

    scene.conversations += await asyncio.gather(*(begin() for _ in range(CONVERSATIONS)))


async def watch(client: httpx.AsyncClient, scene: Scene, ledger: Path, until: str) -> None:
    """Show what happens until worker 1 runs some tools (`busy`), or until all turns have ended (`ended`)."""
    while monotonic() - scene.began < LIMIT:
        listed = (await client.get("/conversations")).raise_for_status().json()
        scene.read(ledger)
        states = {each["id"]: each["state"] for each in listed["conversations"]}
        scene.ended = {each for each, state in states.items() if state == "idle" and each in scene.places}
        scene.show()
        first = next(iter(scene.workers))
        if len(scene.ended) == CONVERSATIONS or (until == "busy" and len(scene.held_by(first)) >= CONVERSATIONS // 3):
            return
        await asyncio.sleep(0.25)
    raise RuntimeError("This takes too long here; the machine may be too busy.")


async def kill(scene: Scene, worker: Program) -> None:
    """Kill a worker as a failing machine would, without a word of warning."""
    process = worker.process.pid
    scene.say(f"kill -9 worker 1 (process {process}), in the middle of {len(scene.held_by(process))} tools")
    worker.process.kill()
    await worker.process.wait()
    scene.killed = monotonic()
    scene.dead.add(process)


async def demonstrate(console: Console, url: str, folder: Path) -> bool:
    """Hold the conversations, kill a worker, and return whether everything was done once."""
    ledger = folder / "ledger"
    ledger.touch()
    common = ("--db", url, "--tools", "many_processes:find_table", "--lease", str(LEASE))
    async with AsyncExitStack() as running:
        serve = await running.enter_async_context(turnwise(folder, "serve", "--no-worker", "--port", "0", *common[:4]))
        slots = str(CONVERSATIONS // 2)
        workers = [
            await running.enter_async_context(turnwise(folder, "worker", "--slots", slots, *common)) for _ in "12"
        ]
        address = (await serve.first_line()).split()[-1]
        console.print(f"serve      process {serve.process.pid} takes requests at {address}, and leaves the work to:")
        for number, worker in enumerate(workers, start=1):
            await worker.first_line()
            console.print(f"worker {number}   process {worker.process.pid} looks after up to {slots} conversations")
        client = await running.enter_async_context(httpx.AsyncClient(base_url=address, timeout=30))
        console.print(
            f"\n{CONVERSATIONS} conversations ask for “{MESSAGE}”. A tool looks, for {TOOL_SECONDS:g} s.\n\n"
            "  ·    waits for a worker\n"
            "  1 2  its tool runs in this worker\n"
            "  x    its worker was killed\n"
            "  ✓    answered\n"
        )
        scene = Scene(console, {worker.process.pid: str(number) for number, worker in enumerate(workers, start=1)})
        await begin_conversations(client, scene)
        await watch(client, scene, ledger, until="busy")
        await asyncio.sleep(TOOL_SECONDS / 3)
        await kill(scene, workers[0])
        await watch(client, scene, ledger, until="ended")
        return await judge(console, url, scene, ledger.read_text().splitlines())


async def judge(console: Console, url: str, scene: Scene, runs: Sequence[str]) -> bool:
    """Say what was done, and return whether it was done once."""
    began = Counter(run.split()[2] for run in runs)
    statuses: Counter[str] = Counter()
    differing = 0
    async with Engine.open(url, read_only=True) as engine:
        for conversation_id in scene.conversations:
            conversation = await engine.get(conversation_id)
            statuses.update(turn.status for turn in await conversation.turns())
            differing += (await conversation.replay()).divergence is not None
    again = sum(count - 1 for count in began.values())
    console.print(f"\n{statuses['completed']} of {CONVERSATIONS} turns are completed, none of them twice.")
    console.print(
        f"{scene.taken_over} conversations were taken over: after {LEASE:g} s without a sign of life a worker is dead."
    )
    console.print(f"{again} calls of the tool began again, under the same keys, since nobody knew their ends.")
    console.print(f"{CONVERSATIONS} logs were replayed, with {differing or 'no'} divergence.")
    return statuses == {"completed": CONVERSATIONS} and not differing


async def main() -> int:
    """Run the demonstration, and return the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with TemporaryDirectory(prefix="turnwise-") as folder, PostgresServer.start() as server:
            version = ".".join(map(str, server.installation.version))
            console.print(f"PostgreSQL {version} runs in {server.folder}, until this ends")
            return 0 if await demonstrate(console, server.url("postgres"), Path(folder)) else 1
    except (NoPostgres, RuntimeError, httpx.HTTPError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("Stopped; everything that was started has ended.")
        sys.exit(130)
