"""Hostile input at every door: refused with a typed error before anything is written.

What is refused leaves every row of the file as it was, and the conversation goes on. Doors whose arguments
`test_hostile` knows better are here for what stands in the file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import call_of
from turnwise import Conversation, Engine, Policy, TurnwiseError, tool
from turnwise.states import AgentMessage, LlmResponse, PolicyChanged, UserCancel, UserMessage
from turnwise.states.values.files import FileReference
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing.doubles import NOON

from ..support.engine_scenarios import QUESTION

pytestmark = pytest.mark.faults


def nested(depth: int) -> Any:
    """Return a deeply nested list."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    """Return a list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


NASTY: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "a huge number": 10**5_000,
    "no number": float("nan"),
    "bytes": b"\xff\x00",
    "an object": object(),
    "a class": Policy,
    "half a character": "\ud800",
    "two megabytes": "x" * 2_000_000,
    "a generator": (each for each in ()),
    "deep": nested(100_000),
    "endless": endless(),
    "a dictionary of nonsense": {5: object(), None: float("inf")},
    "a dictionary of half characters": {"\udfff": "\ud800"},
    "many": ["x"] * 300_000,
}
"""What no door takes, wherever it is handed in."""

Door = Callable[[Engine, Conversation, Any], Awaitable[Any]]


async def hand_in(engine: Engine, conversation: Conversation, value: Any) -> None:
    """Hand in an answer, as a dispatcher does."""
    engine.answer(conversation.id, value)


DOORS: dict[str, Door] = {
    "send": lambda engine, c, value: c.send(value),
    "send, id": lambda engine, c, value: c.send("Hi", message_id=value or 5),
    "send, files": lambda engine, c, value: c.send("Hi", files=[value]),
    "send, a broken file": lambda engine, c, value: c.send(
        "Hi", files=[FileReference.model_construct(sha256="", url=value, media_type="image/png", name="", size=0)]
    ),
    "send, when busy": lambda engine, c, value: c.send("Hi", when_busy=value or "never"),
    "withdraw": lambda engine, c, value: c.withdraw(value),
    "answer": lambda engine, c, value: c.answer(value),
    "answer, one": lambda engine, c, value: c.answer({"When?": value}),
    "answer, notes": lambda engine, c, value: c.answer({"When?": "6:30 PM"}, annotations=value or 5),
    "answer, a note": lambda engine, c, value: c.answer({"When?": "6:30 PM"}, annotations={"When?": {"notes": value}}),
    "approve": lambda engine, c, value: c.approve(value, True),
    "approve, allowed": lambda engine, c, value: c.approve(call_of(c, "call_1_0"), value),
    "approve, arguments": lambda engine, c, value: c.approve(call_of(c, "call_1_0"), True, arguments={"amount": value}),
    "resolve": lambda engine, c, value: c.resolve(value, "ran"),
    "resolve, verdict": lambda engine, c, value: c.resolve(call_of(c, "call_1_0"), value),
    "set policy": lambda engine, c, value: c.set_policy(value),
    "dispatch": lambda engine, c, value: c.dispatch(value),
    "dispatch, text": lambda engine, c, value: c.dispatch(
        UserMessage.model_construct(type="user_message", event_id="forged", at=NOON, text=value)
    ),
    "dispatch, id": lambda engine, c, value: c.dispatch(
        AgentMessage.model_construct(type="agent_message", event_id=value, at=NOON, origin="a", text="x")
    ),
    "dispatch, moment": lambda engine, c, value: c.dispatch(
        UserCancel.model_construct(type="user_cancel", event_id="forged", at=value)
    ),
    "dispatch, policy": lambda engine, c, value: c.dispatch(
        PolicyChanged(event_id="forged", at=NOON, policy=Policy().model_copy(update={"limits": value or 5}))
    ),
    "set broken policy": lambda engine, c, value: c.set_policy(Policy().model_copy(update={"limits": value})),
    "dispatch, answer": lambda engine, c, value: c.dispatch(
        LlmResponse.model_construct(type="llm_response", effect_id=value, at=NOON, content="forged")
    ),
    "hand in": lambda engine, c, value: hand_in(engine, c, value),
    "hand in, text": lambda engine, c, value: hand_in(
        engine, c, LlmResponse.model_construct(type="llm_response", effect_id=1, at=NOON, content=value)
    ),
    "hand in, block": lambda engine, c, value: hand_in(
        engine, c, LlmResponse.model_construct(type="llm_response", effect_id=1, at=NOON, opaque=({"sealed": value},))
    ),
    "create, system": lambda engine, c, value: engine.create(system=value),
    "create, policy": lambda engine, c, value: engine.create(policy=value or 5),
    "create, broken policy": lambda engine, c, value: engine.create(
        policy=Policy().model_copy(update={"limits": value})
    ),
    "get": lambda engine, c, value: engine.get(value),
    "delete": lambda engine, c, value: engine.delete(value),
    "updates": lambda engine, c, value: anext(c.updates(value or 5)),
}
"""Where a host program may hand something over."""

UNDEMANDING = {
    *(("approve, arguments", kind) for kind in ("nothing", "a number", "two megabytes", "many")),
    ("dispatch, answer", "a number"),
    ("hand in, text", "two megabytes"),
    *(("hand in, block", kind) for kind in ("nothing", "a number", "two megabytes", "a generator", "many")),
}
"""What is nothing special there. An answer that nobody waits for is late, and ignored."""


