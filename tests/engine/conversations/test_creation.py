"""Conversations are created once, however often they are asked for at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise import Engine
from turnwise.persistence.errors import StoreConflict
from turnwise.persistence.ports import Log
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Opened
from turnwise.testing import ScriptedLlm, reply


class TakenIds:
    """A store in which another engine has just created the conversation that an engine is about to create."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, conversation_id: str, event: Opened, step: Any) -> Log:
        """Create the conversation, and say that its id is taken."""
        await self._store.create(conversation_id, event.replace(title="the one that exists"), step)
        raise StoreConflict(conversation_id)


async def test_the_conversation_that_has_the_id_is_returned(database: Path) -> None:
    """It is returned as it is, and goes on."""
    store = await SqliteStore.open(str(database))
    try:
        async with Engine.open(store=TakenIds(store), model=ScriptedLlm([reply("Hello.")])) as engine:  # type: ignore[arg-type]
            conversation = await engine.create(title="another one")
            turn = await conversation.send("Hi")

        assert (conversation.title, turn.reply) == ("the one that exists", "Hello.")
    finally:
        await store.close()
