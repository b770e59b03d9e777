"""What works with which provider, each cell over a real socket in the provider's own protocol.

docs/guides/providers.md has the table of it: a column for each test here, a row for each provider, and "yes" where the
test runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from turnwise import Engine, LlmFailure, ModelRequest, Retry, Token, presets, tool

from ....support.pictures import PDF, PNG, base64
from ....support.servers.model_server import (
    ANTHROPIC,
    GEMINI,
    OLLAMA,
    OPENAI,
    PARTS,
    REASONING,
    RESPONSES,
    Dialect,
    Failure,
    Json,
    ModelServer,
    Tokens,
    answers,
    call,
    fails,
    thinks,
)

QUICK = presets.assistant().replace(retry=Retry(attempts=2, base=0.0))


def refused(message: str, status: int = 400, **more: Any) -> Failure:
    """Refuse in the shape of OpenAI's errors."""
    return fails(status, {"error": {"message": message, "type": "invalid_request_error", **more}})


@dataclass(frozen=True)
class Provider:
    """A provider, as a row of the table: its protocol, the name of a model of it, and the words in which it refuses.

    `thought` finds the thinking in the message that goes back; None if the provider takes none. `sees` says whether
    this model takes images, `reads` whether PDFs reach it, and `caches` whether it tells what it read from a cache.
    """

    dialect: Dialect
    too_long: Failure
    rate_limit: Failure
    model: str | None = None
    thought: Callable[[Json], Any] | None = None
    sees: bool = True
    reads: bool = True
    caches: bool = True
    options: Json = field(default_factory=dict)


def _sealed(body: Json) -> Any:
    """The first block of the model's message in Anthropic's protocol."""
    return body["messages"][1]["content"][0].get("thinking")


def _encrypted(body: Json) -> Any:
    """The sealed reasoning in OpenAI's Responses API, and nothing unless its call follows."""
    kinds = [one.get("type") for one in body["input"]]
    assert kinds.index("function_call") == kinds.index("reasoning") + 1
    return next(one["encrypted_content"] for one in body["input"] if one.get("type") == "reasoning")


def _signature(body: Json) -> Any:
    """The signature of the call in Gemini's protocol."""
    parts = body["contents"][1]["parts"]
    return next((part["thoughtSignature"] for part in parts if {"functionCall", "function_call"} & part.keys()), None)


def _reasoning(body: Json) -> Any:
    message = next(one for one in body["messages"] if one["role"] == "assistant")
    return message.get("reasoning_content") or message.get("reasoning")


