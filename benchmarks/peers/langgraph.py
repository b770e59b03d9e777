"""LangGraph, with its `AsyncSqliteSaver`.

A graph of a model and a tool, over `MessagesState`, as in its guides; each conversation is a thread of it. The default
durability, "async", writes a checkpoint while the next node runs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from .measures import main
from .requests import REQUESTS
from .standard import ASKED, BOOK, FOUND, OPTIONS, QUESTION, REPLIED, SAID, SYSTEM
from .system import System

ASKS = "ask_user_question"


async def model(state: MessagesState) -> dict[str, Any]:
    """Answer at once: a message with a call, a result with the reply."""
    request = [SystemMessage(SYSTEM), *state["messages"]]
    REQUESTS.note()
    if request[-1].type == "tool":
        return {"messages": [AIMessage(REPLIED)]}
    name, arguments = ("find_table", ASKED) if request[-1].content == SAID else (ASKS, {"question": QUESTION})
    call = {"id": f"call_{len(request)}", "name": name, "args": arguments}
    return {"messages": [AIMessage("", tool_calls=[call])]}


async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


async def tool(state: MessagesState) -> dict[str, Any]:
    """Run what the model called, or ask the user."""
    (call,) = state["messages"][-1].tool_calls
    found = interrupt(call["args"]) if call["name"] == ASKS else await find_table(**call["args"])
    return {"messages": [ToolMessage(found, tool_call_id=call["id"])]}


def after_model(state: MessagesState) -> str:
    """Whether a tool was called."""
    return "tool" if state["messages"][-1].tool_calls else END


class LangGraph(System):
    """LangGraph."""

    packages = ("langgraph", "langgraph-checkpoint-sqlite", "langchain-core", "aiosqlite")
    stores = "a checkpoint of the whole state after each node, and each node's writes; WAL, synchronous=FULL"

    async def open(self, file: Path | None) -> None:
        """Open the saver, or use none, and compile the graph."""
        self.resources = AsyncExitStack()
        saver = await self.saver(str(file)) if file else None
        builder = StateGraph(MessagesState).add_node("model", model).add_node("tool", tool)
        builder.add_edge(START, "model").add_conditional_edges("model", after_model, ["tool", END])
        self.graph = builder.add_edge("tool", "model").compile(checkpointer=saver)
        self.histories: dict[str, list[Any]] | None = None if saver else {}

    async def saver(self, file: str) -> BaseCheckpointSaver[Any]:
        """Return the saver over this file, ready."""
        saver = await self.resources.enter_async_context(AsyncSqliteSaver.from_conn_string(file))
        await saver.setup()
        return saver

    async def close(self) -> None:
        """Close the saver."""
        await self.resources.aclose()

    async def create(self, number: int) -> dict[str, Any]:
        """Return the configuration of a new thread."""
        return {"configurable": {"thread_id": f"conversation-{number}"}}

    def key(self, conversation: dict[str, Any]) -> str:
        """The id of the thread."""
        return conversation["configurable"]["thread_id"]

    async def resume(self, key: str) -> dict[str, Any]:
        """Return the configuration of the thread, once its state could be read."""
        conversation = {"configurable": {"thread_id": key}}
        await self.graph.aget_state(conversation)
        return conversation

    async def turn(self, conversation: dict[str, Any]) -> str:
        """Invoke the graph with the message."""
        if self.histories is None:
            state = await self.graph.ainvoke({"messages": [HumanMessage(SAID)]}, conversation)
            return state["messages"][-1].content
        history = self.histories.get(self.key(conversation), [])
        state = await self.graph.ainvoke({"messages": [*history, HumanMessage(SAID)]}, conversation)
        self.histories[self.key(conversation)] = state["messages"]
        return state["messages"][-1].content

    async def count(self, conversation: dict[str, Any]) -> int:
        """Count the messages of the stored state."""
        return len((await self.graph.aget_state(conversation)).values["messages"])

    async def answer(self, conversation: dict[str, Any]) -> float:
        """Interrupt in the tool, and resume with the answer."""
        state = await self.graph.ainvoke({"messages": [HumanMessage(BOOK)]}, conversation)
        assert state["__interrupt__"]
        began = perf_counter()
        state = await self.graph.ainvoke(Command(resume=OPTIONS[0]), conversation)
        assert state["messages"][-1].content == REPLIED
        return REQUESTS.last - began


if __name__ == "__main__":
    main(LangGraph)
