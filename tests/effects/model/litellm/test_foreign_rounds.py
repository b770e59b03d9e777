"""What is learned of the rounds that a model takes, from the refusals of its server."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise import LlmFailure, ModelRequest

from ....support.servers.model_server import Data, Json, ModelServer, Reply, answers, fails

CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": "find_it", "arguments": "{}"}}


def asked(**fields: Any) -> ModelRequest:
    """Return a request with a round that has these fields."""
    called = {"role": "assistant", "content": None, "tool_calls": [{**CALL}], **fields}
    result = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "Found."}
    return ModelRequest("m", ({"role": "user", "content": "Find it."}, called, result))


def refused(sentence: str) -> Reply:
    """Refuse with this sentence."""
    return fails(400, {"error": {"message": sentence, "type": "invalid_request_error"}})


def round_in(body: Json) -> Json:
    """Return the message with the call."""
    found: Json = body["messages"][1]
    return found


async def test_what_did_not_help_is_forgotten() -> None:
    """A form that was refused as well is not that of the next request."""
    async with ModelServer([refused("Missing reasoning_content")]) as server:
        model = server.llm()
        for _ in range(2):
            with pytest.raises(LlmFailure):
                await model.complete(asked(), lambda token: None)

    sent = list(map(round_in, server.bodies))
    assert sent[0] == sent[len(sent) // 2]
    assert "reasoning_content" not in sent[0]
    assert "reasoning_content" in sent[1]


async def test_what_helps_is_known_from_then_on() -> None:
    """The second request has the reasoning from the beginning, in the middle of a stream as well as before it."""
    for refusal in (refused("Missing reasoning_content"), _within_a_stream("Missing reasoning_content")):
        async with ModelServer(_unless(lambda one: "reasoning_content" in one, refusal)) as server:
            model = server.llm()
            for _ in range(2):
                await model.complete(asked(), lambda token: None)

        assert [round_in(body).get("reasoning_content") for body in server.bodies] == [None, " ", " "]
        assert model.refused == ("calls without reasoning_content",)


async def test_a_refusal_is_read_whatever_its_case() -> None:
    """The next request is sent without the field, too."""
    async with ModelServer(
        _unless(lambda one: "providerData" not in one, refused("Unknown name PROVIDERDATA"))
    ) as server:
        model = server.llm()
        for _ in range(2):
            await model.complete(asked(providerData="x"), lambda token: None)

    assert ["providerData" in round_in(body) for body in server.bodies] == [True, False, False]


async def test_what_this_program_says_of_a_failure_is_no_refusal() -> None:
    """An error within a stream names no form, and the sentence about it speaks of a stream."""
    async with ModelServer([_within_a_stream("Something is wrong.")]) as server:
        model = server.llm()
        with pytest.raises(LlmFailure):
            await model.complete(asked(), lambda token: None)

    assert (len(server.requests), model.refused) == (1, ())


def _within_a_stream(sentence: str) -> Reply:
    error = {"message": sentence, "type": "invalid_request_error"}
    return answers(Data({"error": error}), finish=None, usage=None)


def _unless(is_taken: Any, refusal: Reply) -> Any:
    return lambda body: answers("Fine.") if is_taken(round_in(body)) else refusal
