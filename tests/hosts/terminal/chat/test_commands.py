"""The commands of a chat."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from turnwise.hosts.terminal.chat.chat import usage_line
from turnwise.states.values.messages import Usage

from ....support.pages import ROOT
from ....support.pictures import PDF
from ....support.servers.openai_server import OpenAiServer, says
from ....support.terminal import (
    DEMO_TOOLS,
    assert_one_sentence,
    at_prompt,
    conversation_id_in,
    end_of,
    run,
    run_beside,
    terminal,
)

pytestmark = pytest.mark.slow


class TestTitles:
    """`/title`, and where titles are shown."""

    def test_a_conversation_has_the_title_that_it_was_given(self, tmp_path: Path) -> None:
        """Else its first message; the list and its JSON show it."""
        lines = ["/title", "A table for two", "/title", "/title Dinner  at eight"]
        done = run("chat", cwd=tmp_path, lines=lines)

        listed = run("list", cwd=tmp_path)
        described = json.loads(run("list", "--json", cwd=tmp_path).stdout)

        assert (done.returncode, done.stderr) == (0, "")
        assert "The conversation has no title yet.\n" in done.stdout
        assert "\nA table for two\nDinner at eight\n" in done.stdout
        assert listed.stdout.rstrip().endswith("  Dinner at eight")
        assert described["conversations"][0]["title"] == "Dinner at eight"

    @pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
    def test_it_stands_above_a_resumed_conversation(self, tmp_path: Path) -> None:
        """A terminal shows it before what was said; a list there shows short ids."""
        first = run("chat", cwd=tmp_path, lines=["hello", "/title Dinner"])
        short = conversation_id_in(first.stdout)[:8]

        with terminal("list", cwd=tmp_path) as child:
            child.expect_exact(f"{short}  idle")
            assert end_of(child) == 0
        with terminal("chat", short, cwd=tmp_path) as child:
            shown = str(at_prompt(child).before)
            child.send("\x04")

            assert end_of(child) == 0
        assert shown.index("Dinner") < shown.index("> hello")

    def test_a_title_is_one_line_of_text(self, tmp_path: Path) -> None:
        """Whatever it was given as."""
        run("chat", cwd=tmp_path, lines=["/title a\x1b[31m\tred \x07one"])

        assert run("list", cwd=tmp_path).stdout.rstrip().endswith("  a red one")


class TestModels:
    """`/model`: what there is to choose from is what `--model` names."""

    OTHER = ("--model", "rehearsal", "--model", "openai/test")

    async def test_another_one_answers_from_the_next_turn_on(self, tmp_path: Path) -> None:
        """The conversation keeps it when it is resumed, unless `--model` says otherwise."""
        async with OpenAiServer([says("I am another."), says("Still another.")]) as server:
            key = {"OPENAI_API_BASE": server.url, "OPENAI_API_KEY": "test"}
            lines = ["/model", "hello", "/model openai/test", "/model", "who are you?"]
            first = await run_beside("chat", *self.OTHER, "--tools", "", cwd=tmp_path, lines=lines, **key)
            kept = await run_beside("chat", "--resume", "--tools", "", cwd=tmp_path, lines=["and now?"], **key)
        other = ["/model", "and you?"]
        changed = run("chat", "--resume", "--model", "rehearsal", "--tools", "", cwd=tmp_path, lines=other)

        assert "\n* rehearsal\n  openai/test\n" in first.stdout
        assert "You said: “hello”" in first.stdout
        assert "The model is openai/test from the next turn on.\n* openai/test\n  rehearsal\n" in first.stdout
        assert first.stdout.endswith("I am another.\n")
        assert kept.stdout.endswith("Still another.\n")
        assert "* rehearsal\n" in changed.stdout
        assert "You said: “and you?”" in changed.stdout

    def test_an_unknown_one_is_refused(self, tmp_path: Path) -> None:
        """In one sentence that names the others; nothing changes."""
        done = run("chat", cwd=tmp_path, lines=["/model nonsense", "/model", "hello"])

        assert "no model called nonsense. Known: rehearsal." in done.stdout
        assert "\n* rehearsal\n" in done.stdout
        assert "You said: “hello”" in done.stdout

    def test_the_resume_hint_names_all_of_them(self, tmp_path: Path) -> None:
        """The one that is asked comes first."""
        done = run("chat", *self.OTHER, cwd=tmp_path, lines=["/model openai/test", "/fork"], OPENAI_API_KEY="test")

        first, copy = [line for line in done.stdout.splitlines() if line.startswith("To resume ")]
        assert first.endswith(" --model rehearsal --model openai/test")
        assert copy.endswith(" --model openai/test --model rehearsal")


def test_rules_that_cannot_be_carried_out_are_one_sentence(tmp_path: Path) -> None:
    """The engine refuses them before the conversation begins."""
    (tmp_path / "turnwise.toml").write_text('[profiles.guide]\ntools = ["nothing"]\n')

    assert_one_sentence(run("chat", cwd=tmp_path), "There is no tool called nothing.")


class TestUsage:
    """`/usage`."""

    async def test_it_sums_up_the_conversation(self, tmp_path: Path) -> None:
        """In tokens; nothing before the first turn."""
        async with OpenAiServer([says("Hello.")]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["/usage", "hello", "/usage"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        before, after = [line for line in done.stdout.splitlines() if "tokens in" in line]
        assert before == "0 tokens in, 0 tokens out"
        assert after != before

    def test_it_says_what_the_provider_says(self) -> None:
        """Cached tokens, tokens of thinking, and money, where they are known."""
        usage = Usage(input_tokens=12_345, output_tokens=678, cached_tokens=10_000, reasoning_tokens=600, cost=0.0123)

        assert usage_line(usage) == (
            "12,345 tokens in (10,000 from the cache), 678 tokens out (600 for thinking); 0.0123 US dollars"
        )


def test_the_tools_are_listed_with_what_they_do(tmp_path: Path) -> None:
    """`/tools` lists the model's tools; without any it says so."""
    some = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=["/tools"])
    none = run("chat", "--tools", "", cwd=tmp_path, lines=["/tools"])

    assert "find_table  Look for free tables at restaurants nearby.\nask_user_question  " in some.stdout
    assert "There are no tools.\n" in none.stdout


