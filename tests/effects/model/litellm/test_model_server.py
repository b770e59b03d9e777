"""The scripted servers speak the protocols of their providers: litellm alone reads each of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from turnwise.effects.model.litellm.loading import load_litellm

from ....support.servers.model_server import (
    DIALECTS,
    GEMINI,
    OPENAI,
    Answer,
    Data,
    ModelServer,
    Raw,
    answers,
    call,
    fails,
    thinks,
)

MESSAGES = [{"role": "user", "content": "Weather?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


async def read(server: ModelServer, **options: Any) -> Any:
    """Return the chunks that litellm reads, joined to an answer."""
    litellm = load_litellm()
    asked = {"model": server.dialect.model, "messages": MESSAGES, "tools": TOOLS, "stream": True, **options}
    stream = await litellm.acompletion(**asked, api_base=server.url, api_key="test", num_retries=0, max_retries=0)
    return litellm.stream_chunk_builder([chunk async for chunk in stream]) if asked["stream"] else stream


def text_of(answer: Any) -> str:
    """Return the text of an answer, whose content may be parts."""
    content = answer.choices[0].message.content or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "parts"])
class TestEachDialect:
    """What a script says in neutral terms arrives."""

    async def test_text(self, dialect: str) -> None:
        """The pieces of a text, and why it ended."""
        async with ModelServer([answers("It ", "rains.")], DIALECTS[dialect]) as server:
            answer = await read(server)

        assert (text_of(answer), answer.choices[0].finish_reason) == ("It rains.", "stop")
        assert server.bodies[0].get("messages") or server.bodies[0].get("contents")

    async def test_thinking(self, dialect: str) -> None:
        """Thinking apart from the text."""
        async with ModelServer([answers(thinks("Hm", "."), "It rains.")], DIALECTS[dialect]) as server:
            answer = await read(server)

        assert (answer.choices[0].message.reasoning_content, text_of(answer)) == ("Hm.", "It rains.")

    async def test_calls(self, dialect: str) -> None:
        """Calls with their arguments."""
        script = [answers("Wait.", call("weather", city="Oslo"))]
        async with ModelServer(script, DIALECTS[dialect]) as server:
            answer = await read(server)

        calls = [(c.function.name, c.function.arguments) for c in answer.choices[0].message.tool_calls]
        assert calls == [("weather", '{"city": "Oslo"}')]
        assert answer.choices[0].finish_reason == "tool_calls"

    async def test_usage(self, dialect: str) -> None:
        """The tokens of the request and of the answer."""
        async with ModelServer([answers("It rains.")], DIALECTS[dialect]) as server:
            usage = (await read(server, stream_options={"include_usage": True})).usage

        assert (usage.prompt_tokens, usage.completion_tokens) == (10, 5)

    async def test_failure(self, dialect: str) -> None:
        """A status with its body."""
        async with ModelServer([fails(429, {"error": {"message": "Slow down"}})], DIALECTS[dialect]) as server:
            with pytest.raises(Exception, match="RateLimitError"):
                await read(server)


async def test_sealed_thinking() -> None:
    """A signature seals a block of Anthropic's thinking."""
    sealed = answers(thinks("Hm.", signature="c2VhbGVk"), "Fine.")
    async with ModelServer([sealed], DIALECTS["anthropic"]) as server:
        answer = await read(server)

    assert answer.choices[0].message.thinking_blocks[0]["signature"] == "c2VhbGVk"


async def test_a_sealed_call() -> None:
    """A signature seals a call of Gemini's."""
    sealed = answers(replace(call("weather", city="Oslo"), signature="c2VhbGVk"))
    async with ModelServer([sealed], GEMINI) as server:
        answer = await read(server)

    fields = answer.choices[0].message.tool_calls[0].provider_specific_fields
    assert fields["thought_signature"] == "c2VhbGVk"


async def test_a_sequence_of_answers_ends_with_the_last() -> None:
    """The last answer of a script is given again."""
    async with ModelServer([answers("One"), answers("Two")]) as server:
        found = [text_of(await read(server)) for _ in range(3)]

    assert found == ["One", "Two", "Two"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answers("One", Raw(b": comment\n\n"), "Two"), "OneTwo"),
        (Answer(("Three",), "stop", usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}), "Three"),
        (answers(Data({"id": "c", "choices": [{"index": 0, "delta": {"content": "Four"}}]})), "Four"),
    ],
)
async def test_what_has_no_neutral_terms(answer: Answer, expected: str) -> None:
    """Bytes and events of the dialect's own, and a usage in whatever naming."""
    async with ModelServer([answer], OPENAI) as server:
        found = text_of(await read(server))

    assert found == expected


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "ollama"])
async def test_json_in_one_piece(dialect: str) -> None:
    """A server that does not stream."""
    script = [answers(thinks("Hm."), "Wait.", call("weather", city="Oslo"), is_plain=True)]
    async with ModelServer(script, DIALECTS[dialect]) as server:
        message = (await read(server, stream=False)).choices[0].message

    assert (message.reasoning_content, message.content) == ("Hm.", "Wait.")
    assert [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls] == [
        ("weather", {"city": "Oslo"})
    ]
