"""A model that does what its user says, with tools, so that a test brings conversations to every state that clients
meet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from turnwise import Conversation, Engine, Policy, Retry, tool
from turnwise.effects.model.port import ModelRequest
from turnwise.testing import FunctionLlm, call, failure

from ..effect_ids import call_of
from ..engine_scenarios import QUESTION

CALL = "call_1_0"
"""How the id of the first call of a conversation begins."""

POLICY = Policy(when_busy="queue", retry=Retry(attempts=1))


@tool(approval=True)
async def pay(amount: int = 1) -> str:
    """Pay."""
    return f"Paid {amount}."


@tool
async def launch() -> str:
    """Launch, which takes longer than any test."""
    await asyncio.Event().wait()
    raise AssertionError("nobody waits so long")


async def obey(request: ModelRequest) -> Any:
    """Do what the newest message says: "ask", "pay", "launch", "fail" or "wait". After a tool, and for everything else,
    say something."""
    newest = request.messages[-1]
    match newest["content"] if newest["role"] == "user" else "":
        case "ask":
            return call("ask_user_question", questions=[QUESTION])
        case "pay":
            return call("pay", amount=5)
        case "launch":
            return call("launch")
        case "fail":
            return failure("authentication", "The provider refused.")
        case "wait":
            await asyncio.Event().wait()
    return "Hello!"


def obedient_engine(url: str | Path = "sqlite://") -> Engine:
    """An engine with this model, which is not yet open."""
    return Engine.open(
        url, model=FunctionLlm(obey, name="obedient"), tools=["ask_user_question", pay, launch], policy=POLICY
    )


def naming_call(body: Any, conversation: Conversation) -> Any:
    """The body of a request, with the id of the call that waits in this conversation where it has `CALL`."""
    if isinstance(body, dict) and body.get("call_id") == CALL:
        return {**body, "call_id": call_of(conversation, CALL)}
    return body


class Conversations:
    """Creates conversations of an engine in the states that are named."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self._engine = engine
        self._options = options

    async def idle(self) -> Conversation:
        """A conversation in which a turn has ended, the one of the message `first`."""
        return await self._after("Hello")

    async def rewound(self) -> Conversation:
        """A conversation in which the turn was hidden."""
        conversation = await self.idle()
        await conversation.rewind(0)
        return conversation

    async def asking(self) -> Conversation:
        """A conversation that waits for the answer to a question."""
        return await self._after("ask")

    async def approving(self) -> Conversation:
        """A conversation that waits for somebody to allow a call."""
        return await self._after("pay")

    async def failed(self) -> Conversation:
        """A conversation whose turn has failed."""
        return await self._after("fail")

    async def running(self) -> Conversation:
        """A conversation that waits for the model, and has a message `queued` that waits, too."""
        conversation = await self._engine.create(**self._options)
        await conversation.send("wait", wait=False)
        await conversation.send("Later", message_id="queued", wait=False)
        return conversation

    async def closed(self) -> Conversation:
        """A conversation that has ended."""
        conversation = await self.idle()
        await conversation.close()
        return conversation

    async def _after(self, text: str) -> Conversation:
        conversation = await self._engine.create(**self._options)
        await conversation.send(text, message_id="first")
        return conversation


async def leave_in_doubt(database: Path, **options: Any) -> str:
    """Leave a conversation in a database whose call was cut off. Returns its id."""
    async with obedient_engine(database) as engine:
        conversation = await engine.create(**options)
        await conversation.send("launch", wait=False)
        async for update in conversation.updates():
            if update.type == "tool":
                return conversation.id
    raise AssertionError("the tool did not run")
