"""What tools are to say streams over litellm and a real socket, in the protocol of each provider."""

from __future__ import annotations

import json

import pytest

from turnwise import DeliveryUpdate, Engine, Retry, TokenUpdate, presets, tool
from turnwise.states import Speech, ToolResult

from ....support.servers.model_server import DIALECTS, ModelServer, answers
from ....support.servers.model_server import call as calls

pytestmark = pytest.mark.timeout(120)

WORDS = "It rains in Oslo, so take an umbrella: “wet” — 😀"
STREAM_ARGUMENTS = ("openai", "anthropic")


def speech_in(updates: list[object], attempt: int = 1) -> list[str]:
    """The pieces of speech of this attempt."""
    tokens = [one for one in updates if isinstance(one, TokenUpdate) and one.kind == "speech"]
    return [one.text for one in tokens if one.attempt == attempt]


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_said_at_once_streams(dialect: str) -> None:
    """Before it is delivered, in several pieces where the protocol has pieces of arguments."""
    script = [answers(calls("talk", message=WORDS)), answers("Done.")]
    async with (
        ModelServer(script, DIALECTS[dialect]) as server,
        Engine.open("sqlite://", model=server.llm(), tools=["talk"], policy=presets.talk()) as engine,
    ):
        conversation = await engine.create()
        shown: list[object] = [update async for update in conversation.stream("Weather?")]

    pieces = speech_in(shown)
    last = max(place for place, one in enumerate(shown) if isinstance(one, TokenUpdate) and one.kind == "speech")
    (delivered,) = [place for place, one in enumerate(shown) if isinstance(one, DeliveryUpdate)]
    assert "".join(pieces) == WORDS
    assert last < delivered
    assert len(pieces) > 1 or dialect not in STREAM_ARGUMENTS


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("dialect", STREAM_ARGUMENTS)
async def test_what_is_said_at_the_end_of_the_turn_streams(dialect: str) -> None:
    """Arguments as a provider writes them that escapes all but ASCII, beside a call of another tool."""

    @tool(crash="pure")
    def look(message: str) -> str:
        """Look out of the window."""
        return message

    written = json.dumps({"text": WORDS})
    script = [answers(calls("look", message="no"), calls("respond_to_user", written)), answers("Done.")]
    async with (
        ModelServer(script, DIALECTS[dialect]) as server,
        Engine.open("sqlite://", model=server.llm(), tools=[look, "respond_to_user"]) as engine,
    ):
        conversation = await engine.create()
        shown: list[object] = [update async for update in conversation.stream("Weather?")]
        (turn,) = await conversation.turns()

    assert "".join(speech_in(shown)) == turn.reply == WORDS


@pytest.mark.usefixtures("each_client")
async def test_a_tool_of_the_application_names_what_it_says() -> None:
    """The parameter may stand behind others."""

    @tool(acts=["speech"], exclusive=True, crash="idempotent", spoken="text")
    def announce(gate: int, text: str) -> ToolResult:
        """Announce something at a gate."""
        return ToolResult(text="Announced.", acts=(Speech(text=text, when="now"),))

    script = [answers(calls("announce", gate=4, text="Boarding.")), answers("Done.")]
    async with (
        ModelServer(script, DIALECTS["openai"]) as server,
        Engine.open("sqlite://", model=server.llm(), tools=[announce]) as engine,
    ):
        conversation = await engine.create()
        shown: list[object] = [update async for update in conversation.stream("Go")]

    assert "".join(speech_in(shown)) == "Boarding."


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("dialect", STREAM_ARGUMENTS)
async def test_a_response_that_breaks_off_is_said_once(dialect: str) -> None:
    """Its beginning was shown as another attempt; only the whole one is delivered."""
    call = calls("talk", message=WORDS)
    script = [answers(call, end="breaks_off", finish=None), answers(call), answers("Done.")]
    policy = presets.talk().replace(retry=Retry(base=0))
    async with (
        ModelServer(script, DIALECTS[dialect]) as server,
        Engine.open("sqlite://", model=server.llm(), tools=["talk"], policy=policy) as engine,
    ):
        conversation = await engine.create()
        shown: list[object] = [update async for update in conversation.stream("Weather?")]
        (turn,) = await conversation.turns()

    assert WORDS.startswith("".join(speech_in(shown, attempt=1)))
    assert "".join(speech_in(shown, attempt=2)) == WORDS
    assert list(turn.deliveries) == [WORDS]
