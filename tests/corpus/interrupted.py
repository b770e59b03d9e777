"""What two processes left that were killed, one after the other: `interrupted.db`.

    python -m tests.corpus.interrupted DATABASE first|second

begins conversations, or takes over those that the first process left; says `ready` when each has come as far as it can;
and then waits to be killed.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from turnwise import Engine, Policy, ToolContext, presets, tool
from turnwise.effects.channels.port import Delivery
from turnwise.effects.model.port import ModelRequest
from turnwise.states import ToolResult
from turnwise.states.policy import Questions, Recovery, Retry
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, call, calls, failure, reply

from .participants import TOOLS
from .scenes import ASSISTANT, ask, id_of


@tool(crash="pure")
async def look(where: str = "anywhere") -> str:
    """Look for a free table."""
    return await _hang()


@tool(crash="idempotent")
async def note(text: str, context: ToolContext) -> str:
    """Take a note."""
    return await _hang()


async def was_booked(table: int) -> Any:
    """What is known of a table: 1 was booked, 2 was not, of 3 nobody knows, of 4 it takes long to find out, and of any
    other one it has a confirmation."""
    return (
        await _hang()
        if table == 4
        else {1: "ran", 2: "did_not_run", 3: "unknown"}.get(table, ToolResult(text=f"Table {table} is booked."))
    )


@tool(crash="reconcile", reconcile=was_booked)
async def book(table: int) -> str:
    """Book a table."""
    return await _hang()


@tool
async def pay(amount: int) -> str:
    """Pay, whoever wants it stopped."""
    while True:
        with suppress(asyncio.CancelledError):
            await _hang()


async def _hang() -> Any:
    await asyncio.Event().wait()


class Scene(NamedTuple):
    """A conversation that comes no further than this state: what its model answers, in which it hangs at the end."""

    title: str
    state: str
    answers: tuple[Any, ...] = ()
    policy: Policy = ASSISTANT

    @property
    def id(self) -> str:
        """The id of the conversation."""
        return id_of(self.title)


_EVERY = calls(call("look"), call("note", text="x"), call("book", table=2), call("pay", amount=5))
_CLAIM = call("mark_work_complete", summary="Booked.")
_DOUBTS = calls(call("pay", amount=1), call("pay", amount=2), call("look"))
_SUMMARY = presets.explicit_response().replace(summarize=True, verify=0)

FIRST = (
    Scene("A model request in flight, for the second time", "llm_requesting"),
    Scene("Died too often", "llm_requesting", (), ASSISTANT.replace(recovery=Recovery(resumes=0))),
    Scene("In doubt, as the second process left it", "tool_executing", (call("pay", amount=5),)),
    Scene("Calls in doubt beside one that runs", "tool_executing", (_DOUBTS,), ASSISTANT.replace(parallel=3)),
    Scene("In doubt, and a person had it run again", "tool_executing", (call("pay", amount=5),)),
    Scene("In doubt, and then cancelled", "tool_executing", (call("pay", amount=5),)),
    Scene("The tool said that it ran", "tool_executing", (call("book", table=1),)),
    Scene("The tool said that it ran, with a result", "tool_executing", (call("book", table=5),)),
    Scene("The tool said that it did not run", "tool_executing", (call("book", table=2),)),
    Scene("The tool did not know whether it ran", "tool_executing", (call("book", table=3),)),
    Scene("The tool was being asked whether it ran", "tool_executing", (call("book", table=4),)),
)
"""What the first process leaves."""

SECOND = (
    Scene("A pure tool in flight", "tool_executing", (call("look"),)),
    Scene("An idempotent tool in flight", "tool_executing", (call("note", text="x"),)),
    Scene("A tool in flight that can be asked", "tool_executing", (call("book", table=2),)),
    Scene("A tool in flight that must not run twice", "tool_executing", (call("pay", amount=5),)),
    Scene("Tools of every contract in flight", "tool_executing", (_EVERY,), ASSISTANT.replace(parallel=4)),
    Scene("A retry waits", "retry_waiting", (failure("server_error"),), ASSISTANT.replace(retry=Retry(base=30))),
    Scene("A question is open", "awaiting_user_response", (ask("When?"),)),
    Scene(
        "A question is open, until its deadline",
        "awaiting_user_response",
        (ask("When?"),),
        ASSISTANT.replace(questions=Questions(deadline=60)),
    ),
    Scene("An approval is open", "awaiting_approval", (call("order", dish="soup"),)),
    Scene("A check in flight", "verifying", (call("respond_to_user", text="Hi."), _CLAIM), presets.explicit_response()),
    Scene("A summary in flight", "summarizing", (call("respond_to_user", text="Hi."), _CLAIM), _SUMMARY),
    Scene("Condensing, within a turn", "compacting", (reply("One."), failure("context_window"))),
    Scene("Condensing, at rest", "compacting", (reply("One."),)),
    Scene("Being cancelled", "cancelling", (call("pay", amount=5),)),
    Scene("Being closed", "cancelling", (call("pay", amount=5),)),
    Scene("A model request in flight, and messages that wait", "llm_requesting", (), ASSISTANT),
    Scene("A reply on its way to the phone", "idle", (reply("Hello."),)),
)
"""What the second process begins."""

AFTERWARDS: Mapping[str, str] = {
    "A model request in flight, for the second time": "llm_requesting",
    "Died too often": "failed",
    "In doubt, as the second process left it": "in_doubt",
    "Calls in doubt beside one that runs": "in_doubt",
    "In doubt, and a person had it run again": "in_doubt",
    "In doubt, and then cancelled": "in_doubt",
    "The tool said that it ran": "llm_requesting",
    "The tool said that it ran, with a result": "llm_requesting",
    "The tool said that it did not run": "tool_executing",
    "The tool did not know whether it ran": "in_doubt",
    "The tool was being asked whether it ran": "tool_executing",
}
"""The states in which the second process leaves what it took over, before a person does something."""


class _Model:
    """Answers each conversation by its script, and then no more. What is asked besides a conversation's own requests
    is never answered."""

    def __init__(self, scenes: tuple[Scene, ...]) -> None:
        self._answers = {scene.id: list(scene.answers) for scene in scenes}

    async def __call__(self, request: ModelRequest) -> Any:
        answers = self._answers.get(request.conversation_id, [])
        return answers.pop(0) if answers and request.purpose == "converse" else await _hang()


async def _phone(delivery: Delivery) -> None:
    if delivery.text != "One.":
        await _hang()


def _engine(database: Path, scenes: tuple[Scene, ...]) -> Engine:
    hanging = {each.name: each for each in (look, note, book, pay)}
    known = [hanging.get(getattr(each, "name", ""), each) for each in TOOLS]
    channels = [RecordingChannel(name="screen"), RecordingChannel(_phone, name="phone")]
    model = FunctionLlm(_Model(scenes), name="default")
    return Engine.open(database, model=model, tools=known, channels=channels, clock=ManualClock())


async def _until(engine: Engine, states: Mapping[str, str]) -> None:
    while {one.id: one.state for one in await engine.list() if one.id in states} != states:
        await asyncio.sleep(0.02)


async def _begin(engine: Engine, scenes: tuple[Scene, ...]) -> None:
    for scene in scenes:
        conversation = await engine.create(conversation_id=scene.id, title=scene.title, policy=scene.policy)
        await conversation.send("Hello", wait=False)


async def first(database: Path) -> None:
    """Begin what the second process is to take over."""
    async with _engine(database, FIRST) as engine:
        await _begin(engine, FIRST)
        await _until(engine, {scene.id: scene.state for scene in FIRST})
        await _wait_for_the_end()


async def second(database: Path) -> None:
    """Take over what the first process left, and begin more."""
    async with _engine(database, SECOND) as engine:
        await _until(engine, {id_of(title): state for title, state in AFTERWARDS.items()})
        again = await engine.get(id_of("In doubt, and a person had it run again"))
        await again.resolve(again.state.call.call_id, "again", wait=False)  # type: ignore[union-attr]
        await (await engine.get(id_of("In doubt, and then cancelled"))).cancel()
        await _begin(engine, SECOND)
        condensed = await engine.get(id_of("Condensing, within a turn"))
        for each in (condensed, resting := await engine.get(id_of("Condensing, at rest"))):
            await _until(engine, {each.id: "idle"})
        await condensed.send("And then?", wait=False)
        await resting.compact(wait=False)
        for title in ("Being cancelled", "Being closed"):
            await _until(engine, {id_of(title): "tool_executing"})
        await (await engine.get(id_of("Being cancelled"))).cancel(wait=False)
        await (await engine.get(id_of("Being closed"))).close(wait=False)
        waits = await engine.get(id_of("A model request in flight, and messages that wait"))
        for text, way in (("Two", "queue"), ("Three", "steer")):
            await waits.send(text, when_busy=way, wait=False)  # type: ignore[arg-type]
        await _until(engine, {scene.id: scene.state for scene in SECOND})
        await _wait_for_the_end()


async def _wait_for_the_end() -> None:
    print("ready", flush=True)
    await _hang()


async def play(database: Path) -> None:
    """Write the database: let two processes work on it, and kill each."""
    for part in ("first", "second"):
        command = [sys.executable, "-m", "tests.corpus.interrupted", str(database), part]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            process.kill()
        if said != "ready\n":
            raise RuntimeError(f"The {part} process came to no end.")
    with closing(sqlite3.connect(database)) as connection:  # merges the log that they left beside the file
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


if __name__ == "__main__":
    asyncio.run({"first": first, "second": second}[sys.argv[2]](Path(sys.argv[1])))
