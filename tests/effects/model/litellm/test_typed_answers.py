"""Typed answers over litellm and a real socket: what each provider is asked, and what becomes of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from turnwise import Dialect, Engine, LiteLlm, OpenAICompatible, Output, OutputUpdate
from turnwise.effects.model.outputs import TOOL

from ....support.servers.clients import served_model
from ....support.servers.model_server import DIALECTS, ModelServer, answers
from ....support.servers.model_server import call as model_calls
from ....support.servers.openai_server import OpenAiServer, calls, fails, says

pytestmark = pytest.mark.timeout(120)


class Ticket(BaseModel):
    """A ticket of a help desk."""

    title: str
    priority: int = 3


GIVEN = {"title": "The printer burns", "priority": 1}
TICKET = Ticket(title="The printer burns", priority=1)


def look() -> str:
    """Look at the printer."""
    return "It burns."


def openai(server: OpenAiServer, **more: Any) -> LiteLlm | OpenAICompatible:
    """Return a model of this server."""
    return served_model(server.url, "openai/test", **more)


@pytest.mark.usefixtures("each_client")
async def test_a_schema_is_held_to_by_the_provider() -> None:
    """In the form of strict schemas: all fields are required, no others are allowed, and nothing has a default."""
    async with OpenAiServer([says(json.dumps(GIVEN))]) as server:
        async with Engine.open("sqlite://", model=openai(server)) as engine:
            turn = await (await engine.create()).send("It burns!", output=Output(Ticket, way="native"))
        (body,) = server.requests

    form = body["response_format"]
    assert turn.output == TICKET
    assert form["type"] == "json_schema"
    assert (form["json_schema"]["name"], form["json_schema"]["strict"]) == ("Ticket", True)
    assert form["json_schema"]["schema"]["required"] == ["title", "priority"]
    assert form["json_schema"]["schema"]["additionalProperties"] is False
    assert "default" not in form["json_schema"]["schema"]["properties"]["priority"]


@pytest.mark.usefixtures("each_client")
async def test_a_schema_that_cannot_be_strict_is_sent_as_it_is() -> None:
    """An object of any content cannot be held to."""
    schema = {"type": "object", "properties": {"any": {"type": "object"}}, "required": ["any"]}
    async with OpenAiServer([says('{"any": {"a": 1}}')]) as server:
        async with Engine.open("sqlite://", model=openai(server)) as engine:
            given = {"name": "any", "json_schema": schema, "way": "native"}
            turn = await (await engine.create()).send("Go", output=given)
        (body,) = server.requests

    assert turn.output == {"any": {"a": 1}}
    assert body["response_format"]["json_schema"]["strict"] is False


@pytest.mark.usefixtures("each_client")
async def test_a_server_that_takes_no_schema_is_prompted_at_once_and_asked_otherwise_later() -> None:
    """The refused request is sent again with the schema in its last message; the next one offers a tool."""
    refusal = fails(400, "'response_format' of type 'json_schema' is not supported by this model.")
    script = [refusal, says(f"```json\n{json.dumps(GIVEN)}\n```"), calls((TOOL, GIVEN))]
    async with OpenAiServer(script) as server:
        model = openai(server)
        async with Engine.open("sqlite://", model=model) as engine:
            conversation = await engine.create()
            first = await conversation.send("It burns!", output=Output(Ticket, way="native"))
            second = await conversation.send("It burns!", output=Ticket)
        bodies = server.requests

    assert (first.output, second.output) == (TICKET, TICKET)
    assert "response_format" not in bodies[1]
    assert '"priority"' in bodies[1]["messages"][-1]["content"]
    assert bodies[2]["tools"][0]["function"]["name"] == TOOL
    assert model.refused == ("a schema of the answer",)


@pytest.mark.usefixtures("each_client")
async def test_a_server_without_tools_is_prompted() -> None:
    """It has said before that it takes none."""
    async with OpenAiServer([says(json.dumps(GIVEN))]) as server:
        model = openai(server, dialect=Dialect(without=("tools",)))
        async with Engine.open("sqlite://", model=model) as engine:
            turn = await (await engine.create()).send("It burns!", output=Ticket)
        (body,) = server.requests

    assert turn.output == TICKET
    assert "tools" not in body
    assert "JSON schema" in body["messages"][-1]["content"]


@pytest.mark.usefixtures("each_client")
async def test_tools_are_called_before_the_answer() -> None:
    """The model must call something: its tools, or the one by which it answers."""
    async with OpenAiServer([calls(("look", {})), calls((TOOL, GIVEN))]) as server:
        async with Engine.open("sqlite://", model=openai(server), tools=[look]) as engine:
            turn = await (await engine.create()).send("It burns!", output=Ticket)
        bodies = server.requests

    assert turn.output == TICKET
    assert [body["tool_choice"] for body in bodies] == ["required", "required"]


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_by_a_tool_is_read_from_every_protocol(dialect: str) -> None:
    """First an invalid one, which goes back as the result of its call, then a valid one."""
    script = [answers(model_calls(TOOL, title=1)), answers(model_calls(TOOL, **GIVEN))]
    async with (
        ModelServer(script, DIALECTS[dialect]) as server,
        Engine.open("sqlite://", model=server.llm(), tools=[look]) as engine,
    ):
        turn = await (await engine.create()).send("It burns!", output=Output(Ticket, way="tool"))

    assert turn.output == TICKET


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_as_text_is_read_from_every_protocol(dialect: str) -> None:
    """In pieces, as it streams."""
    written = json.dumps(GIVEN)
    async with (
        ModelServer([answers(written[:9], written[9:])], DIALECTS[dialect]) as server,
        Engine.open("sqlite://", model=server.llm()) as engine,
    ):
        turn = await (await engine.create()).send("It burns!", output=Output(Ticket, way="native"))

    assert turn.output == TICKET


@pytest.mark.usefixtures("each_client")
async def test_the_arguments_of_the_call_stream_as_partial_objects() -> None:
    """While the model writes them."""
    async with (
        OpenAiServer([calls((TOOL, GIVEN))]) as server,
        Engine.open("sqlite://", model=openai(server), tools=[look]) as engine,
    ):
        conversation = await engine.create()
        shown = [update async for update in conversation.stream("It burns!", output=Ticket)]

    partial = [update.value for update in shown if isinstance(update, OutputUpdate)]
    assert partial[-1] == GIVEN
    assert len(partial) > 1


WAYS: list[tuple[str, str, str]] = [
    ("openai/gpt-4.1-mini", "native", "native"),
    ("azure/gpt-4o", "native", "native"),
    ("anthropic/claude-sonnet-4-5", "tool", "tool"),
    ("gemini/gemini-2.5-flash", "tool", "native"),
    ("mistral/mistral-large-latest", "tool", "native"),
    ("ollama_chat/llama3.2", "tool", "native"),
    ("hosted_vllm/anything", "tool", "native"),
    ("openai/of-another-server", "tool", "tool"),
]
"""Models, with how they are asked beside tools and without."""


@pytest.mark.parametrize(("name", "beside_tools", "alone"), WAYS)
def test_the_way_follows_from_what_the_model_can_do(name: str, beside_tools: str, alone: str) -> None:
    """A schema that would keep the model from calling tools is not given beside them."""
    model = LiteLlm(name)

    assert (model.output_way(True), model.output_way(False)) == (beside_tools, alone)


def test_openais_protocol_of_another_server_is_not_openai() -> None:
    """The list of models says nothing about what stands behind an address."""
    assert LiteLlm("openai/gpt-4o", api_base="http://127.0.0.1:1").output_way(True) == "tool"
