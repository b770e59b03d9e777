"""What is found again: a text stands once in the database, in the step that brought it, and the index refers to it;
vectors are compared in the same way with numpy and without it.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from turnwise.persistence import SqliteStore
from turnwise.persistence.sqlite.search import encoded
from turnwise.states import (
    AgentMail,
    AgentMessage,
    HistoryMessage,
    LlmResponse,
    Policy,
    Speech,
    ToolCall,
    ToolComplete,
    ToolResult,
)
from turnwise.states.values.acts import FoundText, MemoryScope, VectorQuery

from ...support.walks import NOON, Walk

ANNA = MemoryScope("", "anna", 0)
SIZE = 4


async def nearest(path: Path) -> list[tuple[FoundText, ...]]:
    """Some searches over many vectors, the same in each call."""
    chance = random.Random(7)

    def vector() -> list[float]:
        return [chance.gauss(0, 1) for _ in range(SIZE)]

    store = await SqliteStore.open(path)
    given = tuple(HistoryMessage(role="user", content=f"text {number}") for number in range(2_100))
    await Walk("one", owner="anna", messages=given).into(store)
    without = await store.without_vectors(ANNA, "space", 10_000)
    await store.keep_vectors("space", {number: vector() for number, _ in without})
    found = [await store.nearest(VectorQuery(ANNA, "space", vector(), None, None, 20)) for _ in range(3)]
    await store.close()
    return found


def spoken() -> Walk:
    """A turn in which a tool writes to another agent and speaks to the user."""
    walk = Walk("spoken", policy=Policy(text="thought"), owner="anna").say("Speak!")
    call = ToolCall(call_id="call", name="speak", exclusive=True, acts=("speech", "mail"))
    walk.answer(LlmResponse, tool_calls=(call,), finish_reason="tool_calls")
    acts = (AgentMail(target="worker", text="mail"), Speech(text="Hello.", when="now"))
    return walk.answer(ToolComplete, result=ToolResult(text="result", acts=acts))


def passed_on() -> Walk:
    """Another agent's message is passed on to the user."""
    walk = Walk("passed on", owner="anna").request(AgentMessage, origin="worker", text="News!", audience="user")
    while walk.state.type != "idle":
        walk.answer(LlmResponse, content="")
    return walk


@pytest.mark.slow
async def test_numpy_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the number of vectors that are compared at a time."""
    with_numpy = await nearest(tmp_path / "with.db")
    monkeypatch.setitem(sys.modules, "numpy", None)
    without_numpy = await nearest(tmp_path / "without.db")

    assert [len(found) for found in with_numpy] == [20, 20, 20]
    assert with_numpy == without_numpy


async def test_vectors_of_zeros_are_no_fault(tmp_path: Path) -> None:
    """They are as far from everything as a right angle is."""
    store = await SqliteStore.open(tmp_path / "dinner.db")
    await Walk("one", owner="anna", messages=(HistoryMessage(role="user", content="text"),)).into(store)
    ((number, _),) = await store.without_vectors(ANNA, "space", 9)
    await store.keep_vectors("space", {number: [0.0, 0.0]})

    assert [one.text for one in await store.nearest(VectorQuery(ANNA, "space", [0.0, 0.0], None, None, 9))] == ["text"]
    await store.close()


def test_a_vector_takes_four_bytes_a_number() -> None:
    """The lowest byte first, whatever the machine."""
    assert encoded([3.0, 4.0]) == b"\x9a\x99\x19?\xcd\xccL?"
    assert len(encoded([1.0] * 1536)) == 4 * 1536


async def test_texts_are_referred_to(tmp_path: Path) -> None:
    """Those of messages, replies, speeches and messages that are passed on. What stands nowhere as it was said, or what
    SQLite would not read to its end, is written out."""
    marked = Walk("marked", policy=Policy(marker="TOOL"), owner="anna").say('one \0 two 寿司 \\ " \u2028 end')
    marked.answer(LlmResponse, content="TOOL look\nHere.")
    store = await SqliteStore.open(tmp_path / "dinner.db")
    for walk in (spoken(), passed_on(), marked):
        await walk.into(store)

    found = [text.text for text in await store.recent(ANNA, NOON)]
    await store.close()

    assert sorted(found) == sorted(["Speak!", "Hello.", "News!", 'one \0 two 寿司 \\ " \u2028 end', "Here."])
    with closing(sqlite3.connect(tmp_path / "dinner.db")) as other:
        written = [text for (text,) in other.execute("SELECT text FROM texts WHERE text IS NOT NULL")]
        paths = {path for (path,) in other.execute("SELECT path FROM texts WHERE text IS NULL")}
    assert sorted(written) == ["Here.", 'one \0 two 寿司 \\ " \u2028 end']
    assert paths == {"$.text", "$.result.acts[1].text"}
