"""Updates of real conversations as JSON, for tests of the page's projection that run in Node.js.

A recording is a list of watchers of one conversation. Each has the id `after` which it began, and the updates that it
was given, as they are sent to clients. The first of them was given all updates.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnwise import Engine, File, ToolContext, ToolError, presets, tool
from turnwise.effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.engine.conversation import Conversation
from turnwise.states import Citation
from turnwise.states.policy import Policy, Retry
from turnwise.testing import RecordingChannel, call, calls, failure, reply

from ..pictures import PDF, PNG

QUESTION = {
    "question": "Which time?",
    "header": "Time",
    "options": [{"label": "6:30 PM", "description": "at the counter"}, {"label": "8:15 PM"}],
}
PATIENT = Policy(when_busy="queue", retry=Retry(base=0))


class Script:
    """A model that plays a script: answers, failures, and texts that are shown piece by piece. An `asyncio.Event` in
    the script is waited for; a function is called."""

    name = "script"

    def __init__(self, *steps: Any) -> None:
        self._steps = list(steps)

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Play the script up to the next answer or failure."""
        while True:
            match self._steps.pop(0):
                case str() as piece:
                    show(Token(piece))
                case Token() as token:
                    show(token)
                case asyncio.Event() as gate:
                    await gate.wait()
                case LlmFailure() as failed:
                    raise failed
                case answer:
                    return answer


@tool(crash="pure")
async def find_table(party: int, context: ToolContext) -> str:
    """Look for a free table."""
    context.progress("asking Kikunoi")
    if party > 4:
        raise ToolError("No table has so many seats.")
    return f"A table for {party} at Kikunoi."


@tool(crash="pure")
async def draw_table() -> list[object]:
    """Draw the table."""
    return ["The table.", File(PNG, name="table.png")]


@tool(crash="pure")
async def wait_for_ever() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


class Recording:
    """The updates that watchers of one conversation were given."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.watchers: list[dict[str, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def watch_all(self) -> None:
        """Add a watcher that is given every update of the conversation."""
        self._watch("0.0")

    async def watch(self, after: str | None = None) -> None:
        """Add a watcher, and return when it was given its first update."""
        await self._watch(after).wait()

    def _watch(self, after: str | None) -> asyncio.Event:
        updates: list[dict[str, Any]] = []
        self.watchers.append({"after": after, "updates": updates})
        begun = asyncio.Event()

        async def collect() -> None:
            async for update in self.conversation.updates(after=after):
                updates.append({"type": update.type, "id": update.id, "data": update.data})
                begun.set()

        self._tasks.append(asyncio.create_task(collect()))
        return begun

    async def shown(self, watcher: int, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Return when this watcher was given an update that fulfils the condition."""
        while not any(map(condition, self.watchers[watcher]["updates"])):
            await asyncio.sleep(0)

    async def end(self) -> dict[str, Any]:
        """Return the recording as JSON, once its engine is closed."""
        await asyncio.gather(*self._tasks)
        return {"textIsThought": self.conversation.policy.text == "thought", "watchers": self.watchers}


@asynccontextmanager
async def recorded(
    folder: Path, name: str, model: Script, policy: Policy = PATIENT, messages: Sequence[dict[str, Any]] = ()
) -> AsyncIterator[tuple[Conversation, Recording]]:
    """Yield a new conversation with a recording of it, which is written into the folder at the end."""
    tools = [find_table, draw_table, wait_for_ever, "ask_user_question", "talk"]
    async with Engine.open("sqlite://", model=model, tools=tools, channels=[RecordingChannel()]) as engine:
        conversation = await engine.create(policy=policy, messages=messages)
        recording = Recording(conversation)
        recording.watch_all()
        yield conversation, recording
        await engine.delivered()
        await recording.watch()
        turns = [turn.data for turn in await conversation.turns()]
    (folder / f"{name}.json").write_text(json.dumps({**await recording.end(), "turns": turns}))


async def record_all(folder: Path) -> None:
    """Record one conversation of each kind into the folder."""
    await asyncio.gather(
        _tools(folder),
        _talk(folder),
        _cut(folder),
        _queued(folder),
        _cancelled(folder),
        _failed(folder),
        _given(folder),
        _edited(folder),
        _files(folder),
        _stopped(folder),
    )


async def _tools(folder: Path) -> None:
    model = Script(
        Token("Let me ", "thinking"),
        Token("look.", "thinking"),
        "I look.",
        calls(call("find_table", party=2), call("find_table", party=9), text="I look."),
        call("ask_user_question", questions=[QUESTION]),
        "Booked for *6:30 PM*.",
        reply("Booked for *6:30 PM*.", thinking="Done."),
    )
    async with recorded(folder, "tools", model) as (conversation, _):
        await conversation.send("A table, please")
        await conversation.answer({"Which time?": "6:30 PM"})


