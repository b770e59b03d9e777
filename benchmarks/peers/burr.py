"""Burr, with its `AsyncSQLitePersister`.

Each conversation is an application of three actions, which Burr persists after every action: the message of the user,
the model, the tool. The persister is shared by all of them, and its connection has SQLite's defaults.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

from burr.core import Application, ApplicationBuilder, State, action, when
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister

from .measures import main
from .requests import REQUESTS
from .standard import ARGUMENTS, BOOK, FOUND, OPTIONS, QUESTION, REPLIED, SAID, SYSTEM
from .system import System

ASKS = "ask_user_question"
ASKED = json.dumps({"question": QUESTION})


@action(reads=["messages"], writes=["messages"])
async def message(state: State, said: str) -> State:
    """Take what the user says."""
    return state.append(messages={"role": "user", "content": said})


@action(reads=["messages"], writes=["messages", "calls"])
async def model(state: State) -> State:
    """Answer at once: a message with a call, a result with the reply."""
    request = [{"role": "system", "content": SYSTEM}, *state["messages"]]
    REQUESTS.note()
    if request[-1]["role"] == "tool":
        return state.append(messages={"role": "assistant", "content": REPLIED}).update(calls="")
    name, arguments = ("find_table", ARGUMENTS) if request[-1]["content"] == SAID else (ASKS, ASKED)
    call = {"id": f"call_{len(request)}", "name": name, "arguments": arguments}
    return state.append(messages={"role": "assistant", "tool_calls": [call]}).update(calls=name)


async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


@action(reads=["messages"], writes=["messages"])
async def tool(state: State) -> State:
    """Run what the model called."""
    (call,) = state["messages"][-1]["tool_calls"]
    found = await find_table(**json.loads(call["arguments"]))
    return state.append(messages={"role": "tool", "tool_call_id": call["id"], "content": found})


@action(reads=["messages"], writes=["messages"])
async def answer(state: State, answered: str) -> State:
    """Take the answer of the user to a question."""
    (call,) = state["messages"][-1]["tool_calls"]
    return state.append(messages={"role": "tool", "tool_call_id": call["id"], "content": answered})


class Burr(System):
    """Burr."""

    packages = ("apache-burr", "aiosqlite")
    stores = "the whole state after each of the four actions, a commit each; rollback journal, synchronous=FULL"

    async def open(self, file: Path | None) -> None:
        """Open the persister, or use none."""
        self.persister = await AsyncSQLitePersister.from_values(db_path=str(file)) if file else None
        if self.persister:
            await self.persister.initialize()

    async def close(self) -> None:
        """Close the persister."""
        if self.persister:
            await self.persister.cleanup()

    async def create(self, number: int) -> Application:
        """Build the application of a new conversation."""
        return await self.resume(f"conversation-{number}")

    def key(self, conversation: Application) -> str:
        """Its application id."""
        return conversation.uid

    async def resume(self, key: str) -> Application:
        """Build the application from its last state, if there is one."""
        builder = (
            ApplicationBuilder()
            .with_actions(message, model, tool, answer)
            .with_transitions(
                ("message", "model"),
                ("model", "tool", when(calls="find_table")),
                ("model", "answer", when(calls=ASKS)),
                ("model", "message"),
                (["tool", "answer"], "model"),
            )
            .with_identifiers(app_id=key)
        )
        if not self.persister:
            return await builder.with_state(messages=[], calls="").with_entrypoint("message").abuild()
        return await (
            builder.initialize_from(
                self.persister,
                resume_at_next_action=True,
                default_state={"messages": [], "calls": ""},
                default_entrypoint="message",
            )
            .with_state_persister(self.persister)
            .abuild()
        )

    async def turn(self, conversation: Application) -> str:
        """Run from a message until the next one is awaited."""
        _, _, state = await conversation.arun(halt_before=["message"], inputs={"said": SAID})
        return state["messages"][-1]["content"]

    async def count(self, conversation: Application) -> int:
        """Count the messages of the last stored state."""
        stored = await self.persister.load(None, conversation.uid)
        return len(stored["state"]["messages"])

    async def answer(self, conversation: Application) -> float:
        """Halt before the action that takes the answer, and go on with it."""
        halts: dict[str, Any] = {"halt_before": ["message", "answer"]}
        await conversation.arun(**halts, inputs={"said": BOOK})
        assert conversation.get_next_action().name == "answer"
        began = perf_counter()
        _, _, state = await conversation.arun(**halts, inputs={"answered": OPTIONS[0]})
        assert state["messages"][-1]["content"] == REPLIED
        return REQUESTS.last - began


if __name__ == "__main__":
    main(Burr)
