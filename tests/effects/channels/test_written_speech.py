"""Speech is spoken while a model writes it: sentence by sentence, never twice, and not on when nothing delivers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnwise import (
    ConfigurationError,
    Conversation,
    Delivery,
    Engine,
    LlmFailure,
    ModelAnswer,
    ModelRequest,
    Policy,
    Retry,
    SpeechChannel,
    Token,
    presets,
    tool,
)
from turnwise.effects.channels.port import SpeechPiece, SpeechSettled
from turnwise.effects.channels.speech import Voice
from turnwise.effects.channels.written_speech import RetractedSpeech, Sentences, WrittenTurn, sentences_of
from turnwise.states import AwaitingApproval, SpeechRules
from turnwise.testing import ScriptedLlm, call, calls, reply

from ...support.engine_scenarios import said, until
from ...support.speech.voices import program

# --- sentences

TEXTS = st.lists(
    st.sampled_from(
        [
            *("It rains", "Dr", "5", ".", "!", "\u3002", " ", "\n", ")", "**", "\u201d", "\U0001f600"),
            *("```", "````````", "\n```   \t    \n", "```python more"),
        ]
    )
).map("".join)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 60)))
@example(text="\n```   \t    \n", cuts=[1])
def test_sentences_do_not_depend_on_the_pieces(text: str, cuts: list[int]) -> None:
    """Nothing is lost but blanks, however the text is cut."""
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    reader = Sentences()
    pieces = [text[start:end] for start, end in pairwise(places)]
    sentences = [sentence for piece in pieces for sentence in reader.add(piece)] + [*reader.end()]

    assert sentences == sentences_of(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It rains. Go!", ["It rains.", " Go!"]),
        ("1. Sakura at 5. Ask", ["1. Sakura at 5. Ask"]),
        ("One\n\nTwo", ["One\n", "Two"]),
        ("```\na. b\n```\nSo.", ["```\na. b\n```\n", "So."]),
        ("```\na\n``` b\n`````  \nSo.", ["```\na\n``` b\n`````  \n", "So."]),
        ("\u96e8\u3002\u98a8", ["\u96e8\u3002", "\u98a8"]),
    ],
)
def test_sentences_end_where_a_speaker_pauses(text: str, sentences: list[str]) -> None:
    """Not behind a number, and not within a block of code; nor does it matter that a model writes it piece by piece."""
    reader = Sentences()

    assert sentences_of(text) == sentences
    assert [sentence for piece in text for sentence in reader.add(piece)] + [*reader.end()] == sentences


def test_a_long_sentence_is_read_once() -> None:
    """With quadratic time this would take minutes."""
    reader = Sentences()
    assert not [sentence for _ in range(200_000) for sentence in reader.add("word, ")]


# --- what of it is delivered


class Said:
    """A sentence that was begun."""

    def __init__(self, text: str) -> None:
        self.text = text


def written(*pieces: tuple[int, str]) -> WrittenTurn[Said]:
    """Return a turn in which this was written in answer to these requests."""
    turn = WrittenTurn[Said](1)
    for request, text in pieces:
        turn.write(SpeechPiece(text, "c", 1, request), Said)
        turn.write(SpeechPiece("", "c", 1, request, is_last=True), Said)
    return turn


class TestDelivered:
    """A delivery takes what was begun of it."""

    def test_each_delivery_takes_its_own_sentences(self) -> None:
        """In any order, whatever spaces it has."""
        turn = written((1, "A one. A two.\n\nB one."))

        taken = [turn.deliver(said(text, place)) for place, text in enumerate(["B one.", "A one.  A two.", "C"], 1)]

        assert [([one.text.strip() for one in begun], rest) for begun, rest in taken] == [
            (["B one."], ""),
            (["A one.", "A two."], ""),
            ([], "C"),
        ]

    def test_what_was_not_begun_of_it_is_its_rest(self) -> None:
        """As where a secret was replaced in what is delivered."""
        begun, rest = written((1, "A one. My key is 7.")).deliver(said("A one. My key is [key].", 1))

        assert ([one.text for one in begun], rest) == (["A one."], "My key is [key].")

    @pytest.mark.parametrize("order", [("end", "delivery"), ("delivery", "end")])
    def test_the_rest_is_unsaid_once_all_deliveries_have_come(self, order: tuple[str, ...]) -> None:
        """The end may be known before; what a later response says is not concerned."""
        turn = written((1, "A one.\n\nB one."))
        unsaid: list[str] = []
        for one in order:
            if one == "end":
                turn.settle(SpeechSettled("c", 1, 1, "unsaid"))
                turn.write(SpeechPiece("C one. ", "c", 1, 2), Said)
            else:
                turn.deliver(said("A one.", 1))
            unsaid += [sentence.text for sentences, _ in turn.unsaid() for sentence in sentences]

        assert unsaid == ["B one."]
        assert [one.text for one in turn.deliver(said("C one.", 2))[0]] == ["C one."]


# --- in an engine


class Writes:
    """A model that shows each speech of its script in pieces, waits in the middle where a step is a function, and then
    answers."""

    name = "writes"

    def __init__(self, *script: tuple[Iterable[str | Callable[[], Any]], ModelAnswer | LlmFailure | None]) -> None:
        self._script = list(script)

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Write the next answer of the script; None never ends."""
        pieces, answer = self._script.pop(0)
        for piece in pieces:
            if callable(piece):
                await piece()
            else:
                show(Token(piece, "speech"))
        if isinstance(answer, LlmFailure):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer


