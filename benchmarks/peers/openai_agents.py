"""The OpenAI Agents SDK, with its `SQLiteSession`.

One agent with a model of its own; each conversation is a session over the same file. Tracing is off, as its
documentation advises where no key of OpenAI is set.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from .measures import main
from .requests import REQUESTS
from .standard import ARGUMENTS, BOOK, FOUND, QUESTION, REPLIED, SAID, SYSTEM
from .system import System

ASKS = "ask_user_question"
ASKED = json.dumps({"question": QUESTION})
NUMBERS = count()


@function_tool
async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


@function_tool(needs_approval=True)
async def ask_user_question(question: str) -> str:
    """Ask the user, who approves or rejects."""
    return "approved"


class Instant(Model):
    """Answers at once: a message with a call, a result with the reply."""

    async def get_response(
        self, system_instructions: str | None, input: Any, *others: Any, **more: Any
    ) -> ModelResponse:
        """The next step of the standard turn."""
        REQUESTS.note()
        last = input[-1] if isinstance(input, list) else {"content": input}
        if last.get("type") == "function_call_output":
            text = ResponseOutputText(text=REPLIED, type="output_text", annotations=[])
            output: Any = ResponseOutputMessage(
                id=f"msg_{next(NUMBERS)}", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            name, arguments = ("find_table", ARGUMENTS) if last["content"] == SAID else (ASKS, ASKED)
            call_id = f"call_{next(NUMBERS)}"
            output = ResponseFunctionToolCall(arguments=arguments, call_id=call_id, name=name, type="function_call")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *others: Any, **more: Any) -> Any:
        """Nothing is streamed here."""
        raise NotImplementedError


class OpenAIAgents(System):
    """openai-agents."""

    packages = ("openai-agents", "openai")
    stores = "the message when a turn begins and what follows after each answer of the model; WAL, synchronous=FULL"

    async def open(self, file: Path | None) -> None:
        """Make the agent."""
        set_tracing_disabled(True)
        self.file, self.sessions = file, []
        self.agent = Agent(name="tables", instructions=SYSTEM, model=Instant(), tools=[find_table, ask_user_question])

    async def close(self) -> None:
        """Close the sessions."""
        for session in self.sessions:
            session.close()
        self.sessions = []

    async def create(self, number: int) -> Any:
        """Make a session; in memory, a list that is handed on."""
        return self.session(f"conversation-{number}") if self.file else []

    def session(self, key: str) -> SQLiteSession:
        """Open a session over the file."""
        self.sessions.append(SQLiteSession(key, self.file))
        return self.sessions[-1]

    def key(self, conversation: SQLiteSession) -> str:
        """The id of the session."""
        return conversation.session_id

    async def resume(self, key: str) -> SQLiteSession:
        """Open the session, and read its items as the next run does."""
        session = self.session(key)
        await session.get_items()
        return session

    async def turn(self, conversation: Any) -> str:
        """Run the agent on the message."""
        if self.file:
            return (await Runner.run(self.agent, SAID, session=conversation)).final_output
        result = await Runner.run(self.agent, [*conversation, {"role": "user", "content": SAID}])
        conversation[:] = result.to_input_list()
        return result.final_output

    async def count(self, conversation: SQLiteSession) -> int:
        """Count the items of the session."""
        return len(await conversation.get_items())

    async def answer(self, conversation: SQLiteSession) -> float:
        """Approve what the model called: the kind of question that this library lets a run wait for."""
        result = await Runner.run(self.agent, BOOK, session=conversation)
        (interruption,) = result.interruptions
        state = result.to_state()
        state.to_string()  # what an application stores until the answer comes
        began = perf_counter()
        state.approve(interruption)
        result = await Runner.run(self.agent, state, session=conversation)
        assert result.final_output == REPLIED
        return REQUESTS.last - began


if __name__ == "__main__":
    main(OpenAIAgents)
