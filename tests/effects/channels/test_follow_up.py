"""When a turn was spoken, the application may listen for a follow-up question."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Delivery, Engine, Policy, Settings, SpeechChannel, presets
from turnwise.effects.channels.speech import KEPT, SpokenTurns, Voice
from turnwise.states import Delivered, Made, TurnEnded
from turnwise.testing import RecordingChannel, ScriptedLlm, call, calls, reply

from ...support.engine_scenarios import said, talk, until
from ...support.speech.voices import BREAKS, HANGS, WRITES, program


class Window:
    """The window in which an application listens, and the texts behind which it was opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, delivery: Delivery) -> None:
        """Open it behind the last text of a turn."""
        self.opened.append(delivery.text)


async def one_turn(
    database: Path, folder: Path, window: Window, answers: Iterable[Any], voices: list[Voice], **rules: Any
) -> tuple[str, str]:
    """Hold a turn, wait until its speech is over, and return the turn's status and reply."""
    channel = SpeechChannel(into=folder, on_turn_spoken=window.open, voices=voices)
    llm = ScriptedLlm([*answers])
    async with Engine.open(database, model=llm, tools=[talk], channels=[channel], **rules) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Hi")
        await engine.delivered()
        await channel.drain()
        await asyncio.sleep(0)
        assert (await conversation.messages())[-1]["content"] == turn.final_content
    return turn.status, turn.reply


TALKS = (calls(call("talk", text="One"), call("talk", text="Two")), reply("Thinking."))


