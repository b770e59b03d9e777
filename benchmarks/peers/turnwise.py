"""turnwise, with its SQLite log and its own defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from turnwise import Conversation, Engine, ModelAnswer, tool
from turnwise.testing import call, reply

from .measures import main
from .standard import ASKED, FOUND, OPTIONS, QUESTION, REPLIED, SAID, SYSTEM
from .system import System


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


class Model:
    """Answers at once: a message with a call, a result with the reply. Notes when it was asked last."""

    name = "instant"

    def __init__(self) -> None:
        self.asked_at = 0.0

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the standard turn."""
        self.asked_at = perf_counter()
        last = request.messages[-1]
        if last["role"] == "tool":
            return reply(REPLIED)
        if last["content"] == SAID:
            return call("find_table", **ASKED)
        options = [{"label": label} for label in OPTIONS]
        return call("ask_user_question", questions=[{"question": QUESTION, "header": "Table", "options": options}])


class Turnwise(System):
    """turnwise."""

    packages = ("turnwise", "SQLAlchemy", "pydantic")
    stores = "each of the four steps before anything is done about it, a commit each; WAL, synchronous=FULL"

    async def open(self, file: Path | None) -> None:
        """Open an engine over the file, or over a database in memory."""
        self.model = Model()
        self.engine = Engine.open(file or "sqlite://", model=self.model, tools=[find_table, "ask_user_question"])
        await self.engine

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
        turn = await conversation.send("Book it.")
        assert turn.status == "awaiting_user"
        began = perf_counter()
        turn = await conversation.answer({QUESTION: OPTIONS[0]})
        assert turn.reply == REPLIED
        return self.model.asked_at - began


if __name__ == "__main__":
    main(Turnwise)
