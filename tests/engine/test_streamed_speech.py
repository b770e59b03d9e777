"""What a tool is to say is shown while it is written, and nothing is computed where no tool speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    TurnEndedUpdate,
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


@settings(max_examples=20)
@given(
    attempts=st.lists(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=5), min_size=1, max_size=3),
    joins=st.integers(0, 12),
)
def test_what_is_streamed_of_a_speech_is_its_beginning(attempts: list[list[str]], joins: int) -> None:
    """However often the response fails before, and whenever a watcher joins or resumes: nothing is missing or doubled,
    and in the end it is all that is delivered."""
    asyncio.run(_speech_is_shown_once(attempts, joins))


class WritesOften:
    """A model that writes each of these speeches in pieces; all but the last one fail. `on_piece` is awaited before
    each piece."""

    name = "writes often"

    def __init__(self, attempts: list[list[str]], on_piece: Callable[[], Awaitable[None]]) -> None:
        self._left = [*attempts]
        self._on_piece = on_piece

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Write the next one, and after the last one nothing."""
        if not self._left:
            return reply("")
        pieces = self._left.pop(0)
        for piece in pieces:
            await self._on_piece()
            show(Token(piece, "speech"))
        if self._left:
            raise LlmFailure("network", "The connection broke.")
        return call("talk", message="".join(pieces))


async def _speech_is_shown_once(attempts: list[list[str]], joins: int) -> None:
    watched: list[list[Update]] = []
    late: list[AsyncGenerator[Update, None]] = []
    places = iter(range(100))

    async def join() -> None:
        if next(places) == joins:
            late.extend([conversation.updates(), conversation.updates("0.0")])
            watched.extend([[await anext(one)] for one in late])

    policy = TALK.replace(retry=Retry(attempts=len(attempts), base=0))
    async with Engine.open("sqlite://", model=WritesOften(attempts, join), tools=["talk"], policy=policy) as engine:
        conversation = await engine.create()
        whole = [update async for update in conversation.stream("Weather?")]
        (turn,) = await conversation.turns()
        for seen, updates in zip(watched, late, strict=True):
            await read_turn(seen, updates)

    said = ["".join(pieces) for pieces in attempts]
    assert speeches_by_request(whole) == said
    for seen in watched:
        written = speeches_by_request(seen)
        assert all(any(one.startswith(shown) for one in said) for shown in written)
        assert written[-1:] in ([said[-1]], [])
    assert turn.deliveries == ((said[-1],) if said[-1].strip() else ())


async def read_turn(seen: list[Update], updates: AsyncGenerator[Update, None]) -> None:
    """Add the updates to those that were seen, up to the end of the turn."""
    async with aclosing(updates):
        while not isinstance(seen[-1], TurnEndedUpdate):
            seen.append(await anext(updates))


def speeches_by_request(updates: list[Update]) -> list[str]:
    """What a watcher has seen in the end of the speech of each request."""
    shown: dict[tuple[int, int], str] = {}
    for one in updates:
        if isinstance(one, SnapshotUpdate) and one.streaming is not None:
            shown[one.streaming.request, one.streaming.attempt] = one.streaming.speech
        elif isinstance(one, TokenUpdate) and one.kind == "speech":
            before = "" if one.from_start else shown.get((one.request, one.attempt), "")
            shown[one.request, one.attempt] = before + one.text
    return [*shown.values()]


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
