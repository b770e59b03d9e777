"""The demonstration: a travel desk with conversations that a visitor finds under way, in a database that is removed
afterwards.

Each conversation is held to a state of its own: at rest, or waiting for the visitor. Its trains, weather, prices and
times are made up, and what the model says in it is written here. The log calls that scripted model by the name of the
model that answers visitors, so that each conversation goes on with that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ...effects.model.port import LlmFailure, ModelAnswer
from ...effects.model.rehearsal import RehearsalLlm, call, says
from ...effects.tools.context import ToolContext
from ...effects.tools.tool import tool
from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...states import presets
from ...states.policy import Policy

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
    scripted = RehearsalLlm(name=model, delay=0)
    async with Engine.open(database, model=scripted, tools=TravelTools(delay=0).tools, policy=POLICY) as engine:
        async with asyncio.TaskGroup() as group:
            for conversation_id, title, message, answer in _LEFT_TO_THE_VISITOR:
                group.create_task(_hold(engine, scripted, conversation_id, title, message, [answer]))
            group.create_task(_work_in_the_background(engine, scripted))
        await _plan_a_weekend(engine, scripted)  # last, so that it heads the list


SYSTEM = (
    "You are a travel desk. You help people to travel by train, look things up before you answer, and ask them "
    "where there is more than one good way."
)


async def _hold(
    engine: Engine,
    model: RehearsalLlm,
    conversation_id: str,
    title: str,
    message: str,
    script: Sequence[ModelAnswer | LlmFailure],
    policy: Policy | None = None,
) -> Conversation:
    """Open a conversation in which these answers are given, and send its first message."""
    model.write(conversation_id, script)
    conversation = await engine.create(conversation_id=conversation_id, title=title, system=SYSTEM, policy=policy)
    await conversation.send(message)
    return conversation


async def _plan_a_weekend(engine: Engine, model: RehearsalLlm) -> None:
    """A finished conversation: thoughts, two tools, a question that was answered, and Markdown."""
    looking_up = says(
        "I'll look up the trains and the weather.",
        call("find_train", destination="Vienna", day="Saturday"),
        call("check_weather", city="Vienna", day="Saturday"),
        thinking="They need a train and an idea of the weather. Neither depends on the other, so I ask for both.",
    )
    asking = says("There are three good trains.", call("ask_user_question", questions=[_WHICH_TRAIN]))
    said = "Two of us want to see Klimt's Kiss in Vienna on Saturday. Which train from Zürich, and will it rain?"
    script = [looking_up, asking, says(PLAN), says(_CONNECTION)]
    conversation = await _hold(engine, model, "vienna", "A weekend in Vienna", said, script)
    await conversation.answer({_WHICH_TRAIN["question"]: "RJX 163"})
    await conversation.send("How do we get from the station to the museum?")


async def _work_in_the_background(engine: Engine, model: RehearsalLlm) -> None:
    """An agent with a user, one that works for it in the background, and the sub-agents of that one."""
    said = "Where is the weather best on Saturday? Take your time."
    script = [says("My scout is asking in three cities. You will hear from me."), says(_PASSED_ON)]
    desk = await _hold(engine, model, "desk", "The desk and its scout", said, script, presets.foreground())
    scout = await engine.create(
        conversation_id="scout",
        role="background",
        works_for=desk,
        system="You find things out for a travel desk.",
        title="Scout",
    )
    tasks = [f"Check the weather in {city} on Saturday" for city in _CITIES]
    model.write(
        scout.id,
        [
            says("One of us for each city.", call("spawn_agents", tasks=tasks)),
            says("The user waits for this.", call("send_user_message", text=FOUND)),
            says("Everything is passed on."),
        ],
    )
    await scout.send("Find out where the sun shines on Saturday.")
    await engine.delivered()
    await desk.wait()


BUILT_IN = ("ask_user_question", "spawn_agents", "send_user_message", "send_agent_message")

_TRAINS = (
    {"train": "RJX 163", "when": "8:40 to 16:30", "changes": "no change", "price": "€ 84"},
    {"train": "NJ 467", "when": "20:40 to 7:55", "changes": "no change, with a bed", "price": "€ 129"},
    {"train": "EC 191", "when": "10:33 to 19:21", "changes": "one change", "price": "€ 61"},
)

_WEATHER = {
    "Vienna": "sunny, with rain from 4 PM on, 17 °C",
    "Prague": "rain all day, 12 °C",
    "Rome": "rain in the morning, 16 °C",
}


class TravelTools:
    """What a travel desk can do. `delay` is how many seconds each step takes, so that visitors see the tools run."""

    def __init__(self, delay: float = 0.5) -> None:
        self._delay = delay

    @property
    def tools(self) -> list[Callable[..., Any] | str]:
        """These tools and the built-in ones beside them, for `Engine.open`."""
        return [self.find_train, self.check_weather, self.book_train, *BUILT_IN]

    @tool(crash="pure")
    async def find_train(self, destination: str, day: str, context: ToolContext) -> list[dict[str, str]]:
        """Look for a train to a city on a day."""
        for railway in ("ÖBB", "SBB", "DB"):
            context.progress(f"Asking {railway} about {destination}, {day} …")
            await asyncio.sleep(self._delay)
        return [*_TRAINS]

    @tool(crash="pure")
    async def check_weather(self, city: str, day: str) -> str:
        """Look up the weather."""
        await asyncio.sleep(self._delay)
        return f"{city}, {day}: {_WEATHER.get(city, 'clouds and sun, 15 °C')}."

    @tool(crash="idempotent", approval=True)
    async def book_train(
        self, train: str, seats: int, travel_class: Literal["first", "second"] = "second", window: bool = False
    ) -> str:
        """Book seats on a train. Somebody has to allow it first."""
        await asyncio.sleep(self._delay)
        return f"Booked: {seats} × {train}, {travel_class} class{', at the window' if window else ''}."


_TRAIN_PREVIEWS = {
    "RJX 163": "Zürich HB      8:40\nBuchs          9:50\nInnsbruck     12:18\nWien Hbf      16:30\n\n€ 84, no change",
    "NJ 467": "Zürich HB     20:40\nBuchs         22:02\nLinz           6:14\nWien Hbf       7:55\n\n€ 129, with a bed",
    "EC 191": "Zürich HB     10:33\nMünchen Hbf   14:05\nSalzburg      16:58\nWien Hbf      19:21\n\n€ 61, one change",
}

_WHICH_TRAIN: dict[str, Any] = {
    "question": "Which train shall I plan with?",
    "header": "Train",
    "options": [{"label": train, "preview": preview} for train, preview in _TRAIN_PREVIEWS.items()],
}

PLAN = """\
Here is the plan. **Take an umbrella**: it rains from four o'clock on.

