"""What a chat shows of a conversation: the answer under way, answers that begin again, and the past of a conversation
that is resumed.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, TokenUpdate, presets
from turnwise.hosts.terminal.chat.screen import RECALLED, ShownText, call_line, recalled
from turnwise.hosts.terminal.output.writer import TerminalWriter
from turnwise.states.values.messages import Message, ToolCall
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing import calls as call_several

from ....support.screens import FakeScreen
from ....support.servers.openai_server import OpenAiServer, calls, fails, says
from ....support.terminal import LOOK_TOOL, output_after_hint, run, run_beside, shown_on_resume

pytestmark = pytest.mark.slow


def talks() -> OpenAiServer:
    """Return a model that thinks, talks, looks, talks again, and thinks once more."""
    return OpenAiServer([
        calls(("talk", {"message": 'I "look" now.'}), ("look", {"place": "up"}), text="Where do I look?"),
        calls(("talk", {"message": "A bird 🙂\nup there."})),
        says("That ", "was all."),
    ])  # fmt: skip


QUESTIONS = '{"questions": [{"question": "When?", "options": []}]}'


def said(role: Any, text: str, **fields: Any) -> Message:
    """Return a message."""
    return Message(role=role, text=text, **fields)


def calling(name: str, arguments: str = "{}", text: str = "") -> Message:
    """Return a message of the model with one call."""
    return said("assistant", text, tool_calls=(ToolCall(call_id="call_1_0", name=name, raw_arguments=arguments),))


def result(text: str = "", **fields: Any) -> Message:
    """Return the result of that call."""
    return said("tool", text, tool_call_id="call_1_0", **fields)


def lines(*messages: Message, by_tool: bool = False, thoughts: bool = False) -> list[tuple[str, str]]:
    """Return what is shown of these messages."""
    return [(line.kind, line.text) for line in recalled(messages, by_tool=by_tool, thoughts=thoughts)[1]]


def token(
    text: str, *, kind: Any = "text", attempt: int = 1, request: int = 1, from_start: bool = False
) -> TokenUpdate:
    """Return a piece of an answer."""
    return TokenUpdate(text=text, kind=kind, turn=1, request=request, attempt=attempt, from_start=from_start)


class FakeTerminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


OpenWriter = Callable[[], tuple[TerminalWriter, FakeTerminal]]


@pytest.fixture
def open_writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenWriter]:
    """A function that opens a writer on a terminal, to be called within the test: pytest has its own stdout. What still
    spins at the end of the test is ended."""
    opened: list[TerminalWriter] = []

    def open_() -> tuple[TerminalWriter, FakeTerminal]:
        output = FakeTerminal()
        for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "60"), ("LINES", "12")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdout", output)
        opened.append(TerminalWriter(interactive=True, markdown=True))
        return opened[-1], output

    yield open_
    for writer in opened:
        writer.finish()


def on_screen(output: io.StringIO) -> str:
    """Return what a user sees of the output."""
    screen = FakeScreen(60, 12)
    screen.write(output.getvalue())
    return screen.text


class TestASpeakingTool:
    """S1, S2: under rules that leave it to the tools what becomes of the model's text."""

    async def chat(self, folder: Path, *options: str) -> str:
        """Return the output of two turns, of which only the first speaks by tool; its text comes first and last."""
        answers = [
            calls(("respond_to_user", {"text": "It is 12."}), ("look", {"place": "up"}), text="I answer now."),
            says("The work ", "is done."),
            says("Good ", "bye."),
        ]
        (folder / "mine.py").write_text(LOOK_TOOL)
        async with OpenAiServer(answers) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", "respond_to_user,mine:look", *options),
                cwd=folder,
                lines=["what is the time?", "bye"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )
        return output_after_hint(done)

    @pytest.mark.parametrize("preset", ["assistant", "foreground"])
    async def test_the_user_reads_what_was_said_and_no_status_line(self, tmp_path: Path, preset: str) -> None:
        """Once; a text of a turn in which nothing was said by tool is the reply."""
        assert await self.chat(tmp_path, "--preset", preset) == '  ✓ look(place="up")\nIt is 12.\nGood bye.\n'

    async def test_verbose_shows_the_text_as_a_thought(self, tmp_path: Path) -> None:
        """At its place."""
        shown = await self.chat(tmp_path, "--verbose")

        assert shown == (
            "I answer now.\n"
            '  ✓ look(place="up")\n'
            "The work is done.\n"
            "It is 12.\n"
            "Good bye.\n"
            "Good bye.\n"
        )  # fmt: skip


