"""An engine over the conversations of the demonstration, in a database that is removed afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ....engine.engine import Engine
from ....states.policy import Policy
from .conversations import TravelDesk
from .scripted_model import ScriptedModel
from .tools import TravelTools

POLICY = Policy(when_busy="queue")
"""The rules of most conversations, and of those that a visitor opens."""


@asynccontextmanager
async def demo_engine(model: str = "rehearsal") -> AsyncGenerator[Engine]:
    """Yield an engine that is not open yet, over a new database that holds the conversations of the demonstration.

    What a visitor says is answered by `model`. The database is removed at the end of the block, so close the engine
    inside of it. Raises `ConfigurationError` for a model that cannot be used.
    """
    with TemporaryDirectory(prefix="turnwise-") as folder:
        database = Path(folder) / "demo.db"
        await hold_conversations(database, model)
        yield Engine.open(database, model=model, tools=TravelTools().tools, policy=POLICY)


async def hold_conversations(database: Path, model: str) -> None:
    """Hold the conversations of the demonstration in this database, each to the point where the visitor goes on.

    The log names `model` as the one that answered, so that each conversation goes on with it. Takes about a second.
    """
    scripted = ScriptedModel(model)
    tools = TravelTools(delay=0).tools
    async with Engine.open(database, model=scripted, tools=tools, policy=POLICY) as engine:
        desk = TravelDesk(engine, scripted)
        async with asyncio.TaskGroup() as group:
            for hold in (desk.fail, desk.ask_what_to_pack, desk.ask_to_book, desk.ask_for_a_train):
                group.create_task(hold())
            group.create_task(desk.work_in_the_background())
        await desk.plan_a_weekend()  # last, so that it heads the list
