"""The channel that speaks: what of a text is spoken, by real processes, into files that can be listened to."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import (
    ConfigurationError,
    Delivery,
    Engine,
    Policy,
    Rewording,
    Settings,
    SpeechChannel,
    TerminalChannel,
    presets,
)
from turnwise.effects.channels import speech
from turnwise.effects.channels.speech import CODE, ESPEAK, KEPT, PYTTSX3, SpokenTurns, Voice, make_speakable
from turnwise.states import Delivered, Made, TurnEnded
from turnwise.testing import FunctionLlm, RecordingChannel, ScriptedLlm, call, calls, failure, reply
from turnwise.testing.crashes import Process

from ...support.cases import holds_for
from ...support.engine_scenarios import said, talk, until
from ...support.speech.voices import (
    BREAKS,
    HANGS,
    WORDS,
    WRITES,
    any_voice_that_works,
    heard,
    plays_nothing,
    program,
    voice_that_works,
)

# --- The channel that speaks: what of a text is spoken, by real processes, into files that can be listened to.
#
# S20: markup is removed from a text that is to be spoken.


class Ends:
    """What a channel reported at the end of each text."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.threads: set[int] = set()

    def __call__(self, delivery: Delivery, outcome: str) -> None:
        """Record it."""
        self.told.append((delivery.text, outcome))
        self.threads.add(threading.get_ident())


def spoken_in(folder: Path) -> list[str]:
    """The texts that the voice `WRITES` wrote, in the order of the deliveries."""
    return [file.read_text() for file in sorted(folder.iterdir())]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
class TestRealVoices:
    """Each voice of this machine, into files."""

    @pytest.mark.parametrize("name", [ESPEAK, PYTTSX3])
    async def test_what_is_said_can_be_heard(self, name: str, tmp_path: Path) -> None:
        """S20: a sentence takes seconds and is not silence; a longer one takes longer."""
        voice = voice_that_works(name, tmp_path)
        channel = SpeechChannel(into=tmp_path / "spoken", voices=[voice])

        await channel.deliver(said("Yes.", 1))
        await channel.deliver(said(WORDS, 2))
        await channel.drain()

        short, long = heard(tmp_path / "spoken" / "c-1.wav"), heard(tmp_path / "spoken" / "c-2.wav")
        assert 0.2 < short[0] < long[0]
        assert 2 < long[0] < 10
        assert min(short[1], long[1]) > 500
        assert sorted(file.name for file in (tmp_path / "spoken").iterdir()) == ["c-1.wav", "c-2.wav"]

    @pytest.mark.parametrize("name", [ESPEAK, PYTTSX3])
    async def test_a_long_text_is_spoken_to_its_end(self, name: str, tmp_path: Path) -> None:
        """Thirty times the words take about thirty times as long, however busy the machine is."""
        channel = SpeechChannel(into=tmp_path / "spoken", voices=[voice_that_works(name, tmp_path)])

        await channel.deliver(said(WORDS, 1))
        await channel.deliver(said(" ".join([WORDS] * 30), 2))
        await channel.drain()

        once, often = heard(tmp_path / "spoken" / "c-1.wav"), heard(tmp_path / "spoken" / "c-2.wav")
        assert often[0] > 20 * once[0]

    def test_a_file_that_cannot_be_written_is_a_failure(self, tmp_path: Path) -> None:
        """pyttsx3 writes in a thread of its own; an error there ends the process with a reason."""
        voice = voice_that_works(PYTTSX3, tmp_path)

        fault = speech.speak(voice.start(tmp_path / "nowhere" / "spoken.wav"), WORDS)

        assert "No such file" in str(fault)

    @pytest.mark.parametrize("name", [ESPEAK, PYTTSX3])
    async def test_a_text_is_never_an_option_of_the_program(self, name: str, tmp_path: Path) -> None:
        """A text that begins with a dash is spoken."""
        channel = SpeechChannel(into=tmp_path, voices=[voice_that_works(name, tmp_path)])

        await channel.deliver(said("--help"))
        await channel.drain()

        assert heard(tmp_path / "c-1.wav")[1] > 500

    async def test_markup_is_not_spoken(self, tmp_path: Path) -> None:
        """S20: a voice gets the text without it."""
        channel = SpeechChannel(into=tmp_path, voices=[WRITES])

        await channel.deliver(said("The **table** is `booked`, see [here](https://example.com/very/long)."))
        await channel.drain()

        assert spoken_in(tmp_path) == ["The table is booked, see here."]

    async def test_nothing_is_printed(self, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        """What a voice prints is not passed on."""
        channel = SpeechChannel(into=tmp_path, voices=[any_voice_that_works(tmp_path)])

        await channel.deliver(said(WORDS))
        await channel.drain()

        assert capfdbinary.readouterr().out == b""

    @pytest.mark.parametrize("name", [ESPEAK, PYTTSX3])
    async def test_without_a_loudspeaker_it_fails_with_a_reason(self, name: str, tmp_path: Path) -> None:
        """Also if the program itself ends with the exit code of success."""
        voice = voice_that_works(name, tmp_path)
        if not speech.which(ESPEAK) or not plays_nothing():
            pytest.skip("somebody would hear it")
        ends = Ends()
        channel = SpeechChannel(on_end=ends, voices=[voice])

        await channel.deliver(said("Nobody hears this."))
        await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("Nobody hears this.", "failed")]