| | Saturday |
|---|---|
| Train | RJX 163, no change |
| Leaves Zürich HB | 8:40 |
| Arrives at Wien Hbf | 16:30 |
| For two | € 168 |

- *The Kiss* hangs in the [Upper Belvedere](https://www.belvedere.at/en), ten minutes from the station.
- It is open until six, so reserve tickets for `16:45`.
"""

_CONNECTION = """\
1. Leave the station at **Arsenalstraße**.
2. Walk straight on for ten minutes, or take the tram to *Schloss Belvedere*.
3. Go in through the garden: from there you see the palace as it was meant to be seen.

> Tickets with a time are only valid for half an hour. You have fifteen minutes to spare.
"""

WHICH_WAY: dict[str, Any] = {
    "question": "Which way would you like to go?",
    "header": "Way",
    "options": [
        {
            "label": "Along the sea",
            "description": "Three trains, one night in Barcelona.",
            "preview": "Day 1   Genève 8:30 → Barcelona 16:34\nDay 2   Barcelona 9:00 → Madrid 11:45\n"
            "        Madrid 15:20 → Lisboa 23:58",
        },
        {
            "label": "Over Paris",
            "description": "Four trains, one night in Hendaye.",
            "preview": "Day 1   Genève 8:29 → Paris 11:42\n        Paris 13:52 → Hendaye 18:36\n"
            "Day 2   Hendaye 8:03 → Madrid 13:20\n        Madrid 15:20 → Lisboa 23:58",
        },
        {
            "label": "With the ferry",
            "description": "Two trains and a ship, two nights at sea.",
            "preview": "Day 1   Genève 9:12 → Genova 14:50\n        Genova 20:00, by ship\n"
            "Day 3   Tanger 10:00 → Tarifa 11:00\n        Algeciras 15:05 → Lisboa 23:58",
        },
    ],
}

PACKING: list[dict[str, Any]] = [
    {
        "question": "What do you have already?",
        "header": "Equipment",
        "multiSelect": True,
        "options": [
            {"label": "Boots", "description": "Worn in, with a sole that grips."},
            {"label": "A rain jacket", "description": "It rains every third day."},
            {"label": "A sleeping bag liner", "description": "The huts ask for one."},
            {"label": "Poles", "description": "For the way down."},
        ],
    },
    {
        "question": "Where do you sleep?",
        "header": "Nights",
        "options": [
            {"label": "In huts", "description": "Less to carry, and a warm supper."},
            {"label": "In a tent", "description": "Allowed above the trees, for one night."},
        ],
    },
]

_CITIES = ("Vienna", "Prague", "Rome")

FOUND = "Sun in Vienna until the afternoon; rain in Prague and Rome."
"""What the scout reports."""

_PASSED_ON = "**Vienna** it is: my scout reports sun there until the afternoon, and rain in Prague and Rome."
"""What the user reads of it."""

_LEFT_TO_THE_VISITOR: tuple[tuple[str, str, str, ModelAnswer | LlmFailure], ...] = (
    (
        "rome",
        "A night train to Rome",
        "Is there a night train to Rome on Sunday?",
        LlmFailure("authentication", "The provider does not accept the key."),
    ),
    (
        "alps",
        "Packing for the Alps",
        "What should I pack for a week of walking in the Alps?",
        says("That depends on you.", call("ask_user_question", questions=PACKING)),
    ),
    (
        "copenhagen",
        "Two seats to Copenhagen",
        "Please book two seats at the window on the EC 191 to Copenhagen.",
        says(
            "I'll book them as soon as you allow it.",
            call("book_train", train="EC 191", seats=2, travel_class="second", window=True),
        ),
    ),
    (
        "lisbon",
        "The long way to Lisbon",
        "I'd like to go to Lisbon by train, and I am in no hurry.",
        says("That takes two days.", call("ask_user_question", questions=[WHICH_WAY])),
    ),
)
"""A conversation that failed because its provider refused the key, and such as wait: at questions with checkboxes, for
somebody who allows a call, and at a question with radio buttons. Each with its title, its message and its answer."""
