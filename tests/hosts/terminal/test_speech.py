"""The command `turnwise` where a model reaches its user by tool, and where it is spoken: real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from turnwise import Engine, presets
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing import calls as call_several

from ...support.openai_server import OpenAiServer, calls, says
from .test_chat import DEMO_TOOLS, REQUEST, assert_one_sentence, at_prompt, end_of, id_in, run, run_beside, terminal

LOOK = 'def look(place: str) -> str:\n    """Look somewhere."""\n    return "a bird"\n'
TALK = """
from turnwise import Speech, tool

@tool(acts=["speech"], exclusive=True)
def talk(message: str) -> Speech:
    "Talk to the user."
    return Speech(text=f"Mine: {message}", when="now")
"""
SPEAKER = """#!{python} -S
import sys, time
text = sys.stdin.read()
with open({spoken!r}, "a") as file:
    file.write(text + "\\n")
time.sleep({seconds})
{ends}
"""


def speaker_in(folder: Path, seconds: float = 0, ends: str = "") -> Path:
    """Put a program in the place of espeak-ng that writes down what it would speak; returns where."""
    spoken, program = folder / "spoken.txt", folder / "bin" / "espeak-ng"
    program.parent.mkdir()
    program.write_text(SPEAKER.format(python=sys.executable, spoken=str(spoken), seconds=seconds, ends=ends))
    program.chmod(0o755)
    # pyttsx3 comes first where it is installed; this one cannot be imported.
    (folder / "bin" / "pyttsx3.py").write_text("raise ImportError\n")
    return spoken


def with_speaker(folder: Path) -> dict[str, str]:
    """The environment in which that program is found."""
    path = os.pathsep.join((str(folder / "bin"), os.environ.get("PYTHONPATH", "")))
    return {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


def recalled(folder: Path) -> str:
    """What a chat shows a person who comes back, before they type."""
    with terminal("chat", "--resume", cwd=folder) as child:
        shown = str(at_prompt(child).before)
        child.send("\x04")

        assert end_of(child) == 0
    return shown


def below_the_way_back(done: subprocess.CompletedProcess[str]) -> str:
    """What a chat wrote under its first line, which tells how to come back."""
    assert (done.returncode, done.stderr) == (0, "")
    first, _, rest = done.stdout.partition("\n")
    assert first.startswith("To come back to this conversation: ")
    return rest


def talks() -> OpenAiServer:
    """A model that thinks, talks, looks, talks again, and thinks once more."""
    return OpenAiServer([
        calls(("talk", {"message": 'I "look" now.'}), ("look", {"place": "up"}), text="Where do I look?"),
        calls(("talk", {"message": "A bird 🙂\nup there."})),
        says("That ", "was all."),
    ])  # fmt: skip


class TestTalk:
    """B12: `turnwise chat --preset talk`."""

    async def chat(self, folder: Path, *options: str) -> str:
        """What such a chat shows."""
        (folder / "mine.py").write_text(LOOK)
        async with talks() as server:
            done = await run_beside(
                *("chat", "--preset", "talk", "--model", "openai/test", "--tools", "mine:look", *options),
                cwd=folder,
                lines=["hello"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )
        return below_the_way_back(done)

    async def test_stdout_has_what_is_said_and_nothing_else(self, tmp_path: Path) -> None:
        """B1, B3, B12: the talks in order, to the letter; no text of the model, no tools. The tool `talk` is there
        without being named."""
        assert await self.chat(tmp_path) == 'I "look" now.\nA bird 🙂\nup there.\n'

    async def test_with_verbose_its_thoughts_too(self, tmp_path: Path) -> None:
        """B12: thoughts where they were thought, and a line for each other tool."""
        shown = await self.chat(tmp_path, "--verbose")

        assert shown == (
            "Where do I look?\n"
            'I "look" now.\n'
            '  ✓ look(place="up")\n'
            "A bird 🙂\nup there.\n"
            "That was all.\n"
        )  # fmt: skip

    def test_the_same_again_is_said_again(self, tmp_path: Path) -> None:
        """B10: two deliveries of one text are two lines; the rehearsal talks by the tool, too."""
        done = run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello", "hello", "hello"])

        assert below_the_way_back(done).count("You said: “hello”") == 3
        assert "The user was told." not in done.stdout

    def test_a_tool_of_ones_own_may_take_its_place(self, tmp_path: Path) -> None:
        """S16: what the preset brings along makes room for a function of that name."""
        (tmp_path / "mine.py").write_text(TALK)

        done = run("chat", "--preset", "talk", "--tools", "mine:talk", cwd=tmp_path, lines=["hello"])

        assert below_the_way_back(done).startswith("Mine: ")

    def test_who_comes_back_sees_what_was_said(self, tmp_path: Path) -> None:
        """P19: a conversation that is taken up again is recalled as the user knows it, without the model's text."""
        run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello"])

        shown = recalled(tmp_path)

        assert "You said: “hello”" in shown
        assert "The user should hear this" not in shown