class Heard:
    """A channel that speaks while the model writes, and what was heard of it."""

    def __init__(self, folder: Path, code: str = "") -> None:
        self._file = folder / "heard.txt"
        self.ends: list[tuple[str, str]] = []
        self.retracted: list[tuple[str, str]] = []
        voice = program(f"open({str(self._file)!r}, 'a').write(text + '|'); {code}")
        self.channel = self.speaking(voice)

    def speaking(self, voice: Voice) -> SpeechChannel:
        """The channel."""
        return SpeechChannel(
            voices=[voice],
            streaming=True,
            on_end=lambda delivery, outcome: self.ends.append((delivery.text, outcome)),
            on_retracted=self._note,
        )

    def _note(self, speech: RetractedSpeech) -> None:
        self.retracted.append((speech.heard, speech.why))

    @property
    def texts(self) -> list[str]:
        """What was spoken, text by text."""
        return self._file.read_text().split("|")[:-1] if self._file.exists() else []

    async def has(self, text: str) -> None:
        """Return when this was spoken."""
        await until(lambda: text in self.texts)


async def one_turn(
    heard: Heard, model: Any, policy: Policy, act: Callable[[Conversation], Any] | None = None, **options: Any
) -> Conversation:
    """Hold a turn, and wait until all is spoken."""
    tools = options.pop("tools", ["talk", "respond_to_user"])
    async with Engine.open(
        "sqlite://", model=model, tools=tools, policy=policy, channels=[heard.channel], **options
    ) as engine:
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        if act is not None:
            await act(conversation)
        await conversation.wait()
        await engine.delivered()
        await heard.channel.drain()
        await asyncio.sleep(0)
    return conversation


TALK = presets.talk().replace(retry=Retry(base=0))
RAIN = "It **rains**. Take a coat."


async def test_a_sentence_is_spoken_while_the_next_is_written(tmp_path: Path) -> None:
    """And the delivery, which comes later, is not spoken again."""
    heard = Heard(tmp_path)
    before: list[list[tuple[str, str]]] = []

    async def first_is_heard() -> None:
        await heard.has("It rains.")
        before.append([*heard.ends])

    model = Writes(
        (["It **ra", "ins**. T", first_is_heard, "ake a coat."], call("talk", message=RAIN)), ((), reply(""))
    )
    await one_turn(heard, model, TALK)

    assert heard.texts == ["It rains.", "Take a coat."]
    assert before == [[]]
    assert heard.ends == [(RAIN, "spoken")]
    assert heard.retracted == []


