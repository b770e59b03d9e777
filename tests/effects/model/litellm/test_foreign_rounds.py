"""What is learned of the rounds that a model takes, from the refusals of its server."""

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from turnwise.effects.model.litellm.foreign_rounds import MAX_CHANGES, ForeignRounds

CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": "find_it", "arguments": "{}"}}


def refused(sentence: str) -> openai.BadRequestError:
    """Return the error for a refusal with this sentence."""
    response = httpx.Response(400, json={"error": {"message": sentence}}, request=httpx.Request("POST", "http://x"))
    return openai.BadRequestError(sentence, response=response, body=None)


def asked(**fields: Any) -> Callable[[], dict[str, Any]]:
    """Return what makes the arguments of a request with a round that has these fields."""
    return lambda: {"messages": [{"role": "assistant", "content": None, "tool_calls": [{**CALL}], **fields}]}


async def test_what_did_not_help_is_forgotten() -> None:
    """A form that was refused as well is not that of the next request."""
    rounds, sent = ForeignRounds("openai/m"), list[Any]()

    async def send(**arguments: Any) -> str:
        sent.append(arguments["messages"])
        raise refused("Missing reasoning_content")

    for _ in range(2):
        with pytest.raises(openai.BadRequestError):
            await rounds.send(asked(), send)

    assert sent[0] == sent[len(sent) // 2] == asked()()["messages"]


async def test_the_tries_are_bounded() -> None:
    """However many fields a server refuses, one after the other."""
    fields = {f"field_{n}": n for n in range(20)}
    sent = list[int]()

    async def send(**arguments: Any) -> str:
        (message,) = arguments["messages"]
        sent.append(len(message))
        raise refused(next(f"{name} is unknown" for name in fields if name in message))

    with pytest.raises(openai.BadRequestError):
        await ForeignRounds("openai/m").send(asked(**fields), send)

    assert len(sent) == MAX_CHANGES + 1


async def test_a_refusal_is_read_whatever_its_case() -> None:
    """The next request is sent without the field, too."""
    rounds, sent = ForeignRounds("openai/m"), list[bool]()

    async def send(**arguments: Any) -> str:
        sent.append("providerData" in arguments["messages"][0])
        if sent[-1]:
            raise refused("Unknown name PROVIDERDATA")
        return "Fine."

    for _ in range(2):
        await rounds.send(asked(providerData=1), send)

    assert sent == [True, False, False]
