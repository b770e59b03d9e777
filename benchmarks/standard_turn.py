"""The standard turn with turnwise: the model, the tool and the engine that the benchmarks have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers.standard import ASKED, FOUND, OPTIONS, QUESTION, REPLIED, SAID
from turnwise import Engine, ModelAnswer, tool
from turnwise.testing import call, reply


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


CALL = call("find_table", **ASKED)
REPLY = reply(REPLIED)
ASK = call(
    "ask_user_question",
    questions=[{"question": QUESTION, "header": "Table", "options": [{"label": label} for label in OPTIONS]}],
)


class Model:
    """Answers at once: a result with the reply, the message of the standard turn with a call of the tool, any other
    message with a question."""

    name = "instant"

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the standard turn."""
        last = request.messages[-1]
        if last["role"] == "tool":
            return REPLY
        return CALL if last["content"] == SAID else ASK


def opened(file: Path | str, model: Model) -> Engine:
    """An engine over this database, with what the standard turn needs."""
    return Engine.open(file, model=model, tools=[find_table, "ask_user_question"])


def fresh(folder: Path) -> Path:
    """A database that is not there yet."""
    return Path(tempfile.mkdtemp(dir=folder)) / "turns.db"


async def say(engine: Engine, conversation_id: str, turns: int) -> None:
    """So many turns more."""
    conversation = await engine.get(conversation_id)
    for _ in range(turns):
        await conversation.send(SAID)
