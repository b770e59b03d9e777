"""Databases that earlier versions wrote are read, and taken over, as if this version had written them."""

from __future__ import annotations

import asyncio
import json
import logging
import lzma
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from turnwise import AgentMail, Engine, Image, SubAgents, ToolContext, tool
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.export import export_all
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.persistence.summaries import ConversationFilter, details_of
from turnwise.testing import FunctionLlm, RecordingChannel

from ..support.pictures import GIF

FILES = sorted(Path(__file__).parent.glob("*/*.db.xz"))

RESTING = {"idle", "failed", "closed", "awaiting_user_response", "awaiting_approval", "awaiting_sub_agents", "in_doubt"}
"""The states in which nothing happens until a person, or a sub-agent, does something."""

Expected = dict[str, dict[str, Any]]
"""What expected.json says of each conversation of a database."""


def described(folder: Path) -> dict[str, Any]:
    """Return what expected.json says of each database of a folder."""
    files: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["files"]
    return files


@pytest.fixture(params=FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def file(request: pytest.FixtureRequest) -> Path:
    """A compressed database of the corpus."""
    path: Path = request.param
    return path


@pytest.fixture
def original(file: Path) -> bytes:
    """The database, to the byte."""
    return lzma.decompress(file.read_bytes())


@pytest.fixture
def expected(file: Path) -> Expected:
    """What is known of the conversations of this database."""
    conversations: Expected = described(file.parent)[file.stem]["conversations"]
    return conversations


@pytest.fixture
def copy(file: Path, original: bytes, tmp_path: Path) -> Path:
    """The database in a folder of the test."""
    path = tmp_path / file.stem
    path.write_bytes(original)
    return path


@pytest.fixture
async def store(copy: Path) -> AsyncIterator[Store]:
    """The copy, open for reading."""
    store = await open_store(copy, read_only=True)
    yield store
    await store.close()


def test_there_is_a_corpus() -> None:
    """Each folder has databases, and expected.json describes them all."""
    folders = {file.parent for file in FILES}

    names = {folder: set(described(folder)) for folder in folders}

    assert names
    assert names == {folder: {file.stem for file in FILES if file.parent == folder} for folder in folders}


def test_it_was_never_written_again(file: Path, original: bytes) -> None:
    """The file is what that version wrote, to the byte."""
    assert sha256(original).hexdigest() == described(file.parent)[file.stem]["sha256"]


class TestReading:
    """Opened read-only, which changes nothing."""

    async def test_it_is_listed(self, store: Store, expected: Expected) -> None:
        """Every conversation, in the state that it was left in."""
        states = {summary.id: summary.state for summary in await store.list()}

        assert states == {conversation_id: one["state"] for conversation_id, one in expected.items()}

    async def test_its_titles_are_its_first_messages(self, store: Store, expected: Expected) -> None:
        """As they follow from each log, although no table holds them."""
        titles = {summary.id: summary.title for summary in await store.list()}

        assert titles == {each: details_of(await store.entries(each)).title for each in expected}
        assert any(titles.values())

    async def test_its_owners_are_listed(self, store: Store, expected: Expected) -> None:
        """Those that were imported with an owner are found by it."""
        for summary in await store.list():
            if summary.owner is not None:
                assert summary.id in {one.id for one in await store.list(ConversationFilter(owner=summary.owner))}
        assert (
            await store.list(ConversationFilter(owner="nobody"))
            == await store.list(ConversationFilter(metadata={"tenant": "a"}))
            == ()
        )

    async def test_it_replays(self, store: Store, expected: Expected) -> None:
        """Every step comes out as it was stored: the same state, effects and chain."""
        for conversation_id, one in expected.items():
            report = await replay_conversation(store, conversation_id)

            assert (report.events, report.divergence) == (one["steps"], None), one["title"]

    async def test_it_exports_the_same_lines(self, store: Store, expected: Expected) -> None:
        """To the byte."""
        digests = {}
        async for conversation_id, lines in export_all(store):
            assert isinstance(lines, Iterator)
            digests[conversation_id] = sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()

        assert digests == {conversation_id: one["export_sha256"] for conversation_id, one in expected.items()}

    async def test_its_deliveries_still_wait(self, store: Store, expected: Expected) -> None:
        """As many as nobody had acknowledged."""
        waiting = Counter(delivery.conversation_id for delivery in await store.outbox(expected))

        assert waiting == {conversation_id: one["outbox"] for conversation_id, one in expected.items() if one["outbox"]}

    async def test_the_doctor_finds_nothing(self, store: Store, expected: Expected) -> None:
        """Nothing is damaged, and no invariant is broken."""
        examination = await examine(store)

        assert examination.findings == ()
        assert examination.conversations == len(expected)
        assert examination.steps == sum(one["steps"] for one in expected.values())

    async def test_nothing_is_written(self, original: bytes, copy: Path, expected: Expected) -> None:
        """The file is the same afterwards, to the byte."""
        store = await open_store(copy, read_only=True)
        for conversation_id in expected:
            await store.load(conversation_id)
            await store.entries(conversation_id)
        await store.close()

        assert copy.read_bytes() == original


# --- an engine takes the conversations over


@tool(crash="pure")
async def look(where: str = "anywhere") -> list[str]:
    """Look for a free table."""
    return [f"Kikunoi, {where}, 6:30 PM"]


@tool(crash="pure")
async def show_menu() -> list[Any]:
    """Show the menu."""
    return ["Today's menu:", Image.of(GIF)]


@tool(crash="pure")
async def taste() -> str:
    """Taste the soup."""
    raise ValueError("The soup is too hot.")


@tool(crash="idempotent")
async def note(text: str, context: ToolContext) -> str:
    """Take a note."""
    return f"Noted: {text}"


async def was_booked(table: int) -> str:
    """Whether a table was booked, as far as anybody knows."""
    return "unknown" if table == 3 else "did_not_run"


@tool(crash="reconcile", reconcile=was_booked)
async def book(table: int) -> str:
    """Book a table."""
    return f"Table {table} is booked."


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid."


@tool(approval=True)
async def order(dish: str) -> str:
    """Order a dish, if a person allows it."""
    return f"{dish} is ordered."


@tool
async def finish() -> str:
    """Finish."""
    return "It is finished."


@tool
async def insist() -> str:
    """Insist."""
    return "There it is."


@tool(acts=("mail",))
async def write(target: str, text: str) -> AgentMail:
    """Write to another agent."""
    return AgentMail(target=target, text=text)


@tool(acts=("children",), exclusive=True)
async def delegate(tasks: list[str]) -> SubAgents:
    """Let sub-agents do something."""
    return SubAgents(tasks=tuple(tasks))


TOOLS = [
    *(look, show_menu, taste, note, book, pay, order, finish, insist, write, delegate),
    *("ask_user_question", "respond_to_user", "mark_work_complete", "talk"),
]


MODELS = ("first", "second", "other", "default", "small", "large", "a", "b")
"""The models that the conversations name. A turn waits for an engine that has its model."""


def engine_over(database: Path) -> Engine:
    """An engine with the tools, the channels and the models that the conversations know; the models only talk."""
    channels = [RecordingChannel(name=name) for name in ("screen", "phone")]
    model, *models = (FunctionLlm(lambda request: "So it went on.", name=name) for name in MODELS)
    return Engine.open(database, model=model, models=models, tools=TOOLS, channels=channels)


def stored_steps(database: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the rows of all steps as another program finds them in the file."""
    with closing(sqlite3.connect(database)) as other:
        rows = other.execute("SELECT conversation, seq, * FROM events").fetchall()
    return {(conversation_id, seq): tuple(row) for conversation_id, seq, *row in rows}


async def at_rest(engine: Engine) -> None:
    """Wait until every conversation rests."""
    while {summary.state for summary in await engine.list()} - RESTING:
        await asyncio.sleep(0.02)


@pytest.mark.slow
class TestTakingOver:
    """`Engine.open`, which recovers what a crash interrupted."""

    async def test_every_conversation_comes_to_rest(
        self, copy: Path, expected: Expected, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without an error, also those that were interrupted; and the doctor still finds nothing. What is added are the
        sub-agents that nothing had carried out before."""
        async with engine_over(copy) as engine:
            await at_rest(engine)
            await engine.delivered()
        store = await open_store(copy, read_only=True)
        examination = await examine(store)
        parents = {summary.id: summary.parent for summary in await store.list()}
        await store.close()

        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
        assert examination.findings == ()
        assert {parents[each] for each in parents.keys() - expected.keys()} <= expected.keys()

    async def test_its_titles_are_stored(self, copy: Path) -> None:
        """They are the same as when it was only read."""
        store = await open_store(copy, read_only=True)
        before = {summary.id: summary.title for summary in await store.list()}
        await store.close()

        store = await open_store(copy)
        after = {summary.id: summary.title for summary in await store.list()}
        await store.close()

        assert after == before

    async def test_its_steps_are_not_written_again(self, copy: Path) -> None:
        """What is added follows what was there; nothing that was there is changed."""
        before = stored_steps(copy)
        async with engine_over(copy) as engine:
            await at_rest(engine)
        after = stored_steps(copy)

        assert {place: after.get(place) for place in before} == before

    async def test_an_idle_conversation_goes_on(self, copy: Path, expected: Expected) -> None:
        """Its next turn is answered, and its log, with the old steps in it, replays."""
        idle = [conversation_id for conversation_id, one in expected.items() if one["state"] == "idle"]
        async with engine_over(copy) as engine:
            await at_rest(engine)
            for conversation_id in idle:
                conversation = await engine.get(conversation_id)
                turn = await conversation.send("And now?")
                report = await conversation.replay()

                assert turn.status in ("completed", "incomplete"), expected[conversation_id]["title"]
                assert report.divergence is None
                assert report.events > expected[conversation_id]["steps"]