class TestComingBack:
    """Rules are stored, and tools are not; those that the rules need come back with them."""

    @pytest.mark.parametrize("preset", ["talk", "explicit-response"])
    def test_the_model_can_still_reach_its_user(self, preset: str, tmp_path: Path) -> None:
        """P19: by `--resume` and by the id, without a word of the tools, and without a preset."""
        first = run("chat", "--preset", preset, cwd=tmp_path, lines=["hello"])

        by_id = run("chat", id_in(first.stdout), cwd=tmp_path, lines=["and you?"])
        newest = run("chat", "--resume", "--db", "turnwise.db", cwd=tmp_path, lines=["and now?"])

        assert "--tools" not in first.stdout
        assert below_the_way_back(by_id).count("You said: “and you?”") == 1
        assert below_the_way_back(newest).count("You said: “and now?”") == 1
        assert "missing" not in by_id.stdout + newest.stdout

    def test_tools_that_are_named_come_beside_them(self, tmp_path: Path) -> None:
        """One that is there already, by whichever name, is not there twice (S16)."""
        (tmp_path / "mine.py").write_text(LOOK)
        run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello"])
        options = ("--tools", "mine:look,speak_to_user", "--thoughts")

        done = run("chat", "--resume", *options, cwd=tmp_path, lines=["Look in Rome", "/events"])

        assert '✓ look(place="Rome")' in done.stdout
        assert 'speak_to_user({"text": ' in done.stdout
        assert "missing" not in done.stdout

    def test_without_a_conversation_nothing_is_made(self, tmp_path: Path) -> None:
        """P33: a sentence, and no database left behind."""
        assert_one_sentence(run("chat", "--resume", cwd=tmp_path), "There is no database called turnwise.db.")
        assert list(tmp_path.iterdir()) == []


class TestExplicitResponses:
    """`turnwise chat --preset explicit-response`."""

    async def test_the_answer_is_shown_and_no_status_line(self, tmp_path: Path) -> None:
        """S1, S2: the user receives what was said by tool, once; the text around it is shown with the thoughts only."""
        answers = [
            calls(("respond_to_user", {"text": "The answer."}), text="Preparing."),
            calls(("mark_work_complete", {"summary": "Answered."})),
        ]
        for options, shown in (((), "The answer.\n"), (("--thoughts",), "Preparing.\n")):
            async with OpenAiServer([*answers, *[says("Checked.")] * 9]) as server:
                done = await run_beside(
                    *("chat", "--preset", "explicit-response", "--model", "openai/test", *options),
                    cwd=tmp_path,
                    lines=["hello"],
                    OPENAI_API_BASE=server.url,
                    OPENAI_API_KEY="test",
                )

            assert done.stdout.count("The answer.\n") == 1
            assert shown in done.stdout
            assert ("Preparing." in done.stdout) == bool(options)

    async def test_who_comes_back_sees_what_they_received(self, tmp_path: Path) -> None:
        """S3, P19: of two answers the last was delivered; the other is not recalled, nor is one that was refused."""
        says = call_several(
            call("respond_to_user", text="Seven."),
            call("respond_to_user", text="Eight."),
            call("respond_to_user", text="Refused.", to="him"),
        )
        llm = ScriptedLlm([says, call("mark_work_complete", summary="Counted.")])
        tools, policy = ["respond_to_user", "mark_work_complete"], presets.explicit_response().replace(verify=0)
        async with Engine.open(tmp_path / "turnwise.db", model=llm, tools=tools) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = recalled(tmp_path)

        assert turn.deliveries == ("Eight.",)
        assert "Eight." in shown
        assert "Seven." not in shown and "Refused." not in shown

    async def test_who_comes_back_sees_a_text_that_stood_in(self, tmp_path: Path) -> None:
        """S2, P19: nothing was said by tool, so the text was the answer; the one before it was a thought."""
        policy = presets.explicit_response().replace(nudges=1)
        llm = ScriptedLlm([reply("Let me see."), reply("Eight it is.")])
        async with Engine.open(tmp_path / "turnwise.db", model=llm) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = recalled(tmp_path)

        assert turn.deliveries == ("Eight it is.",)
        assert "Eight it is." in shown and "Let me see." not in shown

    def test_the_events_tell_what_came_of_the_check(self, tmp_path: Path) -> None:
        """S11: whether the claim holds, and why."""
        done = run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello", "/events"])

        assert re.search(r"\d  work_verified +passed: A rehearsal takes every claim at its word\.\n", done.stdout)


