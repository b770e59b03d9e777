"""Where each protocol keeps what its models seal, and that it comes back there, over a real socket."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.servers.model_server import (
    GEMINI,
    OLLAMA,
    Call,
    Data,
    Dialect,
    Gemini,
    ModelServer,
    OpenAi,
    Piece,
    answers,
    call,
    thinks,
)
from turnwise import Engine, tool

Json = dict[str, Any]

SEAL = "c2VhbGVkIGJ5IGl0cyBwcm92aWRlcg=="


@tool(crash="pure")
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"Rain in {city}."


def signed(city: str, signature: str = "", **more: Any) -> Call:
    """A call with this signature and these further fields."""
    made = call("weather", city=city)
    return Call(made.name, made.arguments, f"call_{city}", signature=signature, more=more)


async def asked_twice(dialect: Dialect, *pieces: Piece) -> list[Json]:
    """Let the model answer with these pieces first, and return the bodies of the request behind the result and of the
    one of the next turn."""
    script = [answers(*pieces), answers("It rains."), answers("Bye.")]
    async with (
        ModelServer(script, dialect) as server,
        Engine.open("sqlite://", model=server.llm(), tools=[weather]) as engine,
    ):
        conversation = await engine.create()
        replies = [(await conversation.send(text)).reply for text in ("Oslo?", "Thanks")]

    assert replies == ["It rains.", "Bye."]
    return server.bodies[1:]


def parts_in(body: Json) -> list[Json]:
    """The parts of the first content of Gemini's in a request."""
    return next(content["parts"] for content in body["contents"] if content["role"] == "model")


def first_in(body: Json) -> Json:
    """The first message of the assistant in a request."""
    return next(message for message in body["messages"] if message["role"] == "assistant")


class TestGemini:
    """Over its own protocol a signature stands on a part."""

    dialect = Gemini("gemini/gemini-3-pro-preview")

    async def test_the_first_of_parallel_calls_is_signed(self) -> None:
        """The other is not, and gets no signature."""
        for body in await asked_twice(self.dialect, signed("Oslo", SEAL), signed("Rome")):
            assert [part.get("thoughtSignature") for part in parts_in(body)] == [SEAL, None]

    async def test_a_text_before_the_calls_is_signed(self) -> None:
        """Each signature stays on its part."""
        part = {"text": "Let me see.", "thoughtSignature": "dGV4dA=="}
        for body in await asked_twice(self.dialect, Data(GEMINI.response([part])), signed("Oslo", SEAL)):
            assert [part.get("thoughtSignature") for part in parts_in(body)] == ["dGV4dA==", SEAL]

    async def test_the_id_of_a_call_goes_back(self) -> None:
        """On the call and on its response."""
        part = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}, "id": "fc-1"}, "thoughtSignature": SEAL}
        for body in await asked_twice(Gemini("gemini/gemini-3.5-pro"), Data(GEMINI.response([part]))):
            (made,) = parts_in(body)
            assert (made["function_call"]["id"], made["thoughtSignature"]) == ("fc-1", SEAL)

    async def test_over_openais_protocol(self) -> None:
        """In `extra_content`, also of a parallel call that is not signed."""
        more = {"extra_content": {"google": {"thought_signature": SEAL}}}
        for body in await asked_twice(OpenAi("openai/gemini-3-pro"), signed("Oslo", **more), signed("Rome")):
            assert [made.get("extra_content") for made in first_in(body)["tool_calls"]] == [more["extra_content"], None]


def _details(text: str) -> Json:
    return {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}


class TestFurtherFields:
    """What a provider adds to OpenAI's protocol comes back under its name."""

    @pytest.mark.parametrize(
        "model",
        ["openrouter/anthropic/claude-sonnet-4.5", "openrouter/google/gemini-3-pro", "openrouter/deepseek/deepseek-v4"],
    )
    async def test_reasoning_details_of_openrouter(self, model: str) -> None:
        """Joined from their pieces, with what is encrypted for a call by its id."""
        dialect = OpenAi(model, _details)
        secret = {"type": "reasoning.encrypted", "data": SEAL, "id": "call_Oslo", "index": 1}
        chunk = {"index": 0, "delta": {"reasoning_details": [secret]}, "finish_reason": None}
        data = Data({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [chunk]})

        for body in await asked_twice(dialect, thinks("Look ", "it up."), data, signed("Oslo")):
            message = first_in(body)
            told = {"type": "reasoning.text", "text": "Look it up.", "index": 0}
            assert message["reasoning_details"] == [told, secret]
            assert message["reasoning"] == "Look it up."
            assert (message["tool_calls"][0]["id"], "reasoning_content" in message) == ("call_Oslo", False)

    async def test_fields_that_nobody_knows(self) -> None:
        """On a call."""
        for body in await asked_twice(OpenAi("openai/custom"), signed("Oslo", x_seal={"a": [1, None, SEAL]})):
            assert first_in(body)["tool_calls"][0]["x_seal"] == {"a": [1, None, SEAL]}

    @pytest.mark.parametrize("model", ["hosted_vllm/qwen3", "lm_studio/gpt-oss", "openai/gpt-oss"])
    async def test_thinking_under_another_name(self, model: str) -> None:
        """As the server named it, and not under the usual name."""
        dialect = OpenAi(model, lambda text: {"reasoning": text})
        for body in await asked_twice(dialect, thinks("Hm."), signed("Oslo")):
            message = first_in(body)
            assert (message["reasoning"], "reasoning_content" in message) == ("Hm.", False)

    async def test_thinking_of_ollama(self) -> None:
        """In the field of its own protocol."""
        for body in await asked_twice(OLLAMA, thinks("Hm."), signed("Oslo")):
            assert first_in(body)["thinking"] == "Hm."
