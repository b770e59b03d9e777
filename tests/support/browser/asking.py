"""Conversations that need a person, for tests of the page: a model that asks, and tools that must be allowed.

What the user says chooses what the model does. When a result arrives, the model says what it received, so a test sees
in the page what reached the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from turnwise import Engine, Policy, SubAgentRules, ToolContext, UserQuestion, presets, tool
from turnwise.effects.model.port import ModelAnswer, ModelRequest
from turnwise.testing import FunctionLlm, call, failure, reply

from ..http.live_server import LiveServer
from ..tools import result_in

EXPERIENCE = {
    "question": "Which table would you like?",
    "header": "Table",
    "options": [
        {"label": "Window", "description": "Quiet, with a view of the harbour"},
        {"label": "Bar", "description": "You see the cooks at work"},
    ],
}
EXTRAS = {
    "question": "What else do you need?",
    "header": "Extras",
    "multiSelect": True,
    "options": [{"label": "High chair"}, {"label": "Parking, covered"}, {"label": "Vegan menu"}],
}
WIDE = "+------+----------------------+\n| list | chat                 |\n+------+----------------------+"
NARROW = "+------------+\n| chat       |\n+------------+"
LAYOUT = {
    "question": "Which layout do you prefer?",
    "header": "Layout",
    "options": [{"label": "Wide", "preview": WIDE}, {"label": "Narrow", "preview": NARROW}, {"label": "No matter"}],
}
MARKUP = "<img src=x onerror=alert(1)><script>alert(1)</script>"
HOSTILE = {
    "question": f"Is {MARKUP} a text?",
    "header": "<b>hi</b>",
    "options": [{"label": MARKUP, "description": MARKUP, "preview": MARKUP}, {"label": "__proto__"}],
}

BOOK, TABLE, EXTRA, BOTH, LAYOUTS, ATTACK = (
    "Book it",
    "A table",
    "Extras",
    "A table with extras",
    "A layout",
    "An attack",
)
OPEN, PAY, FAIL, DELEGATE, PLAN = "Ask me openly", "Pay the bill", "Fail once", "Delegate it", "Plan it"
TRANSFER = "Transfer it"
DISGUISE, RUN_LONG, NEST = "Pay in disguise", "Run a long command", "Plan it deeply"
OPENLY = ("Under which name?", "At what time?")
TASK = "Find out which table they want"

BOOKING = {"restaurant": "Miku", "party": 2, "terrace": True}
ACCOUNT = 12345678901234567890
"""A number that is no number in JavaScript."""
DISGUISED = "p\u0430ypal\u3164\u00a0\u202e5\ufe0f 👩\u200d👩"
"""A word with a Cyrillic letter, characters that nobody sees, and an emoji in which nothing is hidden."""
LONG = "\n".join(f"step {number}" for number in range(1, 200)) + "\nremove everything"
DEEP: dict[str, Any] = {"stop": "at the bottom"}
for _ in range(120):
    DEEP = {"day": DEEP}
PLANNED = {"days": [{"day": "Monday", "stops": ["Harbour", "Museum"]}]}


def ask(*questions: Mapping[str, Any]) -> ModelAnswer:
    """Return an answer of the model that asks these questions."""
    return call("ask_user_question", questions=[*questions])


ANSWERS: Mapping[str, ModelAnswer] = {
    BOOK: call("book_table", **BOOKING),
    TABLE: ask(EXPERIENCE),
    EXTRA: ask(EXTRAS),
    BOTH: ask(EXPERIENCE, EXTRAS),
    LAYOUTS: ask(LAYOUT),
    ATTACK: ask(HOSTILE),
    OPEN: call("ask_openly"),
    PAY: call("pay", amount=20),
    DELEGATE: call("spawn_agents", tasks=[TASK]),
    TASK: ask(EXPERIENCE),
    PLAN: call("plan_trip", plan=PLANNED),
    TRANSFER: call("transfer_money", account=ACCOUNT),
    DISGUISE: call("run_command", command=DISGUISED),
    RUN_LONG: call("run_command", command=LONG),
    NEST: call("plan_trip", plan=DEEP),
}
"""What the model does when it is told this."""


@tool(approval=True)
async def book_table(restaurant: str, party: int, terrace: bool = False) -> str:
    """Book a table."""
    return f"Booked at {restaurant} for {party}, {'on the terrace' if terrace else 'inside'}."


@tool(approval=True)
async def plan_trip(plan: dict[str, Any]) -> str:
    """Plan a trip."""
    return f"Planned: {plan}"


@tool(approval=True, approval_by="operator")
async def transfer_money(account: int) -> str:
    """Transfer money to an account."""
    return f"Transferred to {account}."


@tool(approval=True)
async def run_command(command: str) -> str:
    """Run a command on the server.

    It runs as the user that the server runs as\u202e.
    """
    return f"Ran {len(command)} characters."


@tool(exclusive=True, crash="idempotent")
async def ask_openly(context: ToolContext) -> str:
    """Ask the user something that any text answers."""
    given = [await context.ask([UserQuestion(question=text)]) for text in OPENLY]
    return f"The answers are {[next(iter(one.answers.values())) for one in given]}"


@tool
async def pay(amount: int) -> str:
    """Pay the bill, which must not be done twice."""
    import asyncio

    await asyncio.Event().wait()
    return f"Paid {amount}."


TOOLS = [book_table, plan_trip, transfer_money, run_command, ask_openly, pay, "ask_user_question", "spawn_agents"]
POLICY = presets.assistant().replace(sub_agents=SubAgentRules(questions="ask_user"))


class AskingModel(FunctionLlm):
    """The model of these conversations."""

    def __init__(self) -> None:
        super().__init__(self._answer, name="asking")
        self._failed = False

    def _answer(self, request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last["role"] == "tool":
            return reply(f"I received: `{result_in(last['content'])}`")
        said = str(last["content"])
        if said == FAIL and not self._failed:
            self._failed = True
            return failure("authentication", "The key was not accepted.")
        return ANSWERS.get(said, reply(f"You said: {said}"))


def asking_engine(database: Path | str) -> Engine:
    """Return an engine with this model and these tools. It is not open yet."""
    return Engine.open(database, model=AskingModel(), tools=TOOLS, policy=POLICY)


async def begin(engine: Engine, text: str, title: str = "", policy: Policy | None = None) -> str:
    """Begin a conversation with this message, and return its id. It does not wait for the answer."""
    conversation = await engine.create(title=title or text, policy=policy)
    await conversation.send(text, wait=False)
    return conversation.id


class Conversations:
    """The conversations of a server, which a test begins and looks at beside the page."""

    def __init__(self, server: LiveServer, engine: Engine) -> None:
        self.server = server
        self.engine = engine

    def begin(self, text: str, policy: Policy | None = None) -> str:
        """Begin a conversation with this message, under this policy or that of the engine, and return the address that
        shows it in the page."""
        return self.address(self.server.run(begin, self.engine, text, policy=policy))

    def address(self, conversation_id: str) -> str:
        """Return the address that shows this conversation in the page."""
        return f"{self.server.url}/#/c/{quote(conversation_id, safe='')}"

    def state(self, address: str) -> str:
        """Return the type of the state of the conversation that this address shows."""
        return self.read(address)["state"]["type"]

    def read(self, address: str) -> dict[str, Any]:
        """Return what the server tells of the conversation that this address shows."""
        with self.server.client() as client:
            response = client.get(f"/conversations/{address.rpartition('/')[2]}")
            return dict(response.raise_for_status().json())
