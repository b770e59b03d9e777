"""Content that providers refuse, with litellm over a real socket: the conversation goes on, whoever refuses it how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise import Engine, Image, LiteLlm, Policy, Retry, tool

from ..support.pictures import PNG
from ..support.servers.openai_server import Body, OpenAiServer, Reply, calls, fails, says

QUICK = Policy(retry=Retry(attempts=2, base=0.01))

NO_EYES = [
    (400, "unknown variant `image_url`, expected `text` at line 1 column 4795", None),
    (404, "No endpoints found that support image input", None),
    (400, "This model does not support image input", None),
    (400, "At most 0 image(s) may be provided in one request.", None),
]
FILTERS = [
    (400, "The response was filtered due to the prompt.", "content_filter"),
    (400, "Invalid prompt: flagged as violating our usage policy.", "invalid_prompt"),
]


@tool(crash="pure")
async def look() -> Any:
    """Take a picture."""
    return ["A door:", Image.of(PNG)]


@tool(crash="pure")
async def fetch() -> str:
    """Fetch a page."""
    return "FORBIDDEN words"


class Script:
    """Refuses each request that holds `word`, calls the tool that the newest message of the user names, and answers
    every other request. `refused` counts the requests that were refused."""

    def __init__(self, word: str, status: int, message: str, code: str | None) -> None:
        self._word, self._refusal = word, fails(status, message, code=code)
        self.refused = 0

    def __call__(self, body: Body) -> Reply:
        """Return the reply to a request."""
        if self._word in json.dumps(body["messages"]):
            self.refused += 1
            return self._refusal
        last = body["messages"][-1]
        named = [name for name in ("look", "fetch") if last["role"] == "user" and name in str(last["content"])]
        return calls((named[0], {})) if named else says("Fine.")


def engine_at(server: OpenAiServer, name: str = "openai/test", **options: Any) -> Engine:
    """An engine whose model is the server."""
    model = LiteLlm(name, api_base=server.url, api_key="test", **options)
    return Engine.open("sqlite://", model=model, tools=[look, fetch], policy=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "message", "code"), NO_EYES)
async def test_an_image_for_a_model_without_eyes(status: int, message: str, code: str | None) -> None:
    """The image of a user and that of a tool give way, and are refused once."""
    for texts in (("What is this?", "Go on"), ("look", "Go on")):
        script = Script("image_url", status, message, code)
        async with OpenAiServer(script) as server, engine_at(server) as engine:
            conversation = await engine.create()
            images = [PNG] if texts[0] != "look" else []
            turns = [await conversation.send(texts[0], images=images), await conversation.send(texts[1])]

        assert [turn.status for turn in turns] == ["completed", "completed"]
        assert script.refused == 1


@pytest.mark.parametrize(("status", "message", "code"), FILTERS)
async def test_a_filter(status: int, message: str, code: str | None) -> None:
    """A message fails its turn alone, and a result none."""
    script = Script("FORBIDDEN", status, message, code)
    async with OpenAiServer(script) as server, engine_at(server) as engine:
        conversation = await engine.create()
        turns = [await conversation.send(text) for text in ("Hello", "FORBIDDEN", "Go on", "fetch", "Thanks")]

    assert [turn.status for turn in turns] == ["completed", "failed", "completed", "completed", "completed"]
    assert script.refused == 2


async def test_what_one_conversation_has_learned_helps_the_others() -> None:
    """A model that has refused two requests with images is sent none by any conversation of the engine."""
    script = Script("image_url", *NO_EYES[0])
    async with OpenAiServer(script) as server, engine_at(server) as engine:
        turns = [await (await engine.create()).send("What is this?", images=[PNG]) for _ in range(4)]

    assert [turn.status for turn in turns] == ["completed"] * 4
    assert script.refused == 2


@pytest.mark.parametrize("name", ["azure/o1-mini", "openai/test"])
async def test_a_model_that_is_known_to_take_no_images_is_sent_none(name: str) -> None:
    """Because litellm's list says so, or the application does."""
    known: dict[str, Any] = {"model": "openai/test", "takes_images": False} if name == "openai/test" else {}
    model = LiteLlm(name, **known)

    assert model.takes_images is False
