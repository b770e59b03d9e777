"""A process of a cluster, for tests that kill it: `python -m tests.support.cluster.member web URL FOLDER --lease 2`.

A `web` process takes requests over HTTP and performs nothing, a `worker` performs, and `both` does both. Each writes
what it does in the world into two files that all processes of the cluster share: the journal of
`turnwise.testing.crashes`, and a ledger of what tools have done.

The model does what the message says, one word after the other: `look note+pay ask talk spawn`. Words that are joined
are called side by side. So whatever process asks it goes on where the one before was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnwise import Engine, Speech, ToolContext, presets, tool
from turnwise.engine.settings import Settings
from turnwise.hosts.http import create_app, server
from turnwise.testing import FunctionLlm, RecordingChannel, call, calls, reply
from turnwise.testing.crashes import Journal, observed

JOURNAL, LEDGER = "journal.jsonl", "ledger.jsonl"
"""The files in the folder of the cluster: what `check_after_crashes` reads, and what the tools have done."""

QUESTIONS = [{"question": "When?", "header": "Time", "options": [{"label": "6:30 PM"}, {"label": "8:15 PM"}]}]
TASKS = ["note book", "look talk"]
"""What the sub-agents of `spawn` do: nothing that could be in doubt, since nobody looks at them."""

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "ask": {"questions": QUESTIONS},
    "spawn": {"tasks": TASKS},
    "talk": {"text": "One moment."},
}
NAMES = {"ask": "ask_user_question", "spawn": "spawn_agents"}
WORDS = ("look", "note", "pay", "book", "mail", "talk", "ask", "spawn")
"""What a message may ask for."""


def model(latency: float) -> FunctionLlm:
    """A model that answers after so many seconds."""

    async def answer(request: Any) -> Any:
        await asyncio.sleep(latency)
        said = [message["role"] for message in request.messages]
        newest = len(said) - 1 - said[::-1].index("user")
        rounds = [word for word in str(request.messages[newest]["content"]).split() if word.split("+")[0] in WORDS]
        done = said[newest:].count("assistant")
        if done == len(rounds):
            return reply(f"Done: {' '.join(rounds) or 'nothing'}.")
        return calls(*(call(NAMES.get(name, name), **ARGUMENTS.get(name, {})) for name in rounds[done].split("+")))

    return FunctionLlm(answer, name="obedient")


class Tools:
    """One tool of each crash contract. Those that may run once, or again, take so many seconds."""

    def __init__(self, ledger: Journal, seconds: float) -> None:
        self._ledger, self._seconds = ledger, seconds

    async def _work(self, context: ToolContext, name: str, seconds: float = 0.0) -> str:
        self._ledger.add("began", name, context.key, os.getpid())
        await asyncio.sleep(seconds)
        self._ledger.add("ended", name, context.key, os.getpid())
        return f"{name} is done."

    async def _look(self, context: ToolContext) -> str:
        return await self._work(context, "look")

    async def _note(self, context: ToolContext) -> str:
        return await self._work(context, "note", self._seconds)

    async def _pay(self, context: ToolContext) -> str:
        return await self._work(context, "pay", self._seconds)

    async def _mail(self, context: ToolContext) -> str:
        return await self._work(context, "mail")

    async def _book(self, context: ToolContext) -> str:
        return await self._work(context, "book", self._seconds)

    async def _was_booked(self, context: ToolContext) -> str:
        lines = map(json.loads, self._ledger.path.read_text(encoding="utf-8").splitlines())
        return "ran" if any(line[:3] == ["ended", "book", context.key] for line in lines) else "did_not_run"

    def given(self) -> list[Callable[..., Any] | str]:
        """The tools, as an engine takes them."""
        return [
            tool(name="look", description="Look.", crash="pure")(self._look),
            tool(name="note", description="Take a note.", crash="idempotent")(self._note),
            tool(name="pay", description="Pay.", crash="at_most_once")(self._pay),
            tool(name="mail", description="Send a mail.", crash="at_most_once", approval=True)(self._mail),
            tool(name="book", description="Book.", crash="reconcile", reconcile=self._was_booked)(self._book),
            *(talk, "ask_user_question", "spawn_agents"),
        ]


@tool(crash="idempotent", acts=("speech",), exclusive=True)
async def talk(text: str) -> Speech:
    """Say something to the user now."""
    return Speech(text=text, when="now")


def opened(url: str, folder: Path, given: argparse.Namespace, *, worker: bool) -> Engine:
    """The engine of a member of the cluster, not open yet."""
    settings = Settings(
        lease=given.lease, worker_slots=given.slots, database_connections=given.connections, tts_enabled=False
    )
    return Engine.open(
        url,
        worker=worker,
        model=model(given.latency),
        tools=Tools(Journal(folder / LEDGER), given.seconds).given(),
        channels=[RecordingChannel(name="phone")],
        policy=presets.talk().model_copy(update={"parallel": 2, "when_busy": "queue"}),
        settings=settings,
    )


async def serve(engine: Engine) -> None:
    """Take requests over HTTP until SIGTERM."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = create_app(engine)
    await server.serve(app, [listening], close_engine=engine.close, on_listening=lambda: print(address, flush=True))


async def work(engine: Engine) -> None:
    """Perform until SIGTERM."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with engine:
        print("ready", flush=True)
        await over.wait()


def options(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["web", "worker", "both"])
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds")
    parser.add_argument("--slots", type=int, default=50)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that a model takes")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds that a tool takes")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Be a member of the cluster until SIGTERM."""
    given = options(arguments)
    logging.basicConfig(format=f"%(asctime)s {os.getpid()} %(name)s %(levelname)s %(message)s", level=logging.WARNING)
    with observed(Journal(given.folder / JOURNAL)):
        engine = opened(given.url, given.folder, given, worker=given.role != "web")
        asyncio.run(work(engine) if given.role == "worker" else serve(engine))


if __name__ == "__main__":
    main(sys.argv[1:])
