"""The tools, channels and models that the conversations of the corpus know, and an engine that has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise import AgentMail, Engine, File, SubAgents, ToolContext, tool
from turnwise.testing import FunctionLlm, RecordingChannel

from ..support.pictures import GIF


@tool(crash="pure")
async def look(where: str = "anywhere") -> list[str]:
    """Look for a free table."""
    return [f"Kikunoi, {where}, 6:30 PM"]


@tool(crash="pure")
async def show_menu() -> list[Any]:
    """Show the menu."""
    return ["Today's menu:", File(GIF)]


@tool(crash="pure")
async def taste() -> str:
    """Taste the soup."""
    raise ValueError("The soup is too hot.")


@tool(crash="idempotent")
async def note(text: str, context: ToolContext) -> str:
    """Take a note."""
    return f"Noted: {text}"


async def was_booked(table: int) -> str:
    """Whether a table was booked, as far as anybody knows."""
    return "unknown" if table == 3 else "did_not_run"


@tool(crash="reconcile", reconcile=was_booked)
async def book(table: int) -> str:
    """Book a table."""
    return f"Table {table} is booked."


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid."


@tool(approval=True)
async def order(dish: str) -> str:
    """Order a dish, if a person allows it."""
    return f"{dish} is ordered."


@tool(acts=("mail",))
async def write(target: str, text: str) -> AgentMail:
    """Write to another agent."""
    return AgentMail(target=target, text=text)


@tool(acts=("children",), exclusive=True)
async def delegate(tasks: list[str]) -> SubAgents:
    """Let sub-agents do something."""
    return SubAgents(tasks=tuple(tasks))


TOOLS = [
    *(look, show_menu, taste, note, book, pay, order, write, delegate),
    *("ask_user_question", "respond_to_user", "mark_work_complete", "talk"),
]

CHANNELS = ("screen", "phone")

MODELS = ("default", "second", "own", "model-0", "model-1", "model-2", "model-3", "a", "b")
"""The models that the conversations name. A turn waits for an engine that has its model."""


def engine_over(database: Path, tools: Sequence[Any] = TOOLS) -> Engine:
    """An engine with the tools, the channels and the models that the conversations know; the models only talk."""
    channels = [RecordingChannel(name=name) for name in CHANNELS]
    model, *models = (FunctionLlm(lambda request: "So it went on.", name=name) for name in MODELS)
    return Engine.open(database, model=model, models=models, tools=tools, channels=channels)
