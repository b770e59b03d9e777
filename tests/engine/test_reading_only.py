"""An engine that was opened to look at a database: it shows what is stored, and changes nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from turnwise import ConfigurationError, Conversation, Engine, Refused
from turnwise.testing import FunctionLlm, ScriptedLlm, call

from ..support.engine_scenarios import Gate, until

WRITES = {
    "send": ("x",),
    "answer": ({},),
    "decline": (),
    "cancel": (),
    "withdraw": ("m-1",),
    "approve": ("c-1", True),
    "resolve": ("c-1", "ran"),
    "retry": (),
    "set_title": ("Dinner",),
    "set_metadata": ({"a": 1},),
    "set_system": ("Be brief.",),
    "compact": (),
    "close": (),
    "fork": (),
}
"""Requests, with arguments for each."""


async def code_of(method: Any, *arguments: Any) -> str:
    """Return the code with which a request is refused."""
    with pytest.raises(Refused) as caught:
        await method(*arguments)
    return caught.value.code


async def seen(conversation: Conversation) -> list[Any]:
    """Return all that a conversation shows."""
    updates = conversation.updates()
    snapshot = await anext(updates)
    await updates.aclose()
    turns = [(turn.status, turn.reply) for turn in await conversation.turns()]
    return [await conversation.transcript(), turns, (await conversation.replay()).divergence, snapshot.state.type]


async def test_it_shows_what_is_stored_and_refuses_requests(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beside the engine that runs: lists, transcripts, turns, replays, snapshots; each request is `read_only`, and
    nothing is stored or logged."""
    async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
        conversation = await engine.create(title="Dinner")
        await conversation.send("Hello")
        before = await conversation.events()
        caplog.set_level(logging.WARNING)

        async with Engine.open(database, read_only=True) as looking:
            found = await looking.get(conversation.id)
            shown = await seen(found)
            listed = [(each.id, each.title) for each in await looking.list()]
            codes = {name: await code_of(getattr(found, name), *given) for name, given in WRITES.items()}
            codes |= {"create": await code_of(looking.create), "delete": await code_of(looking.delete, found.id)}
            await conversation.send("And now?")
            await looking.refresh(found.id)
            followed = len(await found.turns())

        assert shown[1:] == [[("completed", "Yes.")], None, "idle"]
        assert [message.text for message in shown[0]] == ["Hello", "Yes."]
        assert listed == [(conversation.id, "Dinner")]
        assert codes == dict.fromkeys(codes, "read_only")
        assert (await conversation.events())[: len(before)] == before
        assert followed == 2
        assert caplog.records == []


async def test_a_turn_under_way_is_left_to_production(database: Path) -> None:
    """What a crash interrupted is neither taken over nor failed: the next engine goes on with it."""
    gate = Gate()

    async def hold() -> str:
        await gate()
        return "held"

    engine = await Engine.open(database, model=ScriptedLlm([call("hold")]), tools=[hold])
    conversation = await engine.create()
    await conversation.send("Hold it", wait=False)
    await until(lambda: conversation.state.type == "tool_executing")
    before = await conversation.events()

    async with Engine.open(database, read_only=True) as looking:
        found = await looking.get(conversation.id)
        state = found.state.type
        await looking.delivered()
    after = await conversation.events()
    await engine.close()

    assert state == "tool_executing"
    assert after == before


def test_a_store_that_is_given_is_opened_by_its_owner() -> None:
    """The engine cannot open it for reading."""
    store: Any = object()
    with pytest.raises(ConfigurationError):
        Engine.open(store=store, read_only=True)


LOOK = """
import os, sys, asyncio, encodings.idna
from turnwise import Engine
path = sys.argv[1]
with Engine.open_blocking(path) as engine:
    engine.create(title="Dinner")
    engine.list()
with Engine.open_blocking(path + "2") as other, Engine.open_blocking(path + "2", read_only=True) as engine:
    engine.list()  # all that is needed is imported
for name in os.listdir(os.path.dirname(path)):
    if name != os.path.basename(path):
        os.unlink(os.path.join(os.path.dirname(path), name))
os.chmod(path, 0o444)
os.chmod(os.path.dirname(path), 0o555)
if os.getuid() == 0:
    os.setuid(65534)
with Engine.open_blocking(path, read_only=True) as engine:
    print([each.title for each in engine.list()], engine.get(engine.list()[0].id).state.type)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions.")
def test_a_file_that_may_only_be_read() -> None:
    """In a folder in which nothing can be made: a mounted backup, for example. No file is left beside it."""
    with TemporaryDirectory(dir="/tmp") as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        arguments = [sys.executable, "-c", LOOK, str(folder / "dinner.db")]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        left = [file.name for file in folder.iterdir()]
        folder.chmod(0o755)

    assert (ended.stdout, left) == ("['Dinner'] idle\n", ["dinner.db"]), ended.stderr
