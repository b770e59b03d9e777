"""Every kind of request, each with what comes before it, so that tests can send it again under its id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.effect_ids import call_of
from turnwise import CompactionFailed, Conversation, Engine, ModelAnswer, ModelRequest, Policy, Questions, Retry, tool
from turnwise.testing import FunctionLlm, call, failure, reply

from ..engine_scenarios import QUESTION, Gate, until

RUNNING: set[str] = set()
"""The conversations in which the tool `book` runs, and never ends."""


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid"


@tool
async def book(table: str) -> str:
    """Book a table."""
    RUNNING.add(table)
    await asyncio.Event().wait()
    return "booked"


def answer(request: ModelRequest) -> Any:
    """Do what the last message of the user says: ask as many questions as it has question marks, pay, book or fail."""
    last = max(place for place, message in enumerate(request.messages) if message["role"] == "user")
    wish, results = str(request.messages[last]["content"]), request.messages[last:]
    done = sum(message["role"] == "tool" for message in results)
    if wish.startswith("Ask") and done < wish.count("?"):
        return call("ask_user_question", questions=[QUESTION])
    if wish.startswith("Pay") and not done:
        return call("pay", amount=5)
    if wish.startswith("Book") and not done:
        return call("book", table=wish)
    fails = wish.startswith("Fail") or ("<record>" in wish and "in vain" in wish)
    return failure("authentication", "No key.") if fails else reply(f"Done: {wish[:20]}")


def engine_at(database: Path | str, *, gate: Gate | None = None, **options: Any) -> Engine:
    """An engine over this database, or over a `store`, whose model does what it is told. At a message with "Wait" it
    gives its last answer once the gate is open."""

    async def obey(request: ModelRequest) -> Any:
        answered = answer(request)
        if gate is not None and isinstance(answered, ModelAnswer) and "Wait" in answered.content:
            await gate()
        return answered

    tools = ["ask_user_question", pay, book]
    policy = options.pop("policy", Policy(retry=Retry(attempts=1)))
    return Engine.open(
        database or None, model=FunctionLlm(obey, name="obedient"), tools=tools, policy=policy, **options
    )


@dataclass(frozen=True)
class Case:
    """A request, and what is done before it. `dies` ends the process in between."""

    name: str
    ask: Callable[[Conversation], Awaitable[Any]]
    before: tuple[str, ...] = ()
    policy: Policy | None = None
    dies: bool = False

    async def prepare(self, conversation: Conversation) -> None:
        """Bring the conversation to where the request fits."""
        for text in self.before:
            if self.dies:
                RUNNING.discard(text)  # it ran in another test
                await conversation.send(text, wait=False)
                await until(lambda text=text: text in RUNNING)
            else:
                await conversation.send(text, message_id=text)

    async def found(self, engine: Engine, conversation_id: str) -> Conversation:
        """Return the conversation in an engine that was opened later, once what an earlier one has left is reported."""
        conversation = await engine.get(conversation_id)
        if self.dies:
            await until(lambda: conversation.state.type == "in_doubt")
        return conversation


async def outcome(asking: Awaitable[Any]) -> Any:
    """What a request returned, or what it raised."""
    try:
        return await asking
    except CompactionFailed as error:
        return "CompactionFailed", error.kind, error.sentence


ANSWER = {"When?": "6:30 PM"}
RESUMES = Policy(questions=Questions(cancel="resume"), retry=Retry(attempts=1))
OTHER = Policy(questions=Questions(deadline=60.0))


def first(conversation: Conversation) -> str:
    """The id of the first call of this conversation."""
    return call_of(conversation, "call_1_0")


CASES = [
    Case("send", lambda it: it.send("Hello", message_id="r")),
    Case("send that asks", lambda it: it.send("Ask?", message_id="r")),
    Case("answer what was seen", lambda it: it.answer(ANSWER, request_id="r"), ("Ask?",)),
    Case("answer", lambda it: it.answer(ANSWER, call_id=first(it), request_id="r"), ("Ask?",)),
    Case(
        "answer the first of two",
        lambda it: it.answer(ANSWER, call_id=first(it), request_id="r"),
        ("Ask? Ask?",),
    ),
    Case("decline what was seen", lambda it: it.decline(request_id="r"), ("Ask?",)),
    Case("decline", lambda it: it.decline(first(it), request_id="r"), ("Ask?",), RESUMES),
    Case("approve", lambda it: it.approve(first(it), True, request_id="r"), ("Pay",)),
    Case("deny", lambda it: it.approve(first(it), False, "No.", request_id="r"), ("Pay",)),
    Case(
        "change",
        lambda it: it.approve(first(it), True, arguments={"amount": 7}, request_id="r"),
        ("Pay",),
    ),
    Case("resolve", lambda it: it.resolve(first(it), "did_not_run", request_id="r"), ("Book 1",), dies=True),
    Case("cancel what was seen", lambda it: it.cancel(request_id="r"), ("Ask?",)),
    Case("cancel", lambda it: it.cancel(1, request_id="r"), ("Ask?",)),
    Case("cancel nothing", lambda it: it.cancel(request_id="r"), ("Hello",)),
    Case("cancel another turn", lambda it: it.cancel(7, request_id="r"), ("Ask?",)),
    Case("retry", lambda it: it.retry(request_id="r"), ("Fail",)),
    Case("set_policy", lambda it: it.set_policy(OTHER, request_id="r")),
    Case("set_tools", lambda it: it.set_tools(["pay"], request_id="r"), ("Hello",)),
    Case("set_tools to all", lambda it: it.set_tools(None, request_id="r"), ("Ask?",)),
    Case("set_title", lambda it: it.set_title("Dinner", request_id="r")),
    Case("set_system", lambda it: it.set_system("Be brief.", request_id="r"), ("Hello",)),
    Case("set_metadata", lambda it: it.set_metadata({"table": 4}, request_id="r")),
    Case("compact", lambda it: it.compact(request_id="r"), ("Hello", "And you?")),
    Case("compact in vain", lambda it: it.compact(request_id="r"), ("Hello, in vain",)),
    Case("close", lambda it: it.close(request_id="r"), ("Hello",)),
    Case("close a turn", lambda it: it.close(request_id="r"), ("Ask?",)),
]