async def _talk(folder: Path) -> None:
    model = Script(
        calls(call("talk", message="I am on it."), text="They are in a hurry."),
        call("talk", message="Your train leaves at nine."),
        reply("That is all they need."),
    )
    async with recorded(folder, "talk", model, presets.talk()) as (conversation, _):
        await conversation.send("When does my train leave?")


async def _cut(folder: Path) -> None:
    """Watchers join, and come back, in the middle of an answer that breaks off once and is written again."""
    first, second = asyncio.Event(), asyncio.Event()
    model = Script(
        "An answer ", "that", first, failure("server_error"),
        Token("Hm.", "thinking"), "The whole ", second, "answer.", reply("The whole answer.", thinking="Hm."),
    )  # fmt: skip
    async with recorded(folder, "cut", model) as (conversation, recording):
        await conversation.send("Tell me", wait=False)
        await recording.shown(0, lambda update: update["data"].get("text") == "that")
        await recording.watch()
        first.set()
        await recording.shown(0, lambda update: update["data"].get("text") == "The whole ")
        await recording.watch()
        await recording.watch(after="2.1")
        second.set()
        await conversation.wait()


async def _queued(folder: Path) -> None:
    gate = asyncio.Event()
    model = Script(gate, reply("One."), reply("Two."))
    async with recorded(folder, "queued", model) as (conversation, _):
        await conversation.send("one", message_id="m1", wait=False)
        await conversation.send("two", message_id="m2", wait=False)
        await conversation.send("never", message_id="m3", wait=False)
        await conversation.withdraw("m3")
        gate.set()
        await conversation.wait()
        await conversation.send("two", message_id="m2")


async def _cancelled(folder: Path) -> None:
    model = Script(call("wait_for_ever"))
    async with recorded(folder, "cancelled", model) as (conversation, recording):
        await conversation.send("Wait", wait=False)
        await recording.shown(0, lambda update: update["type"] == "tool")
        await recording.watch()
        await conversation.cancel()


async def _given(folder: Path) -> None:
    """A conversation that goes on with one that was held elsewhere, with calls of tools."""
    made = {"id": "c1", "type": "function", "function": {"name": "find_table", "arguments": '{"party": 3}'}}
    messages = [
        {"role": "system", "content": "You find tables."},
        {"role": "user", "content": "A table"},
        {"role": "assistant", "content": "I look.", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": "At Nobu."},
        {"role": "assistant", "content": "At Nobu."},
        {"role": "user", "content": "Another"},
        {"role": "assistant", "content": "At Nobu."},
    ]
    async with recorded(folder, "given", Script(reply("At Kikunoi.")), messages=messages) as (conversation, _):
        await conversation.send("And another?")


async def _edited(folder: Path) -> None:
    """A conversation that goes back, also while a tool runs, and returns."""
    model = Script(reply("One."), call("find_table", party=2), reply("Two."), reply("Three."), call("wait_for_ever"))
    async with recorded(folder, "edited", model) as (conversation, recording):
        await conversation.send("one", message_id="m1")
        await conversation.send("two", message_id="m2")
        await conversation.edit("m2", "three", request_id="m3")
        await recording.watch()
        await conversation.send("Wait", wait=False)
        await recording.shown(0, lambda update: update["data"].get("name") == "wait_for_ever")
        await conversation.rewind("m3")
        await conversation.switch(2)


async def _files(folder: Path) -> None:
    async with recorded(folder, "files", Script(call("draw_table"), reply("There."))) as (conversation, _):
        await conversation.send("Draw this", files=[PNG, File(PDF, name="menu.pdf")])


async def _stopped(folder: Path) -> None:
    """An answer is stopped, and two that are spoken are interrupted, one of them behind the end of its turn."""
    source = Citation(url="https://example.org/", title="A page")
    model = Script(
        "One, two, ", asyncio.Event(),
        ModelAnswer(content="Three. Four.", citations=(source,)),
        call("talk", message="Five. Six."), reply("Seven. Eight."),
        "Nine. Ten.", asyncio.Event(),
    )  # fmt: skip
    async with recorded(folder, "stopped", model) as (conversation, recording):
        await conversation.send("Count", wait=False)
        await recording.shown(0, lambda update: update["data"].get("text") == "One, two, ")
        await conversation.cancel()
        await conversation.send("On")
        await conversation.cancel(heard="three")
        await conversation.send("Talk")
        await conversation.send("And?", when_busy="interrupt", heard="five", wait=False)
        await recording.shown(0, lambda update: update["data"].get("text") == "Nine. Ten.")
        await recording.watch()
        await conversation.cancel(heard="nine")


async def _failed(folder: Path) -> None:
    model = Script(failure("authentication", "The key is wrong."), reply("Now it works."))
    async with recorded(folder, "failed", model) as (conversation, _):
        await conversation.send("Hello")
        await conversation.retry()
