"""turnwise, with its SQLite log and its own defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from standard_turn import Model, opened

from turnwise import Conversation, ModelAnswer

from .measures import main
from .requests import REQUESTS
from .standard import BOOK, OPTIONS, QUESTION, REPLIED, SAID, SYSTEM
from .system import System


class Noting(Model):
    """The model, which notes when it is asked."""

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the standard turn."""
        REQUESTS.note()
        return await super().complete(request, show)


class Turnwise(System):
    """turnwise."""

    packages = ("turnwise", "SQLAlchemy", "pydantic")
    stores = "each of the four steps before anything is done about it, a commit each; WAL, synchronous=FULL"

    async def open(self, file: Path | None) -> None:
        """Open an engine over the file, or over a database in memory."""
        self.engine = await opened(file or "sqlite://", Noting())

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()

    async def create(self, number: int) -> Conversation:
        """Create a conversation."""
        return await self.engine.create(system=SYSTEM)

    def key(self, conversation: Conversation) -> str:
        """Its id."""
        return conversation.id

    async def resume(self, key: str) -> Conversation:
        """Load the conversation."""
        return await self.engine.get(key)

    async def turn(self, conversation: Conversation) -> str:
        """Send the message, and wait for the end of the turn."""
        return (await conversation.send(SAID)).reply

    async def count(self, conversation: Conversation) -> int:
        """Count the messages of the transcript, which is read from the log."""
        return len([each for each in await conversation.messages() if each["role"] != "system"])

    async def answer(self, conversation: Conversation) -> float:
        """Answer what the built-in tool asked."""
        turn = await conversation.send(BOOK)
        assert turn.status == "awaiting_user"
        began = perf_counter()
        turn = await conversation.answer({QUESTION: OPTIONS[0]})
        assert turn.reply == REPLIED
        return REQUESTS.last - began


if __name__ == "__main__":
    main(Turnwise)
