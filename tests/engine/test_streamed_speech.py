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
    MessageUpdate,
    ModelAnswer,
    ModelRequest,
    Policy,
    Retry,
    SnapshotUpdate,
    Token,
    TokenUpdate,
    Update,
    presets,
    tool,
)
from turnwise.effects.model.rehearsal import RehearsalLlm
from turnwise.testing import FunctionLlm, RecordingChannel, ScriptedLlm, call, calls, reply

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


@pytest.mark.parametrize(
    ("policy", "kept", "thinking"),
    [
        (TALK, "It rains. It ", "Hm."),
        (Policy(text="fallback"), "It rains. It ", "Hm."),
        (Policy(text="reply"), "Hm.\n\nIt rains. It ", ""),
    ],
    ids=["thought", "fallback", "reply"],
)
async def test_what_was_shown_of_it_when_it_was_stopped_is_kept(policy: Policy, kept: str, thinking: str) -> None:
    """P8: it is what the model said, and the next request shows it; nothing is delivered. Text that is no reply beside
    a speech is a thought. What the user has not heard of it is cut."""
    requests: list[ModelRequest] = []

    class Speaking:
        name = "speaking"

        async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
            """Speak without an end, the first time."""
            requests.append(request)
            if len(requests) > 1:
                return call("talk", message="Bye.") if len(requests) == 2 else reply("")
            show(Token("Hm."))
            show(Token("It rains. It ", "speech"))
            await asyncio.Event().wait()
            raise AssertionError

    channel = RecordingChannel()
    tools = ["talk", "respond_to_user"]
    async with Engine.open("sqlite://", model=Speaking(), tools=tools, policy=policy, channels=[channel]) as engine:
        conversation = await engine.create()
        shown: list[Update] = []
        async for update in conversation.stream("Weather?"):
            shown.append(update)
            if isinstance(update, TokenUpdate) and update.kind == "speech":
                stopping = asyncio.create_task(conversation.cancel())
        await stopping
        (turn,) = await conversation.turns()
        message = (await conversation.transcript())[-1]
        assert (message.text, message.thinking, message.stopped, message.spoken) == (kept, thinking, "cancelled", True)
        assert (turn.status, turn.final_content, turn.user_response, turn.deliveries) == ("cancelled", kept, None, ())
        (said,) = [one for one in shown if isinstance(one, MessageUpdate) and one.role == "assistant"]
        assert (said.text, said.stopped, said.fallback) == (kept, True, False)

        await conversation.cancel(heard=kept.lower().removesuffix(" it "))
        assert (await conversation.transcript())[-1].text == kept.replace(" It ", "")
        await conversation.send("And?")

    assert [delivery.text for delivery in channel.deliveries] == ["Bye."]
    told = [one["content"] for one in requests[1].messages if one["role"] != "system"]
    assert told[1] == kept.replace(" It ", "")
    assert Policy().texts.stopped in "".join(map(str, told[2:]))


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
