"""The conversations of the demonstration: what was said in each, by the travel desk and by its users.

Each function holds one conversation, and leaves it in a state of its own: at rest, or waiting for the visitor.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....effects.model.port import LlmFailure
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....states import presets
from ....states.policy import Policy
from .scripted_model import Answer, ScriptedModel, call, says
from .texts import CITIES, CONNECTION, FOUND, PACKING, PASSED_ON, PLAN, WHICH_TRAIN, WHICH_WAY

SYSTEM = (
    "You are a travel desk. You help people to travel by train, look things up before you answer, and ask them "
    "where there is more than one good way."
)


class TravelDesk:
    """Holds conversations with a scripted model."""

    def __init__(self, engine: Engine, model: ScriptedModel) -> None:
        self._engine = engine
        self._model = model

    async def hold(
        self,
        conversation_id: str,
        title: str,
        messages: Sequence[str],
        script: Sequence[Answer],
        policy: Policy | None = None,
    ) -> Conversation:
        """Open a conversation and send the messages, each when the turn before it has ended or rests."""
        self._model.write(conversation_id, script)
        conversation = await self._engine.create(
            conversation_id=conversation_id, title=title, system=SYSTEM, policy=policy
        )
        for message in messages:
            await conversation.send(message)
        return conversation

    async def plan_a_weekend(self) -> None:
        """A finished conversation: thoughts, two tools, a question that was answered, and Markdown."""
        looking_up = says(
            "I'll look up the trains and the weather.",
            call("find_train", destination="Vienna", day="Saturday"),
            call("check_weather", city="Vienna", day="Saturday"),
            thinking="They need a train and an idea of the weather. Neither depends on the other, so I ask for both.",
        )
        asking = says("There are three good trains.", call("ask_user_question", questions=[WHICH_TRAIN]))
        conversation = await self.hold(
            "vienna",
            "A weekend in Vienna",
            ["Two of us want to see Klimt's Kiss in Vienna on Saturday. Which train from Zürich, and will it rain?"],
            [looking_up, asking, says(PLAN), says(CONNECTION)],
        )
        await conversation.answer({WHICH_TRAIN["question"]: "RJX 163"})
        await conversation.send("How do we get from the station to the museum?")

    async def ask_for_a_train(self) -> None:
        """A conversation that waits at a question with radio buttons."""
        await self.hold(
            "lisbon",
            "The long way to Lisbon",
            ["I'd like to go to Lisbon by train, and I am in no hurry."],
            [says("That takes two days.", call("ask_user_question", questions=[WHICH_WAY]))],
        )

    async def ask_what_to_pack(self) -> None:
        """A conversation that waits at two questions, the first with checkboxes."""
        await self.hold(
            "alps",
            "Packing for the Alps",
            ["What should I pack for a week of walking in the Alps?"],
            [says("That depends on you.", call("ask_user_question", questions=PACKING))],
        )

    async def ask_to_book(self) -> None:
        """A conversation that waits until somebody allows a booking."""
        booking = call("book_train", train="EC 191", seats=2, travel_class="second", window=True)
        await self.hold(
            "copenhagen",
            "Two seats to Copenhagen",
            ["Please book two seats at the window on the EC 191 to Copenhagen."],
            [says("I'll book them as soon as you allow it.", booking)],
        )

    async def fail(self) -> None:
        """A conversation that failed, because its provider refused the key."""
        await self.hold(
            "rome",
            "A night train to Rome",
            ["Is there a night train to Rome on Sunday?"],
            [LlmFailure("authentication", "The provider does not accept the key.")],
        )

    async def work_in_the_background(self) -> None:
        """An agent with a user, one that works for it in the background, and the sub-agents of that one."""
        desk = await self.hold(
            "desk",
            "The desk and its scout",
            ["Where is the weather best on Saturday? Take your time."],
            [
                says("My scout is asking in three cities. You will hear from me."),
                says(PASSED_ON),
            ],
            presets.foreground(),
        )
        scout = await self._engine.create(
            conversation_id="scout",
            role="background",
            works_for=desk,
            system="You find things out for a travel desk.",
            title="Scout",
        )
        tasks = [f"Check the weather in {city} on Saturday" for city in CITIES]
        self._model.write(
            scout.id,
            [
                says("One of us for each city.", call("spawn_agents", tasks=tasks)),
                says("The user waits for this.", call("send_user_message", text=FOUND)),
                says("Everything is passed on."),
            ],
        )
        await scout.send("Find out where the sun shines on Saturday.")
        await self._engine.delivered()
        await desk.wait()
