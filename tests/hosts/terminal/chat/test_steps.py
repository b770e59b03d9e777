"""The steps of a turn, as lines beside its reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise import Engine, ModelAnswer, ModelRequest, Token, presets
from turnwise.hosts.terminal.chat.chat import screen_for, speech_for
from turnwise.hosts.terminal.configuration import Settings
from turnwise.hosts.terminal.output.lines import STEPS, LabelledStep, steps_shown_by
from turnwise.hosts.terminal.output.writer import TerminalWriter

from ....support.screens import FakeScreen
from ....support.speech.speakers import fake_speaker, fake_speaker_environment
from ....support.terminal import InProcessRun, at_prompt, end_of, run, terminal

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")


class TestSpeechOff:
    """The setting `tts_enabled`."""

    @pytest.mark.parametrize("speak", [True, False])
    def test_nothing_is_spoken(self, speak: bool, capsys: pytest.CaptureFixture[str]) -> None:
        """J14, J19: also where `--speak` asks for it; then stderr says why."""
        speech = speech_for(Settings(speak=speak, tts_enabled=False), TerminalWriter(interactive=False))

        why = "Nothing is spoken, because the settings say that tts_enabled is false.\n"
        assert (speech, capsys.readouterr().err) == (None, why if speak else "")


class TestLabels:
    """Records as lines on stderr."""

    def test_a_record_is_one_line(self) -> None:
        """Whatever is in it, control characters too."""
        record = logging.LogRecord("turnwise.memory", logging.INFO, "", 0, "%d\ntexts \x1b[2J", (2,), None)

        assert LabelledStep().format(record) == "[memory] 2 texts"


class TestShortLines:
    """Without `voice_debug`."""

    async def test_each_step_is_a_short_line(self) -> None:
        """J24: also a step that another thread reports; it is shown in the event loop."""
        shown: list[str] = []

        with steps_shown_by(shown.append):
            for step in STEPS:
                logging.getLogger(f"turnwise.{step}").info("%d done", 1)
            await asyncio.to_thread(logging.getLogger("turnwise.voice").info, "spoken")
            await asyncio.sleep(0)
        logging.getLogger("turnwise.voice").info("later")

        assert shown == [*(f"· {step}: 1 done" for step in STEPS), "· voice: spoken"]


PROFILES = """preset = "reply-flow"
[profiles.companion]
description = "Conversation about people."
[profiles.guide]
description = "Travel, places and the weather."
"""
NUMBER = "4111 1111 1111 1111"


class TestTheReplyFlow:
    """`turnwise chat --preset reply-flow`, with the rehearsal model."""

    @pytest.mark.slow
    def test_a_terminal_shows_steps_a_header_and_the_reply(self, tmp_path: Path) -> None:
        """J24: in this order. A step quotes nothing, and what the user typed is the only place of a secret."""
        (tmp_path / "turnwise.toml").write_text(PROFILES)
        screen = FakeScreen(100, 40)

        with terminal("chat", cwd=tmp_path) as child:
            at_prompt(child).sendline(f"Is the weather in Turku worth {NUMBER}?")
            child.expect_exact("You said")
            screen.write(f"{child.before}You said{at_prompt(child).before}")
            child.sendeof()
            assert end_of(child) == 0

        lines = screen.text.splitlines()
        kinds = [line.partition(":")[0] for line in lines if line.startswith("· ")]
        assert kinds == ["· profile", "· memory", "· planning"]
        header = lines.index("Assistant · guide")
        assert header > lines.index(next(line for line in lines if line.startswith("· planning")))
        assert any("You said: “Is the weather in Turku worth" in line for line in lines[header:])
        assert not any("Turku" in line for line in lines if line.startswith("· "))
        assert not any(NUMBER in line for line in lines[1:] if not line.startswith("> "))
        assert NUMBER.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("turnwise.db*"))

    @pytest.mark.slow
    def test_debugging_moves_the_steps_to_stderr(self, tmp_path: Path) -> None:
        """J19, J24: by the option or the setting, each with its label and without content. Through a pipe the header
        stands above the reply, too, and the resume hint has the options. One profile is not chosen. A later
        conversation of the same owner knows the dialogue of the last minutes."""
        (tmp_path / "turnwise.toml").write_text(PROFILES)
        fake_speaker(tmp_path)
        options = ("--profile", "guide", "--speak", "--voice-debug")

        done = run(
            *("chat", "--owner", "ada", *options), cwd=tmp_path, lines=["Hello"], **fake_speaker_environment(tmp_path)
        )
        later = run("chat", "--owner", "ada", cwd=tmp_path, lines=["Where were we?"], TURNWISE_VOICE_DEBUG="1")

        assert (done.returncode, later.returncode) == (0, 0)
        assert done.stdout.splitlines()[0].endswith(" ".join(options))
        assert done.stdout.count("\nAssistant · guide\n") == 1
        assert "·" not in done.stdout.replace("Assistant · guide", "")
        labels = [line.partition(" ")[0] for line in done.stderr.splitlines()]
        assert labels == ["[memory]", "[planning]", "[voice]", "[voice]"]
        assert "[voice] Delivery 1 of turn 1: spoken.\n[voice] Turn 1 was spoken.\n" in done.stderr
        assert "Hello" not in done.stderr
        assert "[profile] " in later.stderr and " recent: 2," in later.stderr

    async def test_what_is_removed_from_an_answer_is_not_streamed_to_a_pipe(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """J1, J13: a pipe takes nothing back, so it gets the answer when it is complete, once."""
        async with Engine.open("sqlite://", model=StreamedCard(), policy=presets.reply_flow()) as engine:
            conversation = await engine.create()
            screen = screen_for(conversation, Settings(), TerminalWriter(interactive=False))
            async for update in conversation.stream("Which card?"):
                screen.show(update)

        assert capsys.readouterr().out == "Assistant\nYour card is [CARD].\n"


class StreamedCard:
    """A model that calls a tool by the reserved marker and names a card, in pieces."""

    name = "card"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Show each piece as it comes."""
        pieces = ("TOOL look", f"up\nYour card is {NUMBER[:8]}", f"{NUMBER[8:]}.")
        if request.purpose == "converse":
            for piece in pieces:
                show(Token(piece))
        return ModelAnswer("".join(pieces) if request.purpose == "converse" else "{}")


class TestOneProfile:
    """`--profile`."""

    def test_an_unknown_profile_is_one_sentence(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """P33: it names those that there are, and leaves no database behind."""
        (tmp_path / "turnwise.toml").write_text('[profiles.cook]\nprompt = "You cook."\n')

        done = in_process("chat", "--profile", "guide", lines=["hello"])

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "There is no profile called guide. Known: cook.\n"
        assert not (tmp_path / "turnwise.db").exists()
