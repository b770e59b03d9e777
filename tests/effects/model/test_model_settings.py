"""Parameters of model requests: who sets them, and what becomes of a choice that forces a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Engine,
    ModelRequest,
    ModelSettings,
    Policy,
    Profile,
    Retry,
    presets,
    tool,
)
from turnwise.testing import FunctionLlm, call, failure, reply

from ...support.servers.model_server import ANTHROPIC, GEMINI, OPENAI, Dialect, ModelServer, answers
from ...support.servers.model_server import call as calls

WARM, COLD, HOT = (ModelSettings(temperature=number) for number in (0.5, 0.0, 1.0))


@tool(crash="pure")
def weather(city: str = "") -> str:
    """Tell the weather."""
    return "Rain."


@tool(crash="pure", name="maps_find")
def find() -> str:
    """Find it."""
    return "Here."


class Asked:
    """A model that notes what it was asked with and answers by a script, the last answer again at its end."""

    def __init__(self, *script: Any) -> None:
        self.requests: list[ModelRequest] = []
        self._script = script or (reply("Done."),)

    def __call__(self, request: ModelRequest) -> Any:
        """Answer the request."""
        self.requests.append(request)
        return self._script[min(len(self.requests), len(self._script)) - 1]

    @property
    def choices(self) -> list[str]:
        """How the model could call tools, by request."""
        return [request.tool_choice for request in self.requests]

    def engine(self, **options: Any) -> Engine:
        """Return an engine with this model."""
        return Engine.open("sqlite://", model=FunctionLlm(self, name="it"), tools=[weather, find], **options)


class TestWhoSetsThem:
    """A message before the profile, the profile before the policy."""

    @pytest.mark.parametrize(
        ("said", "of_profile", "of_policy", "temperature"),
        [
            (None, ModelSettings(), WARM, 0.5),
            (None, COLD, WARM, 0.0),
            (HOT, COLD, WARM, 1.0),
            (ModelSettings(seed=3), COLD, WARM, 0.0),
            (HOT, ModelSettings(), ModelSettings(), 1.0),
        ],
    )
    async def test_the_nearest_one_decides(
        self, said: ModelSettings | None, of_profile: ModelSettings, of_policy: ModelSettings, temperature: float
    ) -> None:
        """What it leaves open, the one behind it decides."""
        asked = Asked()
        policy = Policy(settings=of_policy)

        async with asked.engine(policy=policy, profiles=[Profile(name="cook", settings=of_profile)]) as engine:
            await (await engine.create()).send("Hi", settings=said)

        assert asked.requests[0].settings.temperature == temperature
        assert asked.requests[0].settings.seed == (said.seed if said else None)

    async def test_those_of_a_message_hold_for_its_turn(self) -> None:
        """In all its requests, also when it is tried again after a failure, and in no other turn."""
        asked = Asked(call("weather"), failure("authentication"), reply("One."), reply("Two."))

        async with asked.engine() as engine:
            conversation = await engine.create()
            await conversation.send("Hi", settings=ModelSettings(seed=7))
            await conversation.retry()
            await conversation.send("And now?")

        assert [request.settings.seed for request in asked.requests] == [7, 7, 7, None]

    async def test_of_messages_that_begin_a_turn_together_the_later_one_decides(self) -> None:
        """What it leaves open, the earlier one decides."""
        asked = Asked(call("ask"), reply("One."), reply("Two."))

        @tool(crash="pure")
        async def ask() -> str:
            """Let two messages wait."""
            options: dict[str, Any] = {"when_busy": "queue", "wait": False}
            await conversation.send("A", settings=ModelSettings(seed=1, top_p=0.5), **options)
            await conversation.send("B", settings=ModelSettings(seed=2), **options)
            return "Asked."

        async with Engine.open("sqlite://", model=FunctionLlm(asked), tools=[ask]) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await conversation.wait()

        assert asked.requests[0].settings == ModelSettings()
        assert asked.requests[-1].settings == ModelSettings(seed=2, top_p=0.5)

    async def test_they_are_stored_with_the_message(self, database_file: Path) -> None:
        """Another process asks with the same, and a message without settings is stored as before."""
        asked = Asked(failure("authentication"), reply("Done."))
        model = FunctionLlm(asked, name="it")
        async with Engine.open(database_file, model=model) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", settings=ModelSettings(stop="END"))
            written = [entry.event for entry in await conversation.events()][1].to_json()
        async with Engine.open(database_file, model=model) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.retry()
            report = await conversation.replay()

        assert json.loads(written)["settings"]["stop"] == ["END"]
        assert asked.requests[-1].settings == ModelSettings(stop=("END",))
        assert report.divergence is None


class TestForcedCalls:
    """`tool_choice` over the requests of a turn."""

    @pytest.mark.parametrize(("chosen", "sent"), [("required", "required"), ("maps_find", "maps_find")])
    async def test_a_call_is_forced_once(self, chosen: str, sent: str) -> None:
        """Behind the first response the model chooses by itself, so the turn can end; the next turn is forced again."""
        asked = Asked(call("weather"), reply("Rain."), call("weather"), reply("Rain."))

        async with asked.engine(policy=Policy(settings=ModelSettings(tool_choice=chosen))) as engine:
            conversation = await engine.create()
            for _ in range(2):
                assert (await conversation.send("The weather?")).reply == "Rain."

        assert asked.choices == [sent, "auto"] * 2

    async def test_a_request_that_failed_is_forced_again(self) -> None:
        """Its turn has no response yet."""
        asked = Asked(failure("timeout"), call("weather"), failure("authentication"), reply("Rain."))
        policy = Policy(retry=Retry(attempts=2, base=0.0))

        async with asked.engine(policy=policy) as engine:
            conversation = await engine.create()
            await conversation.send("The weather?", settings=ModelSettings(tool_choice="weather"))
            await conversation.retry()

        assert asked.choices == ["weather", "weather", "auto", "auto"]

    async def test_none_holds_for_the_whole_turn(self) -> None:
        """The tools stay listed."""
        asked = Asked(call("weather"), reply("No."))

        async with asked.engine() as engine:
            await (await engine.create()).send("Hi", settings=ModelSettings(tool_choice="none"))

        assert asked.choices == ["none", "none"]
        assert all(request.tools for request in asked.requests)

    async def test_a_tool_that_is_not_offered_is_not_forced(self) -> None:
        """The model chooses by itself."""
        asked = Asked()

        async with asked.engine() as engine:
            await (await engine.create()).send("Hi", settings=ModelSettings(tool_choice="fly"))

        assert asked.choices == ["auto"]

    async def test_the_last_request_of_a_turn_allows_no_call(self) -> None:
        """Whatever was chosen."""
        asked = Asked()
        policy = presets.assistant().replace(limits={"requests": 1})

        async with asked.engine(policy=policy) as engine:
            await (await engine.create()).send("Hi", settings=ModelSettings(tool_choice="required"))

        assert asked.choices == ["none"]


GIVEN = ModelSettings(tool_choice="weather", stop=("END",), parallel_tool_calls=False)


class TestOverASocket:
    """What providers are sent."""

    @pytest.mark.parametrize(
        ("dialect", "expected"),
        [
            (
                OPENAI,
                {
                    "tool_choice": {"type": "function", "function": {"name": "weather"}},
                    "stop": ["END"],
                    "parallel_tool_calls": False,
                },
            ),
            (
                ANTHROPIC,
                {
                    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
                    "stop_sequences": ["END"],
                },
            ),
            (
                GEMINI,
                {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowed_function_names": ["weather"]}}},
            ),
        ],
    )
    async def test_each_in_its_own_words(self, dialect: Dialect, expected: dict[str, Any]) -> None:
        """Both requests of the turn are taken."""
        server = ModelServer([answers(calls("weather", city="Oslo")), answers("Rain.")], dialect)
        async with server, Engine.open("sqlite://", model=server.llm(), tools=[weather]) as engine:
            turn = await (await engine.create()).send("Hi", settings=GIVEN)

        first, second = server.bodies
        assert turn.reply == "Rain."
        assert {name: first.get(name) for name in expected} == expected
        assert second.get("tool_choice") != first.get("tool_choice") or dialect is GEMINI

    async def test_what_means_nothing_without_tools_is_not_sent(self) -> None:
        """Some providers refuse it."""
        async with ModelServer([answers("Hello.")]) as server, Engine.open("sqlite://", model=server.llm()) as engine:
            await (await engine.create()).send("Hi", settings=GIVEN)

        assert {"stop"} == {"stop", "tool_choice", "parallel_tool_calls"} & server.bodies[0].keys()

    async def test_probabilities_are_asked_for(self) -> None:
        """Of other tokens only together with those of the response."""
        async with ModelServer([answers("Hello.")]) as server, Engine.open("sqlite://", model=server.llm()) as engine:
            await (await engine.create()).send("Hi", settings=ModelSettings(top_logprobs=2))

        assert (server.bodies[0]["logprobs"], server.bodies[0]["top_logprobs"]) == (True, 2)


@pytest.mark.parametrize(
    "wrong", [{"tool_choice": ""}, {"stop": [""]}, {"top_logprobs": 21}, {"top_logprobs": -1}, {"parallel": True}]
)
def test_what_no_provider_takes_is_refused(wrong: dict[str, Any]) -> None:
    """Where it is written."""
    with pytest.raises(ValueError):
        ModelSettings(**wrong)