def test_the_page_on_the_terminal_lists_the_commands_that_help_lists(tmp_path: Path) -> None:
    """In the same order."""
    page = (ROOT / "docs" / "guides" / "terminal.md").read_text(encoding="utf-8")

    done = run("chat", cwd=tmp_path, lines=["/help"])

    assert re.findall(r"^\| `(/[^`]*)` \|", page, re.MULTILINE) == re.findall(
        r"^(/[a-z]+(?: \[?[A-Z]+\]?)?) +[a-z]", done.stdout, re.MULTILINE
    )


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_tab_completes_a_command(tmp_path: Path) -> None:
    """At the prompt of a terminal."""
    with terminal("chat", cwd=tmp_path) as child:
        at_prompt(child).send("/sta\t")
        child.expect_exact("te")  # drawn behind what was typed, or with it
        child.send("\r")
        child.expect_exact("idle, after 0 turns")
        at_prompt(child).sendeof()

        assert end_of(child) == 0


class TestAttaching:
    """`/attach`."""

    def test_files_go_with_the_next_message(self, tmp_path: Path) -> None:
        """Several together, also from a folder with a blank in its name; later messages have none of them. What cannot
        be sent is said in one sentence each, and is not attached."""
        (tmp_path / "my files").mkdir()
        (tmp_path / "my files" / "menu.pdf").write_bytes(PDF)
        (tmp_path / "report.csv").write_text("month,guests\nMay,120\n")
        (tmp_path / "nothing.bin").write_bytes(b"\x00\x01\x02")
        lines = [
            "/attach",
            "/attach missing.pdf",
            "/attach ~nobody-of-this-name/lost.pdf",
            "/attach nothing.bin",
            "/attach my files",
            '/attach "my files/menu.pdf"',
            "/attach report.csv",
            "What is this?",
            "And now?",
        ]

        done = run("chat", cwd=tmp_path, lines=lines)
        exported = run("export", conversation_id_in(done.stdout), cwd=tmp_path)

        assert (done.returncode, done.stderr) == (0, "")
        for sentence in (
            "/attach takes the path of a file.\n",
            "missing.pdf cannot be read: No such file or directory.\n",
            "lost.pdf cannot be read: No such file or directory.\n",
            "nothing.bin cannot be sent: its bytes are of no type that is known.\n",
            "my files cannot be read: Is a directory.\n",
            "With your next message: [menu.pdf]\n",
            "With your next message: [menu.pdf] [report.csv]\n",
        ):
            assert sentence in done.stdout
        assert exported.stdout.count('"name":"menu.pdf"') == exported.stdout.count('"name":"report.csv"') == 1
