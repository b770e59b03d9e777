"""The steps of a turn, as lines beside its reply."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from turnwise.hosts.terminal.output.step_lines import STEPS, LabelledStep, steps_shown_by

from ....support.screens import FakeScreen
from ....support.speech.speakers import fake_speaker, fake_speaker_environment
from ....support.terminal import InProcessRun, at_prompt, end_of, run, terminal

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")


class TestSpeechOff:
    """The setting `tts_enabled`."""

    def test_nothing_is_spoken(self, tmp_path: Path) -> None:
        """J14, J19: `--speak` says why on stderr; the file and the environment decide alike."""
        spoken = fake_speaker(tmp_path)
        (tmp_path / "turnwise.toml").write_text("tts_enabled = false\n")

        done = run("chat", "--speak", cwd=tmp_path, lines=["hello"], **fake_speaker_environment(tmp_path))

        assert "You said: “hello”" in done.stdout
        assert done.stderr == "Nothing is spoken, because the settings say that tts_enabled is false.\n"
        assert not spoken.exists()


class TestLabels:
    """`--voice-debug`, and the setting `voice_debug`."""

    def test_steps_are_labelled_on_stderr(self, tmp_path: Path) -> None:
        """J19, J24: with the label of the step, and without content; stdout is as it is without them. The resume hint
        has the option."""
        fake_speaker(tmp_path)
        environment = fake_speaker_environment(tmp_path)

        done = run("chat", "--speak", "--voice-debug", cwd=tmp_path, lines=["hello"], **environment)

        assert "[voice] Delivery 1 of turn 1: spoken.\n[voice] Turn 1 was spoken.\n" in done.stderr
        assert all(line.startswith(("[voice] ", "[planning] ")) for line in done.stderr.splitlines())
        assert "hello" not in done.stderr and "Turn 1" not in done.stdout
        assert done.stdout.splitlines()[0].endswith("--speak --voice-debug")

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

    def test_debugging_moves_the_steps_to_stderr(self, tmp_path: Path) -> None:
        """J24: with labels; through a pipe the header stands above the reply, too. One profile is not chosen. A later
        conversation of the same owner knows the dialogue of the last minutes."""
        (tmp_path / "turnwise.toml").write_text(f"voice_debug = true\n{PROFILES}")

        done = run("chat", "--profile", "guide", "--owner", "ada", cwd=tmp_path, lines=["Hello", "And you?"])
        later = run("chat", "--owner", "ada", cwd=tmp_path, lines=["Where were we?"])

        assert (done.returncode, later.returncode) == (0, 0)
        assert done.stdout.count("\nAssistant · guide\n") == 2 and "· memory" not in done.stdout
        labels = [line.partition(" ")[0] for line in done.stderr.splitlines()]
        assert labels == ["[memory]", "[planning]"] * 2
        assert "Hello" not in done.stderr
        assert "[profile] " in later.stderr and " recent: 4," in later.stderr


class TestOneProfile:
    """`--profile`."""

    def test_an_unknown_profile_is_one_sentence(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """P33: it names those that there are, and leaves no database behind."""
        (tmp_path / "turnwise.toml").write_text('[profiles.cook]\nprompt = "You cook."\n')

        done = in_process("chat", "--profile", "guide", lines=["hello"])

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "There is no profile called guide. Known: cook.\n"
        assert not (tmp_path / "turnwise.db").exists()