class TestSpeaking:
    """`--speak`."""

    def test_what_is_said_is_also_spoken(self, tmp_path: Path) -> None:
        """S20: displayed as it is, and spoken to its end before the command ends."""
        spoken = speaker_in(tmp_path, seconds=0.3)

        done = run("chat", "--speak", cwd=tmp_path, lines=["hello", "and **you**"], **with_speaker(tmp_path))

        assert "You said: “and **you**”" in below_the_way_back(done)
        said = spoken.read_text()
        assert said.index("You said: “hello”") < said.index("You said: “and you”")

    def test_the_demo_speaks_too(self, tmp_path: Path) -> None:
        """Its answer, beside all that it shows."""
        spoken = speaker_in(tmp_path)

        done = run("demo", "--speak", cwd=tmp_path, **with_speaker(tmp_path))

        assert (done.returncode, done.stderr) == (0, "")
        assert "You chose Kikunoi." in spoken.read_text()

    def test_where_it_cannot_be_heard_it_says_so_once(self, tmp_path: Path) -> None:
        """S20: the conversation goes on without it."""
        speaker_in(tmp_path, ends="sys.exit(1)")

        done = run("chat", "--speak", cwd=tmp_path, lines=["hello", "again"], **with_speaker(tmp_path))

        assert below_the_way_back(done).count("could not be spoken") == 1
        assert "with --debug the log says why" in done.stdout

    def test_the_log_says_why(self, tmp_path: Path) -> None:
        """S20: `--debug` shows what the voice complains of; the way back speaks as well."""
        speaker_in(tmp_path, ends="sys.exit('no such device')")

        done = run("chat", "--speak", "--debug", cwd=tmp_path, lines=["hello"], **with_speaker(tmp_path))

        assert "espeak-ng: no such device\n" in done.stderr
        assert "no voice works here; the log says why." in done.stdout
        assert done.stdout.splitlines()[0].endswith(" --speak")

    def test_that_it_cannot_stands_above_the_line_that_is_typed(self, tmp_path: Path) -> None:
        """What was typed by then stays, and is said."""
        speaker_in(tmp_path, seconds=1, ends="sys.exit(1)")

        with terminal("chat", "--speak", cwd=tmp_path, **with_speaker(tmp_path)) as child:
            at_prompt(child).sendline("hello")
            child.expect_exact("You said: “hello”")
            at_prompt(child).send("and y")
            child.expect_exact("This could not be spoken")
            at_prompt(child).sendline("ou")
            child.expect_exact("You said: “and you”")
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    def test_where_there_is_nothing_to_speak_with_it_says_what_to_install(self, tmp_path: Path) -> None:
        """P33: in a sentence, before anything is begun."""
        empty = tmp_path / "empty"
        empty.mkdir()
        if subprocess.run([sys.executable, "-c", "import pyttsx3"], capture_output=True).returncode == 0:
            pytest.skip("pyttsx3 is installed")

        done = run("chat", "--speak", cwd=tmp_path, PATH=str(empty))

        assert_one_sentence(done, "There is nothing here to speak with: install ")

    def test_ctrl_c_at_the_prompt_cuts_it_off(self, tmp_path: Path) -> None:
        """The turn is over and the voice is not: the first Ctrl-C silences it, and what was typed is kept."""
        spoken = speaker_in(tmp_path, seconds=60, ends=f"open({str(tmp_path / 'to the end')!r}, 'w')")

        with terminal("chat", "--speak", cwd=tmp_path, **with_speaker(tmp_path)) as child:
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
            at_prompt(child).send("\x03")  # what it says now is silenced, too
            at_prompt(child).send("\x03")
            child.expect_exact("Press Ctrl-C again to leave")
            child.send("\x03")

            assert end_of(child) == 0
        assert "Press Ctrl-C" not in silenced
        assert not (tmp_path / "to the end").exists()

    def test_ctrl_c_cuts_it_off(self, tmp_path: Path) -> None:
        """While it is spoken, a person need not listen to the end."""
        spoken = speaker_in(tmp_path, seconds=60)
        environment = {**os.environ, **with_speaker(tmp_path)}
        command = [sys.executable, "-m", "turnwise.hosts.terminal", "chat", "--speak"]

        child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(tmp_path),
            env={**environment, "TERM": "dumb"},
            encoding="utf-8",
            timeout=50,
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


def test_a_table_is_booked_by_talking(tmp_path: Path) -> None:
    """B2: with tools and a question between what is said."""
    done = run("chat", "--preset", "talk", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "2"])

    shown = below_the_way_back(done)
    assert shown.index("Let me use find_table") < shown.index("? [Table]") < shown.index("You chose Nobu.")
    assert "✓" not in shown