def rows(path: Path) -> list[str]:
    """Return every row of the file, as another program reads it."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
        return list(file.iterdump())


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid"


@asynccontextmanager
async def resting(path: Path, rest: str) -> AsyncIterator[tuple[Engine, Conversation]]:
    """Return a conversation in a state of this type."""
    script: dict[str, list[Any]] = {
        "idle": [reply("Hello."), reply("And on.")],
        "awaiting_user_response": [call("ask_user_question", questions=[QUESTION]), reply("And on.")],
        "awaiting_approval": [call("pay", amount=5), reply("And on.")],
    }
    async with Engine.open(path, model=ScriptedLlm(script[rest]), tools=["ask_user_question", pay]) as engine:
        conversation = await engine.create()
        await conversation.send("Hi")
        assert conversation.state.type == rest
        yield engine, conversation


async def go_on(conversation: Conversation) -> str | None:
    """Return the reply of the turn that waits, or of the next one."""
    if conversation.state.type == "awaiting_user_response":
        return (await conversation.answer({"When?": "6:30 PM"})).reply
    if conversation.state.type == "awaiting_approval":
        return (await conversation.approve(call_of(conversation, "call_1_0"), True)).reply
    return (await conversation.send("And now?")).reply


def faults(door: str, kind: str, refused: TurnwiseError) -> Iterator[str]:
    """Yield what is wrong with a refusal of hostile input."""
    sentence = refused.sentence
    if not 0 < len(sentence) <= 600:
        yield f"{door}, {kind}: {len(sentence)} characters"
    if "\n" in sentence or " at 0x" in sentence or "Traceback" in sentence:
        yield f"{door}, {kind}: {sentence}"


@pytest.mark.parametrize("rest", ["idle", "awaiting_user_response", "awaiting_approval"])
async def test_what_is_nasty_is_refused_and_nothing_is_written(database: Path, rest: str) -> None:
    """P33: hostile input is refused at each door in one sentence of bounded length, without a repr; no row changes, and
    the conversation goes on."""
    found: list[str] = []
    async with resting(database, rest) as (engine, conversation):
        before = rows(database)

        for door, knock in DOORS.items():
            for kind, value in NASTY.items():
                if (door, kind) in UNDEMANDING:
                    continue
                try:
                    await knock(engine, conversation, value)
                    found.append(f"{door} takes {kind}")
                except TurnwiseError as refused:
                    found += faults(door, kind, refused)
            if rows(database) != before:
                found.append(f"{door} has written")

        assert found == []
        assert await go_on(conversation) == "And on."
        assert (await conversation.replay()).divergence is None


@pytest.mark.slow
class TestCommands:
    """Hostile arguments of the command."""

    WORDS = (
        "",
        "nobody",
        "x" * 100_000,
        "../../../etc/passwd",
        "'; DROP TABLE events; --",
        "\x1b[31mred\x1b[0m\n\nTraceback",
        "\udcff",
        "%s%n{0}{{",
        "寿司 👩‍👩‍👧",
    )
    COMMANDS = (
        ("show",),
        ("replay",),
        ("export",),
        ("resolve",),
        ("resolve", "ran"),
    )

    @pytest.fixture
    def kept(self, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Create a database with a conversation where the commands look for it."""
        monkeypatch.chdir(database.parent)
        asyncio.run(keep(database))
        return database

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_an_id_that_nobody_has(
        self, command: tuple[str, ...], kept: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """P33: whatever the id is, the command exits with 2, prints one line to stderr and writes nothing."""
        before = rows(kept)

        for word in self.WORDS[command == ("replay",) :]:  # without a word it replays all conversations
            code = typed(*command[:1], "--db", str(kept), *command[2:], "--", word, *command[1:2])
            told = capsys.readouterr()
            assert (code, told.out) == (2, ""), word[:20]
            assert 0 < len(told.err) <= 700, word[:20]
            assert told.err.count("\n") == 1 and "\x1b" not in told.err, word[:20]

        assert rows(kept) == before

    @pytest.mark.parametrize("command", ["list", "replay", "show", "export"])
    def test_a_database_that_is_none(self, command: str, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An invalid address does the same, and no file is created."""
        files = sorted(kept.parent.iterdir())
        for word in (*self.WORDS[1:], str(kept.parent), "postgresql://me:secret@host/x", "a\0b"):
            code = typed(command, "--db", word, *(() if command == "list" else ("nobody",)))
            told = capsys.readouterr()
            assert (code, told.out) == (2, ""), word[:20]
            assert 0 < len(told.err) <= 700 and "secret" not in told.err, word[:20]
            assert told.err.count("\n") == 1 and "\x1b" not in told.err, word[:20]

        assert sorted(kept.parent.iterdir()) == files


async def keep(path: Path) -> None:
    """Run a short conversation."""
    async with resting(path, "awaiting_user_response"):
        pass


def typed(*words: str) -> int:
    """Return the exit status of the command."""
    from turnwise.hosts.terminal.commands.app import app
    from turnwise.hosts.terminal.output.lines import exit_code

    return exit_code(lambda: app(list(words), prog_name="turnwise"))
