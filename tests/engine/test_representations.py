"""What a developer sees who prints an engine or a conversation."""

from __future__ import annotations

from pathlib import Path

from turnwise import Engine
from turnwise.testing import FunctionLlm


async def test_a_conversation_says_its_id_its_state_and_its_turns(tmp_path: Path) -> None:
    """As they are at that moment."""
    async with Engine.open(tmp_path / "dinner.db", model=FunctionLlm(lambda _: "Hello.")) as engine:
        conversation = await engine.create(conversation_id="dinner")
        before = repr(conversation)
        await conversation.send("Hi")

        assert before == "<Conversation 'dinner': idle, 0 turns>"
        assert repr(conversation) == "<Conversation 'dinner': idle, 1 turn>"


async def test_an_engine_says_its_database_and_what_it_holds(tmp_path: Path) -> None:
    """Also when it has closed."""
    path = tmp_path / "dinner.db"
    engine = Engine.open(path, model=FunctionLlm(lambda _: "Hello."))
    async with engine:
        conversation = await engine.create()

        assert repr(engine) == f"<Engine {path}: open, 1 conversation in memory>"
        assert conversation.id
    assert repr(engine) == f"<Engine {path}: not open, 0 conversations in memory>"


def test_those_without_an_event_loop_say_the_same(tmp_path: Path) -> None:
    """With their own names."""
    path = tmp_path / "dinner.db"
    with Engine.open_blocking(path, model=FunctionLlm(lambda _: "Hello.")) as engine:
        conversation = engine.create(conversation_id="dinner")

        assert repr(conversation) == "<BlockingConversation 'dinner': idle, 0 turns>"
        assert repr(engine) == f"<BlockingEngine {path}: open, 1 conversation in memory>"