class TestInAnEngine:
    """As one of the channels of a conversation."""

    async def test_it_speaks_in_order_and_displays(
        self, database: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """S20, B2: each delivery is spoken without its markup, in order, outside of the event loop, and displayed
        unchanged."""
        ends = Ends()
        channels = [SpeechChannel(into=tmp_path, on_end=ends, voices=[WRITES]), TerminalChannel()]
        llm = ScriptedLlm([calls(call("talk", text="**One**"), call("talk", text="Two")), reply("Thinking.")])

        async with Engine.open(database, model=llm, tools=[talk], channels=channels) as engine:
            conversation = await engine.create(policy=presets.talk())
            turn = await conversation.send("Hi")
            await until(lambda: len(ends.told) == 2)

        assert turn.deliveries == ("**One**", "Two")
        assert ends.told == [("**One**", "spoken"), ("Two", "spoken")]
        assert ends.threads == {threading.get_ident()}
        files = sorted(tmp_path.glob("*.wav"), key=lambda file: file.stat().st_mtime_ns)
        assert [file.read_text() for file in files] == ["One", "Two"]
        assert all(file.name.startswith(conversation.id) for file in files)
        assert capfd.readouterr().out == "**One**\nTwo\n"

    async def test_a_slow_voice_does_not_delay_the_turn(self, database: Path, tmp_path: Path) -> None:
        """B2, B4: a text is taken over at once, also if its voice is slow or hangs."""
        channel = SpeechChannel(into=tmp_path, voices=[HANGS])
        llm = ScriptedLlm([calls(call("talk", text="a"), call("talk", text="b")), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[channel]) as engine:
            turn = await (await engine.create(policy=presets.talk())).send("Hi")
            await engine.delivered()
        still_speaking = channel.stop()
        await channel.drain()

        assert turn.status == "completed"
        assert still_speaking

    def test_the_next_process_speaks_what_was_not_taken_over(self, database: Path, tmp_path: Path) -> None:
        """S13, B9: the process dies while the channel takes a delivery over; the next process speaks it once."""

        def talks(request: Any) -> Any:
            answers = sum(message["role"] == "assistant" for message in request.messages)
            return [call("talk", text="a"), call("talk", text="b"), reply("…")][answers]

        async def scenario(path: Path) -> None:
            channel = SpeechChannel(into=tmp_path, voices=[WRITES])
            async with Engine.open(path, model=FunctionLlm(talks), tools=[talk], channels=[channel]) as engine:
                known = await engine.list()
                conversation = await engine.get(known[0].id) if known else await engine.create(policy=presets.talk())
                await conversation.send("Hi", message_id="m1")
                await channel.drain()

        whole = tmp_path / "journal.jsonl"
        assert Process(scenario, tmp_path / "whole.db", whole).wait()
        boundaries = [line for line in whole.read_text().splitlines() if '"boundary"' in line]
        second = [number for number, line in enumerate(boundaries, start=1) if "before a delivery" in line][1]
        for file in tmp_path.glob("*.wav"):
            file.unlink()
        assert not Process(scenario, database, tmp_path / "killed.jsonl", dies_at=second).wait()
        before = sorted(file.read_text() for file in tmp_path.glob("*.wav"))
        assert Process(scenario, database, tmp_path / "killed.jsonl").wait()

        assert before in (["a"], [])  # what it had taken over and not begun to speak is lost
        assert sorted(file.read_text() for file in tmp_path.glob("*.wav")) == [*before, "b"]


class TestSpeaking:
    """The channel itself, with programs as voices."""

    async def test_stop_silences_it_at_once(self, tmp_path: Path) -> None:
        """The voice is terminated with its child processes, waiting texts are dropped, and later ones are spoken."""
        ends = Ends()
        pids = tmp_path / "pids"
        starts = program(
            "import os, subprocess\n"
            "if text != 'c':\n"
            f"    player = subprocess.Popen(['sleep', '60'])\n    open({str(pids)!r}, 'w').write(str(player.pid))\n"
            "    time.sleep(60)"
        )
        channel = SpeechChannel(on_end=ends, voices=[starts])
        await channel.deliver(said("a", 1))
        await channel.deliver(said("b", 2))
        await until(lambda: pids.exists() and pids.read_text() != "")

        stopped = [channel.stop(), channel.stop()]
        await channel.drain()
        await channel.deliver(said("c", 3))
        await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("a", "stopped"), ("b", "stopped"), ("c", "spoken")]
        assert stopped == [True, False]
        await until(lambda: not _lives(int(pids.read_text())))

    async def test_after_a_voice_that_fails_the_next_one_speaks(self, tmp_path: Path) -> None:
        """The same text, whether the first voice fails, is missing, or writes nothing although it reports success."""
        silent = program("pass", "silent")
        missing = speech.Voice("missing", (str(tmp_path / "missing"),))
        complains = program("print('error: no device', file=sys.stderr)", "complains")
        ends = Ends()
        channel = SpeechChannel(into=tmp_path, on_end=ends, voices=[BREAKS, missing, silent, complains, WRITES])

        await channel.deliver(said("a"))
        await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("a", "spoken")]
        assert (tmp_path / "c-1.wav").read_text() == "a"
        assert list(tmp_path.glob("*.part")) == []

    async def test_a_text_that_no_voice_can_speak_is_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """When no voice works: in the log, with the error of each voice, and to `on_end`; the next text is tried
        again."""
        ends = Ends()
        missing = speech.Voice("missing", (str(tmp_path / "missing"),))
        complains = program("sys.exit('one\\n\\x1b[31mno ' + 'lib ' * 200)", "complains")
        channel = SpeechChannel(into=tmp_path, on_end=ends, voices=[BREAKS, missing, complains])

        await channel.deliver(said("a", 1))
        await channel.deliver(said("b", 2))
        await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("a", "failed"), ("b", "failed")]
        logged = [message for message in caplog.messages if message.startswith("The channel ")]
        assert logged == [logged[0]] * 2
        told, _, complaint = logged[0].partition("; complains: ")
        assert told == (
            "The channel speech could not speak a delivery. "
            "breaks: it ended with the exit code 1; missing: No such file or directory"
        )
        assert complaint.startswith("no lib lib ")
        assert len(complaint) == speech.LONGEST_FAULT

    async def test_a_failed_voice_is_logged_if_another_one_speaks(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """On the level debug: the text was spoken, but with another voice."""
        caplog.set_level("DEBUG", "turnwise.channels")
        complains = program("print('error: no device\\nbye', file=sys.stderr)", "complains")

        channel = SpeechChannel(into=tmp_path, voices=[complains, WRITES])
        await channel.deliver(said("a"))
        await channel.drain()

        assert caplog.messages == ["The channel speech speaks with writes. complains: error: no device"]

    async def test_an_error_of_a_voice_ends_only_its_own_attempt(self, tmp_path: Path) -> None:
        """Whatever it raises, the next voice is tried, and later texts are spoken."""
        impossible = speech.Voice("impossible", ("a\0b",))
        ends = Ends()
        channel = SpeechChannel(into=tmp_path, on_end=ends, voices=[impossible, WRITES])

        await channel.deliver(said("a", 1))
        await channel.deliver(said("b", 2))
        async with asyncio.timeout(60):
            await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("a", "spoken"), ("b", "spoken")]

    async def test_without_a_thread_it_is_not_taken_over(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The delivery is repeated later, and is then spoken."""

        def no_thread(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        channel = SpeechChannel(into=tmp_path, voices=[WRITES])
        with monkeypatch.context() as full, pytest.raises(RuntimeError):
            full.setattr(threading.Thread, "start", no_thread)
            await channel.deliver(said("a"))

        await channel.deliver(said("a"))
        async with asyncio.timeout(60):
            await channel.drain()

        assert (tmp_path / "c-1.wav").read_text() == "a"

    @pytest.mark.parametrize("text", ["[[h@'loU]]", "[[[h@'loU]]]", "a [[[[ b"])
    async def test_no_text_is_taken_for_phonemes(self, text: str, tmp_path: Path) -> None:
        """espeak-ng reads phonemes behind `[[`; the words of a text stay words."""
        channel = SpeechChannel(into=tmp_path, voices=[WRITES])

        await channel.deliver(said(text))
        await channel.drain()

        given = (tmp_path / "c-1.wav").read_text()
        assert "[[" not in given
        assert given.replace(" ", "") == text.replace(" ", "")

    async def test_a_voice_that_hangs_is_terminated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a time in which any text would be spoken."""
        monkeypatch.setattr(speech, "TIMEOUT", 0.1)
        channel = SpeechChannel(into=tmp_path, voices=[HANGS, WRITES])

        await channel.deliver(said("a"))
        await channel.drain()

        assert (tmp_path / "c-1.wav").read_text() == "a"

    async def test_an_empty_text_starts_no_voice(self, tmp_path: Path) -> None:
        """It counts as spoken as soon as its turn comes."""
        ends = Ends()
        channel = SpeechChannel(into=tmp_path, on_end=ends, voices=[BREAKS])

        await channel.deliver(said("---\n\n***"))
        await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("---\n\n***", "spoken")]

    def test_it_goes_on_after_the_event_loop_is_closed(self, tmp_path: Path) -> None:
        """An application may run one loop after the other; a closed loop receives no report."""
        ends = Ends()
        may_end = tmp_path / "may end"
        waits = program(
            f"import os\nwhile not os.path.exists({str(may_end)!r}): time.sleep(0.01)\nopen(file, 'w').write(text)"
        )
        channel = SpeechChannel(into=tmp_path / "spoken", on_end=ends, voices=[waits])

        asyncio.run(channel.deliver(said("a", 1)))
        asyncio.run(channel.deliver(said("b", 2)))
        may_end.touch()
        asyncio.run(channel.drain())

        assert spoken_in(tmp_path / "spoken") == ["a", "b"]
        assert ends.told == []

    async def test_a_key_never_leads_out_of_the_folder(self, tmp_path: Path) -> None:
        """Whatever the id of an imported conversation is."""
        channel = SpeechChannel(into=tmp_path / "spoken", voices=[WRITES])

        await channel.deliver(Delivery("a", "../../x", 1, 1, key="../../x\0/1"))
        await channel.drain()

        assert [file.read_text() for file in (tmp_path / "spoken").iterdir()] == ["a"]

    async def test_a_model_can_reword_a_text(self, tmp_path: Path) -> None:
        """S20: remaining markup is removed, and the order is kept."""
        slow = asyncio.get_running_loop().create_future()
        llm = ScriptedLlm([slow, reply("And *milk*.")])
        channel = SpeechChannel(into=tmp_path, reword=Rewording(llm), voices=[WRITES])

        await channel.deliver(said("| rice | tea |", 1))
        await channel.deliver(said("- milk", 2))
        await until(lambda: len(llm.requests) == 2)
        slow.set_result(reply("Rice, and tea."))
        await channel.drain()

        assert spoken_in(tmp_path) == ["Rice, and tea.", "And milk."]
        assert [request.purpose for request in llm.requests] == ["reword"] * 2
        assert {request.conversation_id for request in llm.requests} == {said("", 1).conversation_id}
        assert "| rice | tea |" in llm.requests[0].messages[0]["content"]

    @pytest.mark.parametrize("answer", [failure("server_error"), reply(" "), reply("```\n```"), "hangs"])
    async def test_a_failed_rewording_leaves_the_text_without_markup(
        self, answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S20: whatever the model does."""
        monkeypatch.setattr(speech, "REWORDING_TIMEOUT", 0.05 if answer == "hangs" else 10.0)
        answers = [asyncio.get_running_loop().create_future() if answer == "hangs" else answer]
        channel = SpeechChannel(into=tmp_path, code="", reword=Rewording(ScriptedLlm(answers)), voices=[WRITES])

        await channel.deliver(said("**Rice**", 1))
        await channel.drain()

        assert spoken_in(tmp_path) == ["Rice"]

    @pytest.mark.parametrize("answer", [None, 7, ["Rice"]])
    async def test_a_rewording_that_is_not_a_text_is_not_used(self, answer: Any, tmp_path: Path) -> None:
        """The application's function may return anything, and later texts are still spoken."""
        channel = SpeechChannel(into=tmp_path, reword=lambda text: asyncio.sleep(0, answer), voices=[WRITES])

        for ordinal, text in enumerate(["**Rice**", "**Tea**"], start=1):
            await channel.deliver(said(text, ordinal))
        await channel.drain()

        assert spoken_in(tmp_path) == ["Rice", "Tea"]

    async def test_a_truncated_rewording_is_not_used(self, tmp_path: Path) -> None:
        """P41: the rest of the text would not be heard."""
        cut_off = replace(reply("Take the first"), finish_reason="length")
        channel = SpeechChannel(into=tmp_path, reword=Rewording(ScriptedLlm([cut_off])), voices=[WRITES])

        await channel.deliver(said("Take the *first* pill.", 1))
        await channel.drain()

        assert spoken_in(tmp_path) == ["Take the first pill."]

    async def test_whatever_a_rewording_raises_the_next_text_is_spoken(self, tmp_path: Path) -> None:
        """Not every exception is an `Exception`."""

        class Halt(BaseException):
            pass

        async def halts(text: str) -> str:
            raise Halt

        channel = SpeechChannel(into=tmp_path, reword=halts, voices=[WRITES])
        with suppress(Halt):  # a task that ends so is the event loop's to tell of
            for ordinal, text in enumerate(["Rice", "Tea"], start=1):
                await channel.deliver(said(text, ordinal))
            await channel.drain()

        await until(lambda: len(spoken_in(tmp_path)) == 2)
        assert spoken_in(tmp_path) == ["Rice", "Tea"]

    async def test_a_text_that_has_ended_cannot_be_stopped(self, tmp_path: Path) -> None:
        """`stop` returns whether anything was being spoken, also during the report of the end."""
        stopped: list[bool] = []
        channel = SpeechChannel(into=tmp_path, on_end=lambda *_: stopped.append(channel.stop()), voices=[WRITES])

        await channel.deliver(said("Rice", 1))
        await channel.drain()
        await until(lambda: bool(stopped))

        assert stopped == [False]

    async def test_a_text_that_is_being_reworded_can_be_stopped(self, tmp_path: Path) -> None:
        """Its rewording is cancelled."""
        ends = Ends()
        llm = ScriptedLlm([asyncio.get_running_loop().create_future()])
        channel = SpeechChannel(into=tmp_path, on_end=ends, reword=Rewording(llm), voices=[WRITES])
        await channel.deliver(said("Rice", 1))

        assert channel.stop()
        await channel.drain()
        await asyncio.sleep(0)

        assert ends.told == [("Rice", "stopped")]

    def test_a_rewording_is_not_awaited_after_the_loop_is_closed(self, tmp_path: Path) -> None:
        """The original text is spoken."""
        channel = SpeechChannel(into=tmp_path, reword=lambda text: asyncio.sleep(60, "Never"), voices=[WRITES])

        asyncio.run(channel.deliver(said("Rice", 1)))
        asyncio.run(channel.drain())

        assert spoken_in(tmp_path) == ["Rice"]

    def test_a_coroutine_function_is_refused_as_on_end(self) -> None:
        """Nobody would await it, and that would be noticed too late."""

        async def ends(delivery: Delivery, outcome: str) -> None:
            """Tell somebody."""

        with pytest.raises(ConfigurationError, match="must be a plain function"):
            SpeechChannel(on_end=ends, voices=[WRITES])

    @pytest.mark.parametrize(
        ("platform", "wanted"),
        [
            ("linux", "install the program espeak-ng, or with pip pyttsx3 and espeakng-loader."),
            ("darwin", "install pyttsx3, or the program espeak-ng."),
            ("win32", "install pyttsx3, or the program espeak-ng."),
        ],
    )
    def test_without_any_voice_it_cannot_be_made(
        self, platform: str, wanted: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The sentence says what to install: on Linux pyttsx3 alone cannot speak."""
        monkeypatch.setattr(speech.sys, "platform", platform)
        monkeypatch.setattr(speech, "find_spec", lambda name: None)
        monkeypatch.setattr(speech, "which", lambda name: None)

        with pytest.raises(ConfigurationError, match=f"{re.escape(wanted)}$"):
            SpeechChannel()


@holds_for(
    ("text", "spoken"),
    [
        ("**bold**, *it*, __strong__, _em_, ~~old~~ and `code`", "bold, it, strong, em, old and code"),
        ("# Dinner #\n\nTonight.", "Dinner.\nTonight."),
        ("- one\n* two\n+ three!\n- [x] four\n1. five", "one.\ntwo.\nthree!\nfour.\n1. five."),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("Look:\n\n```python\nprint('*')\n```\nDone.", f"Look:\n{CODE}\nDone."),
        ("~~~\n```\nstill code\n~~~\nout", f"{CODE}\nout"),
        ("```\nnever ended", CODE),
        ('See [the page](https://example.com/a_(b)?q=1 "title").', "See the page."),
        ("![a cat](cat.png) and [text][ref]\n\n[ref]: https://example.com", "a cat and text"),
        (
            "Go to https://www.example.com/a/b?c=d#e, or <https://example.org>.",
            "Go to example.com, or example.org.",
        ),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |", "a, b.\n1, 2."),
        ("one\n\n---\n***\n\ntwo", "one\ntwo"),
        ("<b>bold</b><br/>AT&amp;T<!-- no -->", "boldAT&T"),
        (r"\*stars\* and \_lines\_", "*stars* and _lines_"),
        (
            "snake_case, 2 * 3 * 4, a < b > c, C# & 5*3, $5, 50%",
            "snake_case, 2 * 3 * 4, a < b > c, C# & 5*3, $5, 50%",
        ),
        ("\x1b[31mred\x1b[0m\x07", "red"),
        ("---\n\n***", ""),
        ("", ""),
    ],
)
def test_only_the_words_are_left(text: str, spoken: str) -> None:
    """Emphasis, headings, lists, quotes, code, links, URLs, tables, rules and HTML; anything else stays."""
    assert make_speakable(text) == spoken


def test_the_application_chooses_the_text_for_code() -> None:
    """In the language of its users."""
    assert make_speakable("```\nx\n```", code="Siehe Bildschirm.") == "Siehe Bildschirm."


@given(st.text(alphabet=st.sampled_from("ab *_`~#->[]()!|\\<>&;:/.1\n"), max_size=60))
def test_words_are_never_lost_outside_of_markup(text: str) -> None:
    """Any text beside a line of plain words leaves that line unchanged."""
    spoken = make_speakable(f"Plain words.\n\n{text}")

    assert spoken.startswith("Plain words.")


@holds_for("piece", ["*a ", "_a", "[a](", "![]", "<a", "<!--", "|", "- ", "> ", "`", " ", "&a", "\\*", "[](a(b"])
def test_the_time_is_proportional_to_the_length(piece: str) -> None:
    """Hostile repetitions of any mark end; with quadratic time this would take minutes."""
    make_speakable(piece * 20_000)


# --- When a turn was spoken, the application may listen for a follow-up question.


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