async def test_what_is_shown_to_nobody_is_spoken_when_it_is_delivered(tmp_path: Path) -> None:
    """A model that does not stream, and a text that no tool says."""
    heard = Heard(tmp_path)
    model = ScriptedLlm([calls(call("respond_to_user", text="One. Two.")), reply("Three. Four.")])
    await one_turn(heard, model, Policy(speech=SpeechRules(keep="each")))

    assert "".join(heard.texts).replace(" ", "") == "One.Two."


async def test_it_knows_what_was_heard_of_the_newest_turn(tmp_path: Path) -> None:
    """Sentence by sentence, also of a text that no tool says: what a voice has begun when somebody interrupts it."""
    heard = Heard(tmp_path, "text == 'Two.' and time.sleep(60)")
    llm = ScriptedLlm(["Zero.", "One. Two. Three.", "Yes?"])
    async with Engine.open("sqlite://", model=llm, channels=[heard.channel]) as engine:
        conversation = await engine.create()
        nothing = heard.channel.heard(conversation.id)
        await conversation.send("Hi")
        await heard.has("Zero.")
        await conversation.send("Count")
        await heard.has("Two.")
        words = heard.channel.heard(conversation.id) if heard.channel.stop() else None
        await conversation.send("Stop", when_busy="interrupt", heard=words)
        said = await conversation.transcript()

    assert (nothing, words) == (None, "One. Two.")
    assert [message.text for message in said] == ["Hi", "Zero.", "Count", "One. Two.", "Stop", "Yes?"]


async def test_a_response_that_fails_falls_silent_and_is_spoken_anew(tmp_path: Path) -> None:
    """It was not said."""
    heard = Heard(tmp_path)
    broken = ["It snows. And ", lambda: heard.has("It snows.")]
    model = Writes(
        (broken, LlmFailure("network", "The connection broke.")), ([RAIN], call("talk", message=RAIN)), ((), reply(""))
    )
    await one_turn(heard, model, TALK)

    assert heard.texts == ["It snows.", "It rains.", "Take a coat."]
    assert heard.retracted == [("It snows.", "failed")]
    assert heard.ends == [(RAIN, "spoken")]


async def test_what_waits_for_the_end_of_the_turn_is_said_although_a_later_response_fails(tmp_path: Path) -> None:
    """Only what was written for that response is not said."""

    @tool
    async def look() -> str:
        """Look out of the window."""
        return "snow"

    heard = Heard(tmp_path)
    model = Writes(
        (["First one. "], calls(call("respond_to_user", text="First one."), call("look"))),
        (["It snows. And ", lambda: heard.has("It snows.")], LlmFailure("network", "The connection broke.")),
        ((), reply("")),
    )
    policy = Policy(speech=SpeechRules(keep="last"), text="fallback", retry=Retry(base=0))
    await one_turn(heard, model, policy, tools=["respond_to_user", look])

    assert heard.texts == ["First one.", "It snows."]
    assert heard.retracted == [("It snows.", "failed")]
    assert heard.ends == [("First one.", "spoken")]


async def test_a_cancel_falls_silent(tmp_path: Path) -> None:
    """In the middle of a word, and nothing of the queue is spoken."""
    heard = Heard(tmp_path, "time.sleep(60)")

    async def cancel(conversation: Conversation) -> None:
        await heard.has("It rains.")
        await conversation.cancel()

    await one_turn(heard, Writes((["It rains. It snows. It "], None)), TALK, cancel)

    assert heard.texts == ["It rains."]
    assert heard.retracted == [("It rains.", "cancelled")]
    assert heard.ends == []


async def test_a_call_that_is_not_valid_is_not_said(tmp_path: Path) -> None:
    """It is known when the response is complete."""
    heard = Heard(tmp_path)
    wrong = call("talk", message=RAIN, loudly=True)
    pieces = [RAIN, lambda: heard.has("It rains.")]
    await one_turn(heard, Writes((pieces, wrong), ((), reply(""))), TALK.replace(speech=SpeechRules()))

    assert [why for _, why in heard.retracted] == ["unsaid"]
    assert heard.retracted[0][0].startswith("It **rains**.")
    assert heard.ends == []