class TestWhatATurnGoesOnWithout:
    """A choice of a profile that failed, for example."""

    async def test_verbose_shows_it(self, tmp_path: Path) -> None:
        """And no other chat does."""
        profiles = '[profiles.clerk]\nprompt = "Be exact."\n[profiles.chef]\nprompt = "Cook."\n'
        (tmp_path / "turnwise.toml").write_text(profiles)
        shown = []
        for options in ([], ["--verbose"]):
            async with OpenAiServer(chain([fails(401)], repeat(says("Yes.")))) as server:
                done = await run_beside(
                    *("chat", "--preset", "reply-flow", "--model", "openai/test", *options),
                    cwd=tmp_path,
                    lines=["hello"],
                    OPENAI_API_BASE=server.url,
                    OPENAI_API_KEY="test",
                )
            shown.append(
                "Choosing a profile failed: The model's provider refused the key or the account"
                in output_after_hint(done)
            )

        assert shown == [False, True]


class TestTalk:
    """B12: `turnwise chat --preset talk`."""

    async def chat(self, folder: Path, *options: str) -> str:
        """Return the output of a chat with that model."""
        (folder / "mine.py").write_text(LOOK_TOOL)
        async with talks() as server:
            done = await run_beside(
                *("chat", "--preset", "talk", "--model", "openai/test", "--tools", "mine:look", *options),
                cwd=folder,
                lines=["hello"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )
        return output_after_hint(done)

    async def test_only_what_is_said_is_shown(self, tmp_path: Path) -> None:
        """B1, B3, B12: the talks in order, unchanged; neither the model's text nor its tools. The preset brings the
        tool `talk` along."""
        assert await self.chat(tmp_path) == 'I "look" now.\nA bird 🙂\nup there.\n'

    async def test_verbose_shows_its_thoughts_too(self, tmp_path: Path) -> None:
        """B12: thoughts at their place, and a line for each other tool."""
        shown = await self.chat(tmp_path, "--verbose")

        assert shown == (
            "Where do I look?\n"
            'I "look" now.\n'
            '  ✓ look(place="up")\n'
            "A bird 🙂\nup there.\n"
            "That was all.\n"
        )  # fmt: skip

    def test_a_repeated_text_is_shown_again(self, tmp_path: Path) -> None:
        """B10: two deliveries of the same text are two lines; the rehearsal model also talks by tool."""
        done = run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello", "hello", "hello"])

        assert output_after_hint(done).count("You said: “hello”") == 3
        assert "The user was told." not in done.stdout

    def test_resuming_shows_what_was_said(self, tmp_path: Path) -> None:
        """P19: a resumed conversation is shown as the user knows it, without the model's text."""
        run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello"])

        shown = shown_on_resume(tmp_path)

        assert "You said: “hello”" in shown
        assert "The user should hear this" not in shown


class TestExplicitResponses:
    """`turnwise chat --preset explicit-response`."""

    async def test_the_answer_is_shown_and_no_status_line(self, tmp_path: Path) -> None:
        """S1, S2: the user sees what was said by tool, once; the text around it is shown with the thoughts only."""
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

    def test_resuming_shows_what_a_tool_was_to_say_when_it_was_stopped(self) -> None:
        """P8: where the user receives only what tools say, it is no thought."""
        texts = [said("assistant", text, stopped="cancelled", spoken=text == "It ra") for text in ("Hm", "It ra")]

        assert lines(*texts, by_tool=True) == [("assistant", "It ra"), ("note", "  Stopped.")]

    async def test_resuming_shows_what_was_delivered(self, tmp_path: Path) -> None:
        """S3, P19: of two answers the last was delivered; neither the other is shown, nor one that was refused."""
        says = call_several(
            call("respond_to_user", text="Seven."),
            call("respond_to_user", text="Eight."),
            call("respond_to_user", text="Refused.", to="him"),
        )
        llm = ScriptedLlm([says, call("mark_work_complete", summary="Counted.")])
        tools, policy = ["respond_to_user", "mark_work_complete"], presets.explicit_response().replace(verify=0)
        async with Engine.open(tmp_path / "turnwise.db", model=llm, tools=tools) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = shown_on_resume(tmp_path)

        assert turn.deliveries == ("Eight.",)
        assert "Eight." in shown
        assert "Seven." not in shown and "Refused." not in shown

    async def test_resuming_shows_a_text_that_was_delivered_instead(self, tmp_path: Path) -> None:
        """S2, P19: nothing was said by tool, so the last text was delivered; the one before it was a thought."""
        policy = presets.explicit_response().replace(nudges=1)
        llm = ScriptedLlm([reply("Let me see."), reply("Eight it is.")])
        tools = ["respond_to_user", "mark_work_complete"]
        async with Engine.open(tmp_path / "turnwise.db", model=llm, tools=tools) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = shown_on_resume(tmp_path)

        assert turn.deliveries == ("Eight it is.",)
        assert "Eight it is." in shown and "Let me see." not in shown

    def test_the_events_show_the_verdict_of_the_check(self, tmp_path: Path) -> None:
        """S11: whether the claim was confirmed, and why."""
        done = run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello", "/events"])

        assert re.search(r"\d  work_verified +passed: A rehearsal takes every claim at its word\.\n", done.stdout)


async def test_escape_codes_of_a_model_are_removed(tmp_path: Path) -> None:
    """An answer cannot change colours or titles; with `--thoughts` the model's thinking is shown."""
    answer = says("\x1b[31mred\x1b[0m ", "\x1b]0;title\x07plain", thinking="Hm, colours.")
    async with OpenAiServer([answer]) as server:
        done = await run_beside(
            *("chat", "--model", "openai/test", "--thoughts"),
            cwd=tmp_path,
            lines=["hello"],
            OPENAI_API_BASE=server.url,
            OPENAI_API_KEY="test",
        )

    assert done.stdout.endswith("Hm, colours.\nred plain\n")


class TestRecalled:
    """The past looks as it did when it was present."""

    def test_tools_have_their_lines(self) -> None:
        """With a mark for what became of each."""
        call = calling("pay", '{"amount": 5}', text="I pay.")

        assert lines(said("user", "Pay"), call, result("paid")) == [
            ("user", "Pay"),
            ("assistant", "I pay."),
            ("note", "  ✓ pay(amount=5)"),
        ]
        assert lines(call, result(error=True, stopped="denied"))[-1] == ("note", "  ✗ pay(amount=5) denied")
        assert lines(call, result(error=True))[-1] == ("note", "  ✗ pay(amount=5) failed")

    def test_messages_of_other_agents_are_not_the_users_words(self) -> None:
        """What the model made of them is shown, as it was."""
        told = said("user", "Three files.", origin="builder", audience="user")

        assert lines(told, said("assistant", "Your files are ready.")) == [("assistant", "Your files are ready.")]

    def test_a_tool_that_failed_says_why(self) -> None:
        """On the same line, shortened."""
        call = calling("pay", '{"amount": 5}')

        assert lines(call, result("The bank\nis closed.", error=True))[-1] == (
            "note",
            "  ✗ pay(amount=5) failed: The bank is closed.",
        )
        assert len(lines(call, result("x" * 10_000, error=True))[-1][1]) < 250
        assert lines(call, result("No.", error=True, stopped="denied"))[-1] == ("note", "  ✗ pay(amount=5) denied")

    def test_questions_are_shown_with_their_answers(self) -> None:
        """Instead of a line for the tool that asked."""
        asked = calling("ask_user_question", QUESTIONS)

        assert lines(asked, result('{"answers": {"When?": "Today"}}')) == [("question", "When?"), ("note", "  Today")]
        assert lines(asked, result('{"answers": {"When?": ["Today", "Later"]}}'))[-1] == ("note", "  Today, Later")
        assert lines(asked, result("Question: When?")) == [("question", "When?")]
        assert lines(asked, result('{"answers": 5}')) == [("question", "When?")]

    def test_a_cancelled_question_is_shown(self) -> None:
        """And that it was cancelled."""
        shown = lines(calling("ask_user_question", QUESTIONS), result(error=True, stopped="cancelled"))

        assert shown == [("question", "When?"), ("note", "Cancelled; the conversation goes on.")]

    def test_a_stopped_answer_says_so(self) -> None:
        """It stays, and a note says that it was stopped, or up to where it was heard."""
        assert lines(said("assistant", "Half of", stopped="cancelled")) == [
            ("assistant", "Half of"),
            ("note", "  Stopped."),
        ]
        assert lines(said("assistant", "Half", heard="Half"))[1] == ("note", "  Heard up to here: “Half”")

    def test_an_open_question_is_not(self) -> None:
        """It is asked again."""
        assert lines(calling("ask_user_question", QUESTIONS)) == []

    def test_where_the_user_is_reached_by_tool_tools_are_shown_with_the_thoughts(self) -> None:
        """And what was delivered is what was said."""
        spoken = [calling("talk", '{"message": "Hi"}', text="hm"), result("", deliveries=("Hi",))]

        assert lines(*spoken, by_tool=True) == [("assistant", "Hi")]
        assert lines(*spoken, by_tool=True, thoughts=True)[0] == ("note", '  ✓ talk(message="Hi")')

    def test_where_something_was_said_by_tool_the_text_is_not_shown(self) -> None:
        """As it looked when the turn was held: the user received the speech, and a text only if it was delivered."""
        spoken = [calling("say", text="hm"), result("", deliveries=("Hi",)), said("assistant", "Done.")]

        assert lines(*spoken) == [("assistant", "Hi")]
        assert lines(*spoken[:2], spoken[2].replace(deliveries=("Done.",)))[-1] == ("assistant", "Done.")

    def test_only_the_last_messages_are_shown(self) -> None:
        """With the tools between them; the others are counted."""
        messages = [
            message for _ in range(5) for message in (said("user", "u"), calling("t"), result(), said("assistant", "a"))
        ]

        earlier, shown = recalled(messages, by_tool=False, thoughts=False)

        assert earlier == 10 - RECALLED
        assert [line.kind for line in shown] == ["user", "note", "assistant"] * (RECALLED // 2)


def test_a_call_is_one_short_line() -> None:
    """Whatever its arguments hold."""
    line = call_line("t", {"a": "x\n\x1b[31m" * 300})

    assert "\n" not in line and "\x1b" not in line
    assert len(line) <= 160


class TestOnATerminal:
    """What an attempt wrote disappears when another one begins."""

    def test_another_attempt_replaces_what_was_shown(self, open_writer: OpenWriter) -> None:
        """The same request, asked again."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        for piece in ("# Half\n\n- an ", "answer"):
            shown.add(token(piece))

        shown.add(token("All ", attempt=2))
        shown.add(token("of it.", attempt=2))
        shown.end_answer("All of it.")

        assert on_screen(output) == "All of it."

    def test_a_broken_answer_that_left_the_screen_stays_with_a_note(self, open_writer: OpenWriter) -> None:
        """It cannot be reached any more, and must not be taken for the answer."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("\n\n".join(f"paragraph {number}" for number in range(30))))

        assert shown.take_back()
        shown.add(token("Again.", attempt=2))
        shown.end_answer("Again.")

        assert on_screen(output).endswith("This answer broke off.\nAgain.")

    def test_a_token_with_everything_from_the_start_replaces_what_is_shown(self, open_writer: OpenWriter) -> None:
        """The screen was too slow for some tokens."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("One "))
        shown.add(token("One two ", from_start=True))
        shown.add(token("Three", from_start=True))
        shown.end_answer("Three four")

        assert on_screen(output) == "Three four"

    @pytest.mark.parametrize("by_tool", [True, False])
    def test_what_tools_say_is_shown_while_it_is_written_and_once(self, open_writer: OpenWriter, by_tool: bool) -> None:
        """The deliveries take the place of the pieces, one for each call."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=by_tool)
        for piece in ("At *ni", "ne*.\n\nFrom ", "platform 2."):
            shown.add(token(piece, kind="speech"))
        writer.spin("talk()")

        assert shown.end_speech("At *nine*.") and shown.end_speech("From platform 2.")
        assert not shown.end_speech("Have a good journey.")
        assert on_screen(output) == "At nine.\n\nFrom platform 2."

    def test_what_was_not_said_in_a_turn_is_no_delivery_of_another(self, open_writer: OpenWriter) -> None:
        """A tool that was to speak last, and did not; the same words later are shown."""
        writer, _ = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("At nine.", kind="speech"))

        shown.end_turn()

        assert not shown.end_speech("At nine.")

    def test_what_is_not_said_is_taken_back(self, open_writer: OpenWriter) -> None:
        """An attempt that fails takes back what was to be said; what comes from the start replaces it."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("At eight", kind="speech"))
        shown.give_up_speech(1, 2)
        shown.add(token("At nine", kind="speech", attempt=2))
        shown.add(token("At ten", kind="speech", attempt=2, from_start=True))

        assert shown.end_speech("At ten")
        assert on_screen(output) == "At ten"

    def test_a_stopped_answer_that_was_to_be_said_stands_once(self, open_writer: OpenWriter) -> None:
        """The message that keeps it has the text, and then what was to be said."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("I look."))
        shown.add(token("At ni", kind="speech"))

        shown.end_answer("I look.\n\nAt ni")

        assert on_screen(output) == "I look.\nAt ni"

    async def test_pieces_that_come_fast_are_all_shown(self, open_writer: OpenWriter) -> None:
        """They are drawn together a moment later, also if no other piece comes."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        for piece in ["a", "b", "c", "d", "e", "f"]:
            shown.add(token(f"{piece} "))
        while on_screen(output) != "a b c d e f":
            await asyncio.sleep(0.01)

        writer.finish()
        assert on_screen(output) == "a b c d e f"


def test_through_a_pipe_a_broken_answer_is_followed_by_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be taken back there; the answer is written as the model wrote it."""
    shown = ShownText(TerminalWriter(interactive=False, markdown=True), thoughts=False, by_tool=False)
    shown.add(token("**Half"))
    shown.add(token("**All**", attempt=2))
    shown.end_answer("**All**")

    assert capsys.readouterr().out == "**Half\n  This answer broke off.\n**All**\n"


def test_no_colour_is_honoured(open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR keeps bold and the like, and takes the colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    writer, output = open_writer()
    writer.answer("# A `code`\n\n```python\nx = 1\n```")

    assert "\x1b[1" in output.getvalue()
    assert "\x1b[3" not in output.getvalue().replace("\x1b[39", "")
