"""pydantic-ai, which leaves storing to the application.

As in its chat example, a thread of its own writes the new messages of each turn as one row, and all rows of the
conversation are read before the next turn. The write-ahead log is the application's choice, the same as the floor's.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .measures import main
from .requests import REQUESTS
from .standard import ASKED, BOOK, FOUND, OPTIONS, QUESTION, REPLIED, SAID, SYSTEM
from .system import System

ASKS = "ask_user_question"


async def answered(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once: a message with a call, a result with the reply."""
    REQUESTS.note()
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(REPLIED)])
    asks = isinstance(last, UserPromptPart) and last.content != SAID
    return ModelResponse(
        parts=[ToolCallPart(ASKS, {"question": QUESTION}) if asks else ToolCallPart("find_table", ASKED)]
    )


async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


async def ask_user_question(question: str) -> str:
    """Ask the user."""
    raise CallDeferred


class Rows:
    """The rows of all conversations, in a thread of their own."""

    def __init__(self, file: Path) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.connection = self.thread.submit(self.connect, file).result()

    @staticmethod
    def connect(file: Path) -> sqlite3.Connection:
        """Open the file, and create the table."""
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, conversation TEXT, list TEXT)")
        connection.execute("CREATE INDEX IF NOT EXISTS of_conversation ON messages (conversation, id)")
        connection.commit()
        return connection

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run this in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *arguments)

    async def add(self, conversation: str, messages: bytes) -> None:
        """Store the new messages of a turn."""

        def write() -> None:
            self.connection.execute("INSERT INTO messages (conversation, list) VALUES (?, ?)", (conversation, messages))
            self.connection.commit()

        await self.run(write)

    async def read(self, conversation: str) -> list[ModelMessage]:
        """Return every message of the conversation."""
        query = "SELECT list FROM messages WHERE conversation = ? ORDER BY id"
        rows = await self.run(lambda: self.connection.execute(query, (conversation,)).fetchall())
        return [message for (row,) in rows for message in ModelMessagesTypeAdapter.validate_json(row)]

    def close(self) -> None:
        """Close the connection in its thread."""
        self.thread.submit(self.connection.close).result()
        self.thread.shutdown()


class PydanticAI(System):
    """pydantic-ai."""

    packages = ("pydantic-ai-slim", "pydantic")
    stores = "the messages of a turn when it has ended, in one commit; WAL, synchronous=FULL; nothing within a turn"

    async def open(self, file: Path | None) -> None:
        """Make the agent, and open the rows."""
        self.agent = Agent(
            FunctionModel(answered),
            instructions=SYSTEM,
            tools=[find_table, ask_user_question],
            output_type=[str, DeferredToolRequests],
        )
        self.rows = Rows(file) if file else None

    async def close(self) -> None:
        """Close the rows."""
        if self.rows:
            self.rows.close()

    async def create(self, number: int) -> Any:
        """Name a conversation; in memory, make its list."""
        return f"conversation-{number}" if self.rows else []

    def key(self, conversation: str) -> str:
        """Its name."""
        return conversation

    async def resume(self, key: str) -> str:
        """Read the messages, as the next turn does."""
        await self.rows.read(key)
        return key

    async def turn(self, conversation: Any) -> str:
        """Read the rows, run the agent, and store the new messages."""
        if not self.rows:
            result = await self.agent.run(SAID, message_history=conversation)
            conversation[:] = result.all_messages()
            return result.output
        result = await self.agent.run(SAID, message_history=await self.rows.read(conversation))
        await self.rows.add(conversation, result.new_messages_json())
        return result.output

    async def count(self, conversation: str) -> int:
        """Count the messages in the rows."""
        return len(await self.rows.read(conversation))

    async def answer(self, conversation: str) -> float:
        """Defer the call, store what was said, and run on with its result."""
        result = await self.agent.run(BOOK, message_history=await self.rows.read(conversation))
        await self.rows.add(conversation, result.new_messages_json())
        (call,) = result.output.calls
        began = perf_counter()
        result = await self.agent.run(
            message_history=await self.rows.read(conversation),
            deferred_tool_results=DeferredToolResults(calls={call.tool_call_id: OPTIONS[0]}),
        )
        seconds = REQUESTS.last - began
        assert result.output == REPLIED
        await self.rows.add(conversation, result.new_messages_json())
        return seconds


if __name__ == "__main__":
    main(PydanticAI)