async def test_a_call_that_is_refused_is_not_said(tmp_path: Path) -> None:
    """By the person who has to allow it."""

    @tool(name="announce", acts=["speech"], exclusive=True, approval=True, spoken="text")
    async def announce(text: str) -> str:
        """Announce something."""
        raise AssertionError

    heard = Heard(tmp_path)

    async def refuse(conversation: Conversation) -> None:
        await heard.has("It rains.")
        await until(lambda: conversation.state.type == "awaiting_approval")
        assert heard.retracted == []
        state = conversation.state
        assert isinstance(state, AwaitingApproval)
        await conversation.approve(state.call.call_id, allowed=False)

    pieces = [RAIN, lambda: heard.has("It rains.")]
    model = Writes((pieces, calls(call("announce", text=RAIN))), ((), reply("")))
    await one_turn(heard, model, TALK, refuse, tools=[announce])

    assert [why for _, why in heard.retracted] == ["unsaid"]


async def test_a_later_speech_takes_its_place(tmp_path: Path) -> None:
    """By `keep="last"` only one is delivered, at the end of the turn."""
    heard = Heard(tmp_path)
    model = Writes(
        (
            ["First one.\n\nSecond one.", lambda: heard.has("First one.")],
            calls(call("respond_to_user", text="First one."), call("respond_to_user", text="Second one.")),
        ),
        ((), reply("")),
    )
    await one_turn(heard, model, Policy(speech=SpeechRules(keep="last"), text="fallback"))

    assert heard.texts == ["First one.", "Second one."]
    assert heard.retracted == [("First one.", "unsaid")]
    assert heard.ends == [("Second one.", "spoken")]


async def test_what_is_stopped_is_not_spoken_on(tmp_path: Path) -> None:
    """Neither what is written of it afterwards, nor what is delivered of it. The next response is spoken."""
    heard = Heard(tmp_path, "time.sleep(60 if 'rains' in text else 0)")

    async def stop() -> None:
        await heard.has("It rains.")
        assert heard.channel.stop()

    model = Writes(
        (["It **rains**. Take ", stop, "a coat."], call("talk", message=RAIN)),
        (["Bye."], call("talk", message="Bye.")),
        ((), reply("")),
    )
    await one_turn(heard, model, TALK)

    assert heard.texts == ["It rains.", "Bye."]
    assert heard.ends == [(RAIN, "stopped"), ("Bye.", "spoken")]


async def test_a_delivery_that_comes_when_the_next_turn_is_written_is_not_spoken_again(tmp_path: Path) -> None:
    """Nor is that of the next turn."""
    heard = Heard(tmp_path)
    first, second = said("A one.", 1), replace(said("B one.", 1), key="c/2", turn=2)
    for delivery in (first, second):
        heard.channel.speech_written(SpeechPiece(delivery.text, "c", delivery.turn, delivery.turn))
        heard.channel.speech_written(SpeechPiece("", "c", delivery.turn, delivery.turn, is_last=True))
    for delivery in (first, second):
        await heard.channel.deliver(delivery)
    await heard.channel.drain()
    await until(lambda: len(heard.ends) == 2)

    assert heard.texts == ["A one.", "B one."]


@pytest.mark.parametrize("options", [{"into": "folder"}, {"reword": lambda text: asyncio.sleep(0, text)}])
def test_neither_files_nor_rewording(options: dict[str, Any]) -> None:
    """They need the whole text."""
    with pytest.raises(ConfigurationError, match="neither reword it nor file it"):
        SpeechChannel(streaming=True, voices=[], **options)


async def test_an_error_of_a_listener_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the turn goes on."""

    class Broken:
        name = "broken"

        async def deliver(self, delivery: Delivery) -> None:
            """Take it."""

        def speech_written(self, piece: SpeechPiece) -> None:
            """Fail."""
            raise OSError("no loudspeaker")

        def speech_settled(self, settled: SpeechSettled) -> None:
            """Fail."""
            raise OSError("no loudspeaker")

    model = ScriptedLlm([call("talk", message=RAIN), reply("")])
    async with Engine.open("sqlite://", model=model, tools=["talk"], policy=TALK, channels=[Broken()]) as engine:
        turn = await (await engine.create()).send("Hi")

    assert turn.reply == RAIN
    assert "A channel failed at a speech that is being written." in caplog.text
