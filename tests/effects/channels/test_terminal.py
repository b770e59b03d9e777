"""The channel that prints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from turnwise import Delivery, Engine, TerminalChannel, presets
from turnwise.testing import RecordingChannel, ScriptedLlm, call, calls, reply

from ...support.engine_scenarios import said, talk

EXACT = [
    "He said \"no\" and 'yes', `maybe`.",
    "C:\\new\\table and \\n that is no line break",
    "first line\nsecond line\n\n\tindented",
    "🙂 👩‍👩‍👧‍👦 é — “quoted” … 日本語",
    '{"message": "not JSON, but words", "list": [1, 2, null]}',
    "<message_for_user>& not markup</message_for_user> **nor** this",
    "50% off {name} %s $HOME",
]


async def test_deliveries_are_printed_to_the_byte(database: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """B3, S20: quotes, backslashes, line breaks, emoji and text that looks like JSON, in order; and nothing else, not
    what the model thinks."""
    llm = ScriptedLlm([calls(*(call("talk", text=text) for text in EXACT)), reply("All said.")])

    async with Engine.open(database, model=llm, tools=[talk], channels=[TerminalChannel()]) as engine:
        await (await engine.create(policy=presets.talk())).send("Hi")

    assert capfdbinary.readouterr().out == "".join(f"{text}\n" for text in EXACT).encode()


async def test_it_works_beside_other_channels(database: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """S20: what another channel gets is also displayed, even if that one fails."""

    def breaks(delivery: Delivery) -> None:
        raise RuntimeError("no loudspeaker")

    channels = [RecordingChannel(breaks, name="speaker"), TerminalChannel()]

    async with Engine.open(database, model=ScriptedLlm([reply("Hello.")]), channels=channels) as engine:
        await (await engine.create()).send("Hi")

    assert capfd.readouterr().out == "Hello.\n"


async def test_control_characters_are_left_out() -> None:
    """A model cannot send commands to the terminal."""
    output = io.StringIO()

    await TerminalChannel(output).deliver(said("\x1b[2J\x1b]0;title\x07red\x1b[31m\x00 \x07plain"))

    assert output.getvalue() == "red plain\n"


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "é 🙂\n"), ("latin-1", "é ?\n"), ("ascii", "? ?\n")])
async def test_a_character_outside_the_encoding_is_a_question_mark(encoding: str, shown: str) -> None:
    """It is not an error: otherwise no later text would ever be delivered."""
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")

    await TerminalChannel(output).deliver(said("é 🙂"))

    output.seek(0)
    assert output.read() == shown


async def test_an_output_without_an_encoding_takes_any_text() -> None:
    """The output only needs to be writable."""

    class Collector:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    output = Collector()

    await TerminalChannel(output).deliver(said("é 🙂"))  # type: ignore[arg-type]

    assert output.text == "é 🙂\n"


async def test_a_closed_output_fails_the_delivery(database: Path) -> None:
    """B4: the turn goes on, watchers learn of it, and the text stays in the outbox."""
    output = io.StringIO()
    output.close()

    async with Engine.open(
        database, model=ScriptedLlm([reply("Hello.")]), channels=[TerminalChannel(output)]
    ) as engine:
        turn = await (await engine.create()).send("Hi")
        (left,) = await engine.store.outbox(await engine.store.ids())

    assert (turn.status, turn.deliveries, left.target) == ("completed", ("Hello.",), "terminal")
