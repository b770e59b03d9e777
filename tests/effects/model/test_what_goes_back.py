"""What a model wrote for itself goes back to its family, and no other model gets it, over a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.servers.model_server import (
    Answer,
    Failure,
    ModelServer,
    OpenAi,
    answers,
    call,
    fails,
    thinks,
)
from turnwise import Engine, LlmFailure, ModelAnswer, ModelCall, Turn, presets, tool
from turnwise.states import Policy
from turnwise.testing import FunctionLlm

Json = dict[str, Any]

SEAL = "c2VhbGVkIGJ5IGl0cyBwcm92aWRlcg=="
LONG_SEAL = SEAL.strip("=") * 90
THINKING: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096}
AT_ONCE = presets.assistant().replace(retry={"attempts": 1, "base": 0.01})


@tool(crash="pure")
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"Rain in {city}."


@tool(approval=True)
async def book(city: str) -> str:
    """Book a trip."""
    return f"Booked {city}."


def sealed(name: str, call_id: str, more: Json, **arguments: Any) -> Any:
    """A call with this id and these further fields."""
    made = call(name, **arguments)
    return type(made)(made.name, made.arguments, call_id, more=more)


def assistant(body: Json) -> list[Json]:
    """The messages of the assistant in a request."""
    return [message for message in body["messages"] if message["role"] == "assistant"]


def calls_in(body: Json) -> list[Json]:
    """The calls in a request."""
    return [made for message in assistant(body) for made in message.get("tool_calls") or ()]


async def ask(model: Any, *texts: str, policy: Policy | None = None, **options: Any) -> list[Turn]:
    """Say these texts to the model, and return the turns."""
    async with Engine.open("sqlite://", model=model, tools=[weather, book], policy=policy, **options) as engine:
        conversation = await engine.create()
        return [await conversation.send(text) for text in texts]


class TestReasoning:
    """A provider in thinking mode refuses a message with calls that comes back without its reasoning."""

    def needs_reasoning(self, name: str = "reasoning_content") -> Callable[[Json], Answer | Failure]:
        """Answer like such a provider."""

        def script(body: Json) -> Answer | Failure:
            if any(message.get("tool_calls") and not message.get(name) for message in assistant(body)):
                return fails(400, {"error": {"message": f"Missing `{name}`", "type": "invalid_request_error"}})
            if body["messages"][-1]["role"] == "tool":
                return answers("It rains.")
            return answers(thinks("Look ", "it up."), call("weather", city="Oslo"))

        return script

    @pytest.mark.parametrize(
        "model",
        [
            "openai/some-reasoner",
            "deepseek/deepseek-chat",
            "moonshot/kimi-k2-thinking",
            "hosted_vllm/qwen3",
            "lm_studio/gpt-oss",
            "litellm_proxy/glm-5",
        ],
    )
    async def test_it_goes_back_with_the_calls_in_this_turn_and_later(self, model: str) -> None:
        """Under the same name, word for word."""
        async with ModelServer(self.needs_reasoning(), OpenAi(model)) as server:
            first, second = await ask(server.llm(), "Oslo?", "And again?")

        assert (first.reply, second.reply) == ("It rains.", "It rains.")
        assert [message.get("reasoning_content") for message in assistant(server.bodies[-1])[::2]] == [
            "Look it up."
        ] * 2
        assert len(server.requests) == 4

    async def test_another_model_does_not_get_it(self) -> None:
        """The fallback gets the call alone, with an id that every provider takes."""
        refuses = [answers(thinks("Hm."), call("weather", city="Oslo")), fails(503)]
        async with ModelServer(refuses) as first, ModelServer([answers("Rain.")]) as second:
            (turn,) = await ask(
                first.llm("openai/one"), "Oslo?", policy=AT_ONCE, fallback_models=[second.llm("openai/other")]
            )

        (message,) = assistant(second.bodies[0])
        assert turn.reply == "Rain."
        assert message.keys() <= {"role", "content", "tool_calls"}
        assert message["tool_calls"][0]["id"] == "call00001"

    @pytest.mark.parametrize("model", ["deepseek/deepseek-reasoner", "openai/kimi-k2-thinking", "openai/unheard-of"])
    async def test_a_model_that_needs_it_takes_the_calls_of_another(self, model: str) -> None:
        """It is filled in for makers that need it, and for any model that says so."""
        plain = [answers(call("weather", city="Oslo")), fails(503)]
        async with ModelServer(plain) as first, ModelServer(self.needs_reasoning(), OpenAi(model)) as second:
            (turn,) = await ask(first.llm("openai/one"), "Oslo?", policy=AT_ONCE, fallback_models=[second.llm()])

        assert turn.reply == "It rains."
        assert len(second.requests) == (2 if "unheard" in model else 1)

    async def test_a_field_that_the_provider_refuses_is_left_out_from_then_on(self) -> None:
        """A request without it is sent in the same turn, and the next one does not have it."""

        def script(body: Json) -> Answer | Failure:
            if any("reasoning_content" in message for message in assistant(body)):
                return fails(400, {"error": {"message": "property 'reasoning_content' is unsupported"}})
            if body["messages"][-1]["role"] == "tool":
                return answers("It rains.")
            return answers(thinks("Hm."), call("weather", city="Oslo"))

        async with ModelServer(script) as server:
            turns = await ask(server.llm(), "Oslo?", "Again?")

        assert [turn.reply for turn in turns] == ["It rains.", "It rains."]
        assert sum("reasoning_content" in str(body["messages"]) for body in server.bodies) == 2


class TestSignaturesOfCalls:
    """A call goes back with everything that its provider wrote on it."""

    def needs_seal(self, first: Any, is_sealed: Callable[[Json], bool]) -> Callable[[Json], Answer | Failure]:
        """Answer like a provider that refuses a call without its seal."""

        def script(body: Json) -> Answer | Failure:
            made = calls_in(body)
            if made and not is_sealed(made[0]):
                return fails(400, {"error": {"message": "Function call is missing a thought_signature", "code": 400}})
            return answers("It rains.") if body["messages"][-1]["role"] == "tool" else answers(*first)

        return script

    @pytest.mark.parametrize(
        "call_id", [f"call_7__thought__{SEAL}", f"call_7__thought__{LONG_SEAL}", "functions.weather:0"]
    )
    async def test_an_id_goes_back_as_it_came(self, call_id: str) -> None:
        """However long it is, in its turn and in later ones."""
        script = self.needs_seal([sealed("weather", call_id, {}, city="Oslo")], lambda made: made["id"] == call_id)
        async with ModelServer(script) as server:
            turns = await ask(server.llm("openai/gemini-3-flash"), "Oslo?", "Well?")

        results = [one["tool_call_id"] for one in server.bodies[1]["messages"] if one["role"] == "tool"]
        assert [turn.reply for turn in turns] == ["It rains.", "It rains."]
        assert results == [call_id]

    async def test_a_repeated_id_goes_back_once(self) -> None:
        """No provider takes an id twice."""
        again = [answers(sealed("weather", "call_0", {}, city=city)) for city in ("Oslo", "Bergen")]
        async with ModelServer([*again, answers("Rain.")]) as server:
            await ask(server.llm(), "Oslo?")

        assert [made["id"] for made in calls_in(server.bodies[-1])] == ["call_0", "call00001"]

    async def test_gemini_takes_the_calls_of_another_model(self) -> None:
        """Over OpenAI's protocol too, where nobody else fills in that there is no signature."""
        foreign = FunctionLlm(_call_then_fail())
        script = self.needs_seal([], lambda made: "google" in made.get("extra_content", {}))
        async with ModelServer(script) as server:
            (turn,) = await ask(
                foreign, "Oslo?", policy=AT_ONCE, fallback_models=[server.llm("openai/gemini-3-pro-preview")]
            )

        assert turn.reply == "It rains."
        assert len(server.requests) == 1


def _call_then_fail(**opaque: Any) -> Callable[[Any], Any]:
    asked: Iterator[int] = iter(range(100))

    def answer(request: Any) -> ModelAnswer:
        if next(asked):
            raise LlmFailure("server_error", "It is down.")
        return ModelAnswer(
            tool_calls=(ModelCall("1", "weather", '{"city": "Oslo"}', opaque=opaque),), finish_reason="tool_calls"
        )

    return answer
