"""A chat: messages, answers and commands, through a pipe and at a terminal."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pexpect
import pytest

from turnwise.hosts.terminal.chat.user_input import parse_answer, question_lines
from turnwise.states.values.questions import UserQuestion

from ....support.screens import FakeScreen
from ....support.servers.openai_server import OpenAiServer, drops_after, fails, hangs, says
from ....support.terminal import (
    ASKING_TOOL,
    DEMO_TOOLS,
    REQUEST,
    TWO_QUESTIONS_TOOL,
    assert_one_sentence,
    at_prompt,
    conversation_id_in,
    end_of,
    newest_id,
    output_after_hint,
    run,
    run_beside,
    terminal,
)

# --- `turnwise chat`: messages, answers and commands, through a pipe.


class TestChatThroughAPipe:
    """Lines in, plain text out, for scripts."""

    @pytest.mark.slow
    def test_a_line_is_a_message_or_an_answer_or_a_command(self, tmp_path: Path) -> None:
        """A number chooses an option, commands are executed, the output has no escape codes, the exit code is 0."""
        lines = (
            REQUEST,
            "2",
            "/state",
            "/events",
            "/nothing",
            "/state now",
            "/usr is full",
            "/retry",
            "/edit Is it?",
            "/edit",
            "/branches",
            "/switch 2",
            "/switch",
            "/quit",
            "unsaid",
        )

        done = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=lines)

        assert (done.returncode, done.stderr) == (0, "")
        assert "? [Table] Which table would you like?\n  1. Kikunoi - 6:30 PM" in done.stdout
        assert "You chose Nobu." in done.stdout
        assert "idle, after 1 turn and 8 events" in done.stdout
        assert "8  llm_response" in done.stdout
        assert "There is no such command; /help lists the commands." in done.stdout
        assert "/state takes no arguments." in done.stdout
        assert done.stdout.count("You said: “/usr is full”") == 2
        assert done.stdout.count("You said: “Is it?”") == 1
        assert "Back: the conversation goes on behind turn 1." in done.stdout
        assert "2  2 turns: /usr is full" in done.stdout
        assert "unsaid" not in done.stdout
        assert "\x1b" not in done.stdout

    @pytest.mark.slow
    def test_a_command_answers_no_question(self, tmp_path: Path) -> None:
        """P15: where an answer is expected a command is executed or refused, and the question is asked again. Answers
        to other questions are kept. A path is an answer."""
        (tmp_path / "twice.py").write_text(TWO_QUESTIONS_TOOL)
        lines = ("Go", "north", "/state", "/retry", "/state now", "/usr", "Go", "/quit", "unsaid")

        done = run("chat", "--tools", "twice:ask_twice", cwd=tmp_path, lines=lines)

        assert (done.returncode, done.stderr) == (0, "")
        assert "awaiting_user_response, after 1 turn and " in done.stdout
        assert "There is no failed turn to try again." in done.stdout
        assert "/state takes no arguments." in done.stdout
        assert done.stdout.count("? Where from?") == 2
        assert done.stdout.count("? Where to?") == 4
        assert '"Where from?": "North", "Where to?": "/usr"' in done.stdout
        assert "The question stays open." in done.stdout
        assert "unsaid" not in done.stdout

    @pytest.mark.slow
    def test_a_question_waits_for_the_next_process(self, tmp_path: Path) -> None:
        """P19: a question stays open when the input ends, and is asked first when the chat is resumed."""
        first = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST])
        second = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=["kikunoi"])

        assert "The question stays open." in first.stdout
        assert conversation_id_in(second.stdout) == conversation_id_in(first.stdout)
        assert "You chose Kikunoi." in second.stdout
        assert (first.returncode, second.returncode) == (0, 0)

    @pytest.mark.slow
    def test_a_call_that_asks_ends_with_the_process(self, tmp_path: Path) -> None:
        """What becomes of it is decided when the chat is resumed, so nobody is told that its question stays open."""
        (tmp_path / "asks.py").write_text(ASKING_TOOL)

        first = run("chat", "--tools", "asks:book_table", cwd=tmp_path, lines=[REQUEST])
        second = run("chat", "--resume", "--tools", "asks:book_table", cwd=tmp_path, lines=["Yes"])

        assert "The call that asks is interrupted." in first.stdout
        assert "The question stays open." not in first.stdout
        assert second.stdout.count("? Really?") == 1
        assert "The user says Yes." in second.stdout
        assert (first.returncode, second.returncode) == (0, 0)

    @pytest.mark.slow
    async def test_a_turn_that_fails_can_be_tried_again(self, tmp_path: Path) -> None:
        """P11, P33: its sentence is shown, and /retry continues it. A chat whose last turn failed exits with 1."""
        async with OpenAiServer([fails(401), says("Back ", "again."), fails(401)]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["hello", "/retry", "and now?"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.count("refused the key") == 2
        assert done.stdout.index("/retry tries again") < done.stdout.index("Back again.")

    @pytest.mark.slow
    async def test_what_was_said_can_be_condensed(self, tmp_path: Path) -> None:
        """/compact says once that it condenses, also if the model is asked again; a failure is one sentence. The
        summary is among the events, and a second /compact has nothing to condense."""
        async with OpenAiServer([says("Well met."), fails(500), says("They met."), says("Again.")]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["hello", "/compact", "/compact", "/events", "and now?"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        first, _, second = done.stdout.partition("There is nothing to condense yet.")
        assert (done.returncode, done.stderr) == (0, "")
        assert first.count("Condensing what was said so far.") == 2
        assert first.count("Condensed; the log keeps everything.") == 1
        assert "history_compacted          They met." in second
        assert second.endswith("Again.\n")

    @pytest.mark.slow
    @pytest.mark.parametrize("preset", ["talk", "explicit-response"])
    def test_resuming_brings_the_required_tools(self, preset: str, tmp_path: Path) -> None:
        """P19: by `--resume` and by the id, without `--tools` and `--preset`."""
        first = run("chat", "--preset", preset, cwd=tmp_path, lines=["hello"])

        by_id = run("chat", conversation_id_in(first.stdout), cwd=tmp_path, lines=["and you?"])
        newest = run("chat", "--resume", "--db", "turnwise.db", cwd=tmp_path, lines=["and now?"])

        assert "--tools" not in first.stdout
        assert output_after_hint(by_id).count("You said: “and you?”") == 1
        assert output_after_hint(newest).count("You said: “and now?”") == 1
        assert "missing" not in by_id.stdout + newest.stdout

    @pytest.mark.slow
    def test_there_is_nothing_to_resume(self, tmp_path: Path) -> None:
        """P33: one sentence, and no database is created."""
        assert_one_sentence(run("chat", "--resume", cwd=tmp_path), "There is no database called turnwise.db.")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_table_is_booked_by_talking(tmp_path: Path) -> None:
    """B2: with tools and a question between the talks."""
    done = run("chat", "--preset", "talk", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "2"])

    shown = output_after_hint(done)
    assert shown.index("Let me use find_table") < shown.index("? [Table]") < shown.index("You chose Nobu.")
    assert "✓" not in shown


# --- The prompt of a chat at a terminal.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestThePrompt:
    """What keys do at the prompt, and what is shown around it."""

    def test_at_the_prompt_ctrl_c_empties_the_line_and_twice_it_leaves(self, tmp_path: Path) -> None:
        """On an empty line the first Ctrl-C only warns. A pasted text keeps its lines."""
        with terminal("chat", "--plain", "--tools", "", cwd=tmp_path) as child:
            at_prompt(child).send("never said")
            child.expect_exact("never said")
            child.sendintr()
            child.send("\x1b[200~one\ntwo\x1b[201~\r")
            child.expect("You said: “one\r\ntwo”")
            at_prompt(child).sendintr()
            child.expect_exact("Press Ctrl-C again to leave")
            child.sendintr()

            assert end_of(child) == 0
        assert "never said" not in run("export", newest_id(tmp_path), cwd=tmp_path).stdout

    def test_a_cancel_discards_what_was_typed_and_says_so(self, slow_tools: str, tmp_path: Path) -> None:
        """A line that was typed while a tool ran is not sent."""
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Wait in Rome")
            child.expect_exact('wait_long(place="Rome")')
            child.sendline("and then?")
            child.sendintr()
            child.expect_exact("What you typed in the meantime was dropped.")
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendeof()

            assert end_of(child) == 0
        assert "and then?" not in run("export", newest_id(tmp_path), cwd=tmp_path).stdout

    def test_it_shows_the_model(self, tmp_path: Path) -> None:
        """Before the first prompt."""
        with terminal("chat", cwd=tmp_path) as child:
            shown = str(at_prompt(child).before)
            child.sendeof()

            assert end_of(child) == 0
        assert "The model is rehearsal." in shown

    def test_a_command_to_be_copied_stays_one_line(self, tmp_path: Path) -> None:
        """Also on a narrow terminal: a line break would make two commands of it."""
        name = f"{'a-long-name-' * 8}.db"
        with terminal("chat", "--tools", DEMO_TOOLS, "--db", name, cwd=tmp_path) as child:
            at_prompt(child).sendline("/fork")
            copy = re.escape(f" --db {name} --tools {DEMO_TOOLS}")
            child.expect(rf"To resume the copy: turnwise chat [0-9a-f-]{{36}}{copy}")
            at_prompt(child).sendeof()
            child.expect(rf"To resume this conversation: turnwise chat [0-9a-f-]{{36}}{copy}")

            assert end_of(child) == 0

    def test_an_error_breaks_between_words(self, tmp_path: Path) -> None:
        """P33: a sentence that is longer than a line is wrapped."""
        with terminal("chat", "--preset", "nonsense", cwd=tmp_path) as child:
            child.expect(pexpect.EOF)
            shown = str(child.before).splitlines()

        assert len(shown) == 2
        assert max(map(len, shown)) <= 100
        assert " ".join(shown).endswith("explicit_response, talk, foreground.")


# --- A chat on a real terminal, as its user sees it.


ANSWER = "# A *plan*\n\n1. **Look**\n2. Leap\n\n```python\nleap(2)\n```\n\nThat is `all`."


def chat(server: OpenAiServer, folder: Path, *options: str, until: str, interrupt: bool = False) -> str:
    """Return what is on the screen when one message was answered, or was cancelled after this text was shown."""
    environment = {"OPENAI_API_BASE": server.url, "OPENAI_API_KEY": "test"}
    arguments = ("chat", "--model", "openai/test", "--tools", "", *options)
    screen = FakeScreen(100, 40)
    with terminal(*arguments, cwd=folder, **environment) as child:
        at_prompt(child).sendline("hello")
        child.expect_exact(until)
        screen.write(f"{child.before}{until}")
        if interrupt:
            child.sendintr()
        screen.write(str(at_prompt(child).before))
        child.sendeof()
        assert end_of(child) == 0
    return screen.text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestTheScreen:
    """What streams in is seen once, and rendered."""

    async def test_an_answer_is_rendered(self, tmp_path: Path) -> None:
        """However its pieces are cut."""
        async with OpenAiServer([says(*ANSWER)]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="That is")

        assert "\nA plan\n\n 1 Look\n 2 Leap\n\nleap(2)\n\nThat is all." in shown
        assert shown.count("Look") == 1

    async def test_plain_shows_what_the_model_wrote(self, tmp_path: Path) -> None:
        """With `--plain`."""
        async with OpenAiServer([says(*ANSWER)]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, "--plain", until="That is")

        assert ANSWER in shown

    async def test_an_answer_that_breaks_off_is_taken_back(self, tmp_path: Path) -> None:
        """The model is asked again, and only its whole answer stays."""
        async with OpenAiServer([drops_after("## Half\n\n", "an ", "answer"), says("All ", "of it.")]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="All")

        assert "Half" not in shown and "an answer" not in shown
        assert shown.count("All of it.") == 1
        assert "broke off; attempt 2 follows" in shown

    async def test_a_cancelled_answer_stays_as_far_as_it_was_shown(self, tmp_path: Path) -> None:
        """The user has read it."""
        async with OpenAiServer([hangs("**Half** an ", "answer")]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="answer", interrupt=True)

        assert "\nHalf an answer\nCancelled; the conversation goes on." in shown

    async def test_hostile_text_is_shown_as_text(self, tmp_path: Path) -> None:
        """Escape sequences in pieces, markup and addresses."""
        pieces = ("\x1b[2J\x1b", "]0;title\x07", "[red]x[/red] ", "[bank](http://evil) ", "&#27;[31m <b>")
        async with OpenAiServer([says(*pieces)]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="[red]")

        assert "[red]x[/red] bank (http://evil) " in shown
        assert "<b>" in shown


# --- Answers in lines of text.


ONE = UserQuestion.model_validate({"question": "How many?", "options": [{"label": "2"}, {"label": "Four"}]})


SEVERAL = UserQuestion.model_validate(
    {"question": "Which?", "multiSelect": True, "options": [{"label": "a"}, {"label": "b, c"}, {"label": "d"}]}
)


class TestAnswersInALine:
    """P15: a label, its number, or free text."""

    @pytest.mark.parametrize(
        ("line", "answer"),
        [("four", "Four"), ("1", "2"), ("2", "2"), (" Four ", "Four"), ("five, at least", "five, at least")],
    )
    def test_one_choice(self, line: str, answer: str) -> None:
        """A label takes precedence over a number; everything else is free text, unchanged."""
        assert parse_answer(line, ONE) == answer

    @pytest.mark.parametrize(
        ("line", "answer"), [("1, 3", ["a", "d"]), ("b, c", ["b, c"]), ("a,a", ["a"]), ("a, x", ["a, x"])]
    )
    def test_several_choices(self, line: str, answer: list[str]) -> None:
        """Commas separate choices, unless the whole line is a label or a part of it is neither label nor number."""
        assert parse_answer(line, SEVERAL) == answer

    def test_an_open_question(self) -> None:
        """Any line is its answer, a number too."""
        asked = UserQuestion(question="How many?")

        assert question_lines(asked) == "? How many?"
        assert [parse_answer(line, asked) for line in ("2", "a, b")] == ["2", "a, b"]
