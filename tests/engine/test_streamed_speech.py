"""What a tool is to say is shown while it is written, and nothing is computed where no tool speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from turnwise import (
    ConfigurationError,
    Engine,
    LlmFailure,
    ModelAnswer,
    ModelRequest,
    Retry,
    SnapshotUpdate,
    Token,
    TokenUpdate,
    Update,
    presets,
    tool,
)
from turnwise.effects.model.rehearsal import RehearsalLlm
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

TALK = presets.talk()


def speech_in(updates: list[Update]) -> list[str]:
    """The pieces of speech."""
    return [one.text for one in updates if isinstance(one, TokenUpdate) and one.kind == "speech"]


async def test_the_rehearsal_speaks_word_by_word() -> None:
    """As it writes texts."""
    async with Engine.open("sqlite://", model=RehearsalLlm(delay=0), tools=["talk"], policy=TALK) as engine:
        conversation = await engine.create()
        shown = [update async for update in conversation.stream("Hello there")]
        (turn,) = await conversation.turns()

    assert len(speech_in(shown)) > 5
    assert "".join(speech_in(shown)) == turn.reply


async def test_the_speeches_of_a_response_are_told_apart() -> None:
    """As in the reply. They are live, and no thought even where all text is one."""
    model = ScriptedLlm([calls(call("talk", message="It rains."), call("talk", message="Bye."), text="Hm."), "Done."])
    async with Engine.open("sqlite://", model=model, tools=["talk"], policy=TALK) as engine:
        conversation = await engine.create()
        shown = [update async for update in conversation.stream("Weather?")]
        (turn,) = await conversation.turns()

    assert "".join(speech_in(shown)) == turn.reply == "It rains.\n\nBye."
    assert {one.text for one in shown if isinstance(one, TokenUpdate) and one.kind == "thinking"} == {"Hm.", "Done."}


class Halting:
    """A model that begins to speak, and waits in the middle; its first response fails there."""

    name = "halting"

    def __init__(self) -> None:
        self.halted, self.go_on = asyncio.Event(), asyncio.Event()
        self.requests = 0

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Speak, then say nothing."""
        self.requests += 1
        if self.requests == 1:
            show(Token("It sno", "speech"))
            raise LlmFailure("network", "The connection broke.")
        if self.requests > 2:
            return reply("Done.")
        show(Token("It ra", "speech"))
        self.halted.set()
        await self.go_on.wait()
        show(Token("ins.", "speech"))
        return call("talk", message="It rains.")


async def test_who_joins_in_the_middle_sees_what_was_streamed() -> None:
    """Of the attempt that goes on; the one that failed before is delivered to nobody."""
    model = Halting()
    policy = TALK.replace(retry=Retry(base=0))
    async with Engine.open("sqlite://", model=model, tools=["talk"], policy=policy) as engine:
        conversation = await engine.create()
        sending = asyncio.create_task(conversation.send("Weather?"))
        await model.halted.wait()
        updates = conversation.updates()
        snapshot = await anext(updates)
        token = await first_token(conversation.updates("0.0"))
        model.go_on.set()
        turn = await sending

    assert isinstance(snapshot, SnapshotUpdate)
    assert snapshot.streaming is not None
    assert (snapshot.streaming.speech, snapshot.streaming.text) == ("It ra", "")
    assert (token.text, token.kind, token.attempt, token.from_start) == ("It ra", "speech", 2, True)
    assert turn.deliveries == ("It rains.",)


async def first_token(updates: AsyncGenerator[Update, None]) -> TokenUpdate:
    """Return the first token of these updates."""
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, TokenUpdate):
                return update
    raise AssertionError("no token came")


async def test_a_request_names_what_is_spoken_only_where_a_tool_speaks() -> None:
    """By the name that the model sees."""

    @tool(acts=["speech"], spoken="text")
    def announce(gate: int, text: str) -> str:
        """Announce something."""
        return text

    async def spoken_of(*tools: object) -> object:
        model = FunctionLlm(lambda request: "Done.")
        async with Engine.open("sqlite://", model=model, tools=tools) as engine:
            await (await engine.create()).send("Hello")
        return model.requests[0].spoken

    assert await spoken_of() is None
    assert await spoken_of("ask_user_question") is None
    assert await spoken_of("talk", "respond_to_user", announce) == {
        "talk": "message",
        "respond_to_user": "text",
        "announce": "text",
    }


@pytest.mark.parametrize(("acts", "spoken"), [(["speech"], "words"), ([], "text")])
def test_what_is_spoken_is_a_parameter_of_a_tool_that_speaks(acts: list[str], spoken: str) -> None:
    """Anything else is refused where the tool is made."""

    def announce(text: str) -> str:
        """Announce something."""
        return text

    with pytest.raises(ConfigurationError, match="announce can say"):
        tool(announce, acts=acts, spoken=spoken)