class TestAfterATurn:
    """`on_turn_spoken`, in an engine."""

    async def test_the_window_opens_once_for_the_reply(self, database: Path, tmp_path: Path) -> None:
        """J14: when the reply was spoken."""
        window = Window()

        outcome = await one_turn(database, tmp_path, window, [reply("Sunny.")], [WRITES])

        assert outcome == ("completed", "Sunny.")
        assert window.opened == ["Sunny."]

    async def test_the_window_opens_once_for_several_texts(self, database: Path, tmp_path: Path) -> None:
        """J14: behind the last of them, and not behind each."""
        window = Window()

        await one_turn(database, tmp_path, window, TALKS, [WRITES], policy=presets.talk())

        assert window.opened == ["Two"]

    async def test_a_voice_that_fails_opens_no_window(self, database: Path, tmp_path: Path) -> None:
        """J14: the reply is returned and remembered all the same."""
        window = Window()
        impossible = Voice("impossible", ("a\0b",))

        outcome = await one_turn(database, tmp_path, window, [reply("Sunny.")], [BREAKS, impossible])

        assert outcome == ("completed", "Sunny.")
        assert window.opened == []

    async def test_a_turn_without_a_text_opens_no_window(
        self, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """There is nothing that the user could ask about."""
        window = Window()

        await one_turn(database, tmp_path, window, [reply("Thinking.")], [WRITES], policy=Policy(text="thought"))

        assert window.opened == []
        assert caplog.messages == []

    async def test_interrupted_speech_opens_no_window(self, database: Path, tmp_path: Path) -> None:
        """J14: nor does what is spoken of the same turn afterwards. The next turn opens it."""
        window = Window()
        hangs_once = program("time.sleep(60 if text == 'One' else 0); open(file, 'w').write(text)")
        channel = SpeechChannel(into=tmp_path, on_turn_spoken=window.open, voices=[hangs_once])
        answers = [calls(call("talk", text="One")), calls(call("talk", text="Two")), reply("…")]
        llm = ScriptedLlm([*answers, calls(call("talk", text="Three")), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[channel], policy=presets.talk()) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await engine.delivered()
            stopped = channel.stop()
            await channel.drain()
            await conversation.send("Go on")
            await engine.delivered()
            await channel.drain()
            await asyncio.sleep(0)

        assert stopped
        assert window.opened == ["Three"]

    async def test_a_cancelled_turn_opens_no_window(self, database: Path, tmp_path: Path) -> None:
        """J14: what was said before the cancel is spoken, but the user wants no more of it."""
        window = Window()
        channel = SpeechChannel(into=tmp_path, on_turn_spoken=window.open, voices=[WRITES])
        hangs = asyncio.Event()

        async def wait() -> str:
            """Wait."""
            await hangs.wait()
            return "over"

        llm = ScriptedLlm([calls(call("talk", text="One"), call("wait"))])
        async with Engine.open(
            database, model=llm, tools=[talk, wait], channels=[channel], policy=presets.talk()
        ) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", wait=False)
            await until(lambda: conversation.state.type == "tool_executing" and any(tmp_path.glob("*.wav")))
            await conversation.cancel()
            turn = await conversation.wait()
            await engine.delivered()
            await channel.drain()
            await asyncio.sleep(0)

        assert turn is not None and turn.status == "cancelled"
        assert window.opened == []

    async def test_speech_that_is_switched_off_is_never_called(
        self, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """J14, J19: the setting `tts_enabled`; other channels go on, and nothing waits in the outbox."""
        monkeypatch.setenv("TURNWISE_TTS_ENABLED", "false")
        window, shown = Window(), RecordingChannel()
        speech = SpeechChannel(into=tmp_path / "spoken", on_turn_spoken=window.open, voices=[WRITES])

        engine = Engine.open(
            database, model=ScriptedLlm([reply("Sunny.")]), channels=[speech, shown], settings=Settings()
        )
        async with engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await engine.delivered()
            assert not await engine.store.outbox([conversation.id])

        assert [delivery.text for delivery in shown.deliveries] == ["Sunny."]
        assert not (tmp_path / "spoken").exists() and window.opened == []

    async def test_the_steps_are_logged_without_content(
        self, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """J19: `turnwise.voice` names the delivery, the turn and the outcome."""
        caplog.set_level("INFO", "turnwise.voice")

        await one_turn(database, tmp_path, Window(), [reply("Sunny.")], [WRITES])

        assert caplog.messages == ["Delivery 1 of turn 1: spoken.", "Turn 1 was spoken."]

    async def test_an_error_of_the_callback_ends_nothing(
        self, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged without what was said, and later turns are spoken."""

        def fail(*_: object) -> None:
            raise OSError("no microphone")

        channel = SpeechChannel(into=tmp_path, on_end=fail, on_turn_spoken=fail, voices=[WRITES])
        async with Engine.open(database, model=ScriptedLlm([reply("a"), reply("b")]), channels=[channel]) as engine:
            conversation = await engine.create()
            for text in ("one", "two"):
                await conversation.send(text)
                await engine.delivered()
                await channel.drain()
                await asyncio.sleep(0)

        assert sorted(file.read_text() for file in tmp_path.glob("*.wav")) == ["a", "b"]
        failed = [record for record in caplog.records if record.levelno == logging.ERROR]
        callbacks = ["on_end", "on_turn_spoken"] * 2
        assert [record.getMessage() for record in failed] == [
            f"The callback {name} of the channel speech failed." for name in callbacks
        ]
        assert {record.name for record in failed} == {"turnwise.channels"}
        assert "no microphone" in caplog.text

    def test_a_coroutine_function_is_refused(self) -> None:
        """Nobody would await it."""

        async def listen(delivery: Delivery) -> None:
            """Listen."""

        with pytest.raises(ConfigurationError, match="on_turn_spoken must be a plain function"):
            SpeechChannel(on_turn_spoken=listen, voices=[HANGS])


def ended(turn: int, deliveries: int) -> TurnEnded:
    """Return a completed turn with so many deliveries."""
    texts = tuple(Delivered(effect_id=number, said=Made(text="x")) for number in range(deliveries))
    return TurnEnded(turn=turn, status="completed", deliveries=texts)


class TestAnyOrder:
    """The ends of a turn and of its texts."""

    @pytest.mark.parametrize("order", [*itertools.permutations(("end", 1, 2))])
    def test_the_last_thing_to_happen_completes_the_turn(self, order: tuple[str | int, ...]) -> None:
        """J14: once, whatever that is; the last delivery is that with the highest ordinal."""
        turns = SpokenTurns()

        told = [
            turns.note_end("c", ended(1, 2))
            if each == "end"
            else turns.note_text(said(f"text {each}", int(each)), spoken=True)
            for each in order
        ]

        assert [delivery and delivery.text for delivery in told] == [None, None, "text 2"]

    def test_a_text_that_comes_twice_completes_the_turn_once(self) -> None:
        """J14: a delivery may be repeated."""
        turns = SpokenTurns()
        turns.note_end("c", ended(1, 1))

        told = [turns.note_text(said("a"), spoken=True) for _ in range(2)]

        assert [delivery and delivery.text for delivery in told] == ["a", None]

    def test_turns_that_never_end_are_forgotten(self) -> None:
        """A turn that ended in an earlier process leaves nothing behind for ever."""
        turns = SpokenTurns()
        for number in range(KEPT + 1):
            turns.note_text(Delivery("x", f"c{number}", 1, 1, "k"), spoken=True)

        assert turns.note_end("c0", ended(1, 1)) is None
        assert turns.note_end(f"c{KEPT}", ended(1, 1)) is not None
