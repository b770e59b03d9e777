"""A text stands once in the database, in the step that brought it; the index refers to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from turnwise.persistence import SqliteStore
from turnwise.states import AgentMail, AgentMessage, LlmResponse, Policy, Speech, ToolCall, ToolComplete, ToolResult
from turnwise.states.values.acts import MemoryScope

from ....support.walks import NOON, Walk

ANNA = MemoryScope("", "anna", 0)


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