PROVIDERS: dict[str, Provider] = {
    "OpenAI": Provider(
        OPENAI,
        refused("Your input exceeds the context window of this model. Please adjust your input and try again."),
        refused("Rate limit reached for gpt-5 on tokens per min (TPM). Please try again in 7s.", 429),
    ),
    "OpenAI, Responses API": Provider(
        RESPONSES,
        refused("Your input exceeds the context window of this model. Please adjust your input and try again."),
        refused("Rate limit reached for gpt-5 on tokens per min (TPM). Please try again in 7s.", 429),
        thought=_encrypted,
    ),
    "Anthropic": Provider(
        ANTHROPIC,
        fails(
            400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 1 > 0"}}
        ),
        fails(429, {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down."}}, retry_after="7"),
        thought=_sealed,
        options={"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048},
    ),
    "Gemini": Provider(
        GEMINI,
        fails(
            400,
            {
                "error": {
                    "code": 400,
                    "status": "INVALID_ARGUMENT",
                    "message": (
                        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
                    ),
                }
            },
        ),
        fails(
            429,
            {
                "error": {
                    "code": 429,
                    "status": "RESOURCE_EXHAUSTED",
                    "message": "Quota exceeded.",
                    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}],
                }
            },
        ),
        thought=_signature,
    ),
    "DeepSeek": Provider(
        OPENAI,
        refused("This model's maximum context length is 131072 tokens. However, you requested 140000 tokens."),
        fails(429, {"error": {"message": "Rate limit reached", "type": "rate_limit_error"}}, retry_after="7"),
        model="deepseek/deepseek-reasoner",
        thought=_reasoning,
        sees=False,
        reads=False,
    ),
    "Mistral": Provider(
        PARTS,
        refused("Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
        refused("Requests rate limit exceeded. Please retry after 7 seconds.", 429),
    ),
    "OpenRouter": Provider(
        REASONING,
        refused("This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens."),
        fails(429, {"error": {"code": 429, "message": "Rate limited"}}, retry_after="7"),
        thought=_reasoning,
    ),
    "vLLM": Provider(
        OPENAI,
        refused("The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
        fails(429, {"detail": "Too many requests"}, retry_after="7"),
        model="hosted_vllm/qwen3",
        thought=_reasoning,
        reads=False,
    ),
    "Ollama": Provider(
        OLLAMA,
        fails(500, {"error": "the input length exceeds the context length"}),
        fails(429, {"error": "too many requests"}, retry_after="7"),
        reads=False,
        caches=False,
    ),
}

every_provider = pytest.mark.parametrize("name", PROVIDERS)
each_that_thinks = pytest.mark.parametrize("name", [name for name, one in PROVIDERS.items() if one.thought])
each_that_caches = pytest.mark.parametrize("name", [name for name, one in PROVIDERS.items() if one.caches])
each_that_reads = pytest.mark.parametrize("name", [name for name, one in PROVIDERS.items() if one.reads])
each_that_sees = pytest.mark.parametrize("name", [name for name, one in PROVIDERS.items() if one.sees])


def served(name: str, script: Any) -> tuple[ModelServer, Any]:
    """Return a server of this provider, and what makes a model that it serves."""
    provider = PROVIDERS[name]
    server = ModelServer(script, provider.dialect)
    return server, lambda: server.llm(provider.model, **provider.options)


def written(body: Json) -> str:
    """Return the request as text."""
    return json.dumps(body)


@tool(crash="pure")
def weather(city: str) -> str:
    """Tell the weather."""
    return f"In {city} it rains."


@pytest.mark.slow
class TestMatrix:
    """Each test is a column of the table in docs/guides/providers.md."""

    @every_provider
    async def test_streams(self, name: str) -> None:
        """Each piece of the text is shown when it arrives."""
        shown: list[Token] = []
        server, model = served(name, [answers("It ", "rains.")])

        async with server:
            answer = await model().complete(ModelRequest("m", ({"role": "user", "content": "Hi"},)), shown.append)

        assert answer.content == "It rains."
        assert [token.text for token in shown if token.text] == ["It ", "rains."]

    @every_provider
    async def test_calls(self, name: str) -> None:
        """A tool runs with the arguments that the model wrote, and the model reads what it returned."""
        server, model = served(name, [answers(call("weather", city="Oslo")), answers("It rains.")])

        async with server, Engine.open("sqlite://", model=model(), tools=[weather], policy=QUICK) as engine:
            turn = await (await engine.create()).send("The weather?")

        assert (turn.status, turn.reply) == ("completed", "It rains.")
        assert "In Oslo it rains." in written(server.bodies[1])

    @every_provider
    async def test_parallel_calls(self, name: str) -> None:
        """Several calls of one answer run, and each has its result."""
        both = answers(call("weather", city="Oslo"), call("weather", city="Rome"))
        server, model = served(name, [both, answers("It rains.")])

        async with server, Engine.open("sqlite://", model=model(), tools=[weather], policy=QUICK) as engine:
            turn = await (await engine.create()).send("The weather?")

        assert (turn.status, turn.reply) == ("completed", "It rains.")
        assert all(f"In {city} it rains." in written(server.bodies[1]) for city in ("Oslo", "Rome"))

    @each_that_thinks
    async def test_thinking_is_kept(self, name: str) -> None:
        """The thinking, or what seals it, goes back with the call within its turn."""
        sealed = call("weather", city="Oslo")
        sealed = type(sealed)(**{**vars(sealed), "signature": "c2VhbGVk"})
        first = answers(thinks("I should look.", signature="c2VhbGVk"), sealed)
        server, model = served(name, [first, answers("It rains.")])

        async with server, Engine.open("sqlite://", model=model(), tools=[weather], policy=QUICK) as engine:
            turn = await (await engine.create()).send("The weather?")

        find = PROVIDERS[name].thought
        assert find is not None
        kept = "c2VhbGVk" if find in (_signature, _encrypted) else "I should look."
        assert (turn.reply, find(server.bodies[1])) == ("It rains.", kept)

    @every_provider
    async def test_too_long(self, name: str) -> None:
        """The history is condensed, and the request is sent again."""
        script = [answers("Fine."), PROVIDERS[name].too_long, answers("They greeted each other."), answers("Well.")]
        server, model = served(name, script)

        async with server, Engine.open("sqlite://", model=model(), policy=QUICK) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            turn = await conversation.send("How are you?")

        assert (turn.status, turn.reply) == ("completed", "Well.")
        assert "They greeted each other." in written(server.bodies[-1])

    @every_provider
    async def test_rate_limit(self, name: str) -> None:
        """The provider says how long to wait, wherever it says so."""
        server, model = served(name, [PROVIDERS[name].rate_limit])

        async with server:
            with pytest.raises(LlmFailure) as caught:
                await model().complete(ModelRequest("m", ({"role": "user", "content": "Hi"},)), lambda token: None)

        assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 7.0)

    @each_that_sees
    async def test_images(self, name: str) -> None:
        """A person's image reaches the provider."""
        assert "iVBOR" in await self._sent_with(name, PNG)

    @each_that_reads
    async def test_files(self, name: str) -> None:
        """A person's PDF reaches the provider."""
        assert base64(PDF) in await self._sent_with(name, PDF)

    async def _sent_with(self, name: str, file: bytes) -> str:
        """What reaches the provider of a message with this file."""
        server, model = served(name, [answers("I see.")])
        async with server, Engine.open("sqlite://", model=model(), policy=QUICK) as engine:
            turn = await (await engine.create()).send("What is this?", files=[file])

        assert turn.reply == "I see."
        return written(server.bodies[0])

    @each_that_caches
    async def test_caching(self, name: str) -> None:
        """What the provider read from its cache is counted, as a part of the input."""
        server, model = served(name, [answers("Fine.", usage=Tokens(input=100, output=5, cached=80))])

        async with server, Engine.open("sqlite://", model=model(), policy=QUICK) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.usage.cached_tokens == 80
        assert turn.usage.input_tokens >= 100

    @every_provider
    async def test_usage(self, name: str) -> None:
        """The tokens of a turn are those that the provider told."""
        server, model = served(name, [answers("Fine.", usage=Tokens(input=10, output=5))])

        async with server, Engine.open("sqlite://", model=model(), policy=QUICK) as engine:
            turn = await (await engine.create()).send("Hi")

        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (10, 5)
