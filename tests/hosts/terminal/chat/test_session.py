"""The speech of a chat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from ....support.servers.mcp_programs import Program
from ....support.speech.speakers import fake_speaker, fake_speaker_environment
from ....support.terminal import assert_one_sentence, at_prompt, end_of, output_after_hint, run, terminal

pytestmark = pytest.mark.slow


class TestSpeech:
    """`--speak`."""

    def test_what_is_said_is_also_spoken(self, tmp_path: Path) -> None:
        """S20: the text is shown as it is, and spoken to its end before the command ends."""
        spoken = fake_speaker(tmp_path, seconds=0.3)

        done = run(
            "chat", "--speak", cwd=tmp_path, lines=["hello", "and **you**"], **fake_speaker_environment(tmp_path)
        )

        assert "You said: “and **you**”" in output_after_hint(done)
        said = spoken.read_text()
        assert said.index("You said: “hello”") < said.index("You said: “and you”")

    def test_a_failure_to_speak_is_noted_once(self, tmp_path: Path) -> None:
        """S20: the conversation continues without speech."""
        fake_speaker(tmp_path, ends="sys.exit(1)")

        done = run("chat", "--speak", cwd=tmp_path, lines=["hello", "again"], **fake_speaker_environment(tmp_path))

        assert output_after_hint(done).count("could not be spoken") == 1
        assert "with --debug the log says why" in done.stdout

    def test_the_log_says_why(self, tmp_path: Path) -> None:
        """S20: `--debug` shows the error of the speech engine; the resume hint has `--speak` too."""
        fake_speaker(tmp_path, ends="sys.exit('no such device')")

        done = run("chat", "--speak", "--debug", cwd=tmp_path, lines=["hello"], **fake_speaker_environment(tmp_path))

        assert "espeak-ng: no such device\n" in done.stderr
        assert "no voice works here; the log says why." in done.stdout
        assert done.stdout.splitlines()[0].endswith(" --speak")

    def test_the_note_on_a_failure_appears_above_the_prompt(self, tmp_path: Path) -> None:
        """The line that is being typed stays, and is sent as a whole."""
        fake_speaker(tmp_path, seconds=1, ends="sys.exit(1)")

        with terminal("chat", "--speak", cwd=tmp_path, **fake_speaker_environment(tmp_path)) as child:
            at_prompt(child).sendline("hello")
            child.expect_exact("You said: “hello”")
            at_prompt(child).send("and y")
            child.expect_exact("This could not be spoken")
            at_prompt(child).sendline("ou")
            child.expect_exact("You said: “and you”")
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    def test_a_missing_speech_engine_is_one_sentence(self, tmp_path: Path) -> None:
        """P33: it says what to install, before anything else happens."""
        empty = tmp_path / "empty"
        empty.mkdir()
        if subprocess.run([sys.executable, "-c", "import pyttsx3"], capture_output=True).returncode == 0:
            pytest.skip("pyttsx3 is installed")

        done = run("chat", "--speak", cwd=tmp_path, PATH=str(empty))

        assert_one_sentence(done, "No speech engine is installed: install ")

    def test_ctrl_c_at_the_prompt_cuts_it_off(self, tmp_path: Path) -> None:
        """When the turn is over and speech is not, the first Ctrl-C silences it, and the line being typed is kept."""
        spoken = fake_speaker(tmp_path, seconds=60, ends=f"open({str(tmp_path / 'to the end')!r}, 'w')")

        with terminal("chat", "--speak", cwd=tmp_path, **fake_speaker_environment(tmp_path)) as child:
            at_prompt(child).send("hello\r")
            at_prompt(child)
            while not spoken.exists():
                child.expect([pexpect.TIMEOUT], timeout=0.1)
            child.send("and ")
            child.expect_exact("and ")
            child.send("\x03")
            at_prompt(child).expect_exact("and ")
            silenced = str(child.before)
            child.send("now?\r")
            child.expect_exact("You said: “and now?”")
            at_prompt(child).send("\x03")  # silences this answer too
            at_prompt(child).send("\x03")
            child.expect_exact("Press Ctrl-C again to leave")
            child.send("\x03")

            assert end_of(child) == 0
        assert "Press Ctrl-C" not in silenced
        assert not (tmp_path / "to the end").exists()

    def test_ctrl_c_cuts_it_off(self, tmp_path: Path) -> None:
        """Ctrl-C also ends the wait for speech at the end of the command."""
        spoken = fake_speaker(tmp_path, seconds=60)
        environment = {**os.environ, **fake_speaker_environment(tmp_path)}
        command = [sys.executable, "-m", "turnwise", "chat", "--speak"]

        child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(tmp_path),
            env={**environment, "TERM": "dumb"},
            encoding="utf-8",
            timeout=200,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
        )
        try:
            child.sendline("hello")
            while not spoken.exists():
                child.expect([pexpect.TIMEOUT, "You said.*"], timeout=1)
            child.sendeof()
            child.expect([pexpect.TIMEOUT], timeout=0.5)
            for _ in range(20):  # a terminal drops what it holds at Ctrl-C, the end of the input too if nobody read it
                child.sendintr()
                if child.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=2) == 0:
                    break

            assert end_of(child) == 130
        finally:
            child.close(force=True)


class TestMcpServers:
    """Servers of `turnwise.toml`."""

    def test_the_chat_uses_those_that_are_there(self, tmp_path: Path) -> None:
        """One that cannot be reached is noted, and the chat goes on without its tools."""
        server = Program(tmp_path / "server", ["echo"]).server()
        written = f'[mcps.files]\ncommand = "{server.command}"\nargs = {json.dumps(list(server.args))}\n'
        (tmp_path / "turnwise.toml").write_text(f'{written}[mcps.git]\ncommand = "/no/such/program"\n')

        done = run("chat", cwd=tmp_path, lines=["please call echo"])

        assert done.stdout.startswith(
            "The MCP server git cannot be reached: there is no program called /no/such/program.\n"
        )
        assert "files:echo()" in done.stdout
        assert "Echo: {}" in done.stdout
