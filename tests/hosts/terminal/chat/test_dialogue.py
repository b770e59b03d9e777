"""What a chat asks its user: approvals, questions as menus, and Ctrl-C."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from turnwise import Engine
from turnwise.hosts.terminal.chat.menus import CommandCompleter
from turnwise.hosts.terminal.chat.user_input import CommandHelp

from ....support.terminal import (
    DEMO_TOOLS,
    PAYMENT_TOOL,
    REQUEST,
    TWO_QUESTIONS_TOOL,
    at_prompt,
    end_of,
    newest_id,
    run,
    terminal,
)

# --- Approvals and Ctrl-C in a chat.


class TestApprovals:
    """P36: a tool that needs approval."""

    def test_the_user_is_asked(self, tmp_path: Path) -> None:
        """A number, a label, yes or no answers the question; any other words are the reason to deny."""
        (tmp_path / "till.py").write_text(PAYMENT_TOOL)
        allow, deny = ("2", "Allow", "y", "Yes"), ("1", "deny", "n", "NO", "too much")

        done = run(
            *("chat", "--tools", "till:pay"),
            cwd=tmp_path,
            lines=[line for answer in (*allow, *deny) for line in ("Pay the bill of 5", answer)],
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert '? [Approval] May pay run with {"amount": 5}?\n  Pay the bill.\n  1. Deny' in done.stdout
        assert re.findall(r"^  (✓|✗) pay(.*)$", done.stdout, re.MULTILINE) == [
            *[("✓", "(amount=5)")] * len(allow),
            *[("✗", " denied")] * len(deny),
        ]
        assert re.findall("Denied by the user.*", done.stdout) == [
            *["Denied by the user"] * (len(deny) - 1),
            "Denied by the user: too much",
        ]
        assert "  pay denied: Denied by the user: too much" in run("show", newest_id(tmp_path), cwd=tmp_path).stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestCtrlC:
    """Ctrl-C cancels, and leaves if there is nothing to cancel."""

    def test_it_cancels_the_turn_and_the_conversation_goes_on(self, slow_tools: str, tmp_path: Path) -> None:
        """P6: the tool is stopped, one line says so, and the next message is answered. Ctrl-D leaves."""
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Wait in Rome")
            child.expect_exact('wait_long(place="Rome")')
            child.sendintr()
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendline("Hello")
            child.expect_exact("You said: “Hello”")
            at_prompt(child).sendeof()

            assert end_of(child) == 0
        assert "7 events replayed, no divergence." in run("replay", "--all", cwd=tmp_path).stdout

    async def test_at_the_prompt_it_stops_a_turn_that_the_schedule_began(self, slow_tools: str, tmp_path: Path) -> None:
        """However often it is pressed, the turn is cancelled and the chat goes on; what was typed stays in the line."""
        async with Engine.open(tmp_path / "turnwise.db") as engine:
            conversation = await engine.create(every=1, task="Wait in Rome")
        with terminal("chat", conversation.id, "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).send("/quit")
            for _ in range(2):
                child.expect_exact('wait_long(place="Rome")')
                child.sendintr()
                child.expect_exact("Cancelled; the conversation goes on.")
            child.send("\r")

            assert end_of(child) in (0, 130)

    def test_the_second_one_leaves(self, slow_tools: str, tmp_path: Path) -> None:
        """During a cancel that takes long, and after a cancel at the empty prompt."""
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Wait in Rome")
            child.expect_exact("wait_long(")
            child.sendintr()
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendintr()
            after_a_cancel = end_of(child)
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Stubbornly refuse to stop in Rome")
            child.expect_exact("refuse_to_stop(")
            child.sendintr()
            child.expect_exact("stopping")
            child.sendintr()
            child.expect_exact("You left during a turn")
            child.expect_exact("To resume this conversation: ")
            while_cancelling = end_of(child)

        assert (after_a_cancel, while_cancelling) == (0, 130)

    def test_at_a_question_it_declines(self, tmp_path: Path) -> None:
        """P17, P38: the turn is cancelled, and the conversation goes on."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendintr()
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendeof()

            assert end_of(child) == 0
        assert "idle" in run("list", cwd=tmp_path).stdout

    def test_ctrl_d_at_a_question_leaves_it_open(self, tmp_path: Path) -> None:
        """P19: the question is asked again when the conversation is resumed."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendeof()
            child.expect_exact("The question stays open.")

            assert end_of(child) == 0
        assert "awaiting_user_response" in run("list", cwd=tmp_path).stdout

    def test_at_an_approval_it_cancels_the_turn_and_twice_it_leaves(self, tmp_path: Path) -> None:
        """P36, P38: the tool does not run."""
        (tmp_path / "till.py").write_text(PAYMENT_TOOL)
        with terminal("chat", "--tools", "till:pay", cwd=tmp_path) as child:
            at_prompt(child).sendline("Pay the bill of 5")
            child.expect_exact("and say why")
            child.sendintr()
            child.expect_exact("✗ pay cancelled")
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendintr()

            assert end_of(child) == 0
        assert run("list", cwd=tmp_path).stdout.split()[1] == "idle"


# --- Questions as menus.
#
# Tab completion of commands.


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestMenus:
    """What keys do in a menu."""

    @pytest.mark.slow
    def test_at_an_approval_enter_denies_and_a_typed_yes_allows(self, tmp_path: Path) -> None:
        """P36: Enter alone allows nothing, letters begin an answer, and other words are the reason to deny."""
        (tmp_path / "till.py").write_text(PAYMENT_TOOL)
        with terminal("chat", "--tools", "till:pay", cwd=tmp_path) as child:
            for answer, shown in (("", "Denied by the user"), ("yes", "paid 5"), ("kjoy", "Denied by the user: kjoy")):
                at_prompt(child).sendline("Pay the bill of 5")
                child.expect_exact("and say why")
                child.sendline(answer)
                child.expect_exact(f": {shown}\r\n")
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    @pytest.mark.slow
    def test_what_is_typed_in_a_menu_is_an_answer_or_a_command(self, tmp_path: Path) -> None:
        """P15: nothing that is typed or pasted is lost or chooses an option. A command is executed, and the question
        is asked again."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendline("/state")
            child.expect_exact("awaiting_user_response, after 1 turn and ")
            child.expect_exact("in your own words")
            child.sendline("a quiet one")
            child.expect_exact("You chose a quiet one.")
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.send("\x1b[200~the pasted one\x1b[201~")
            child.expect_exact("Your answer:")
            child.send("\r")
            child.expect_exact("You chose the pasted one.")
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendline("/quit")
            child.expect_exact("The question stays open.")

            assert end_of(child) == 0
        assert "awaiting_user_response" in run("list", cwd=tmp_path).stdout

    @pytest.mark.slow
    def test_typing_adds_to_the_marked_options(self, tmp_path: Path) -> None:
        """P15: where several options may be chosen, every letter begins free text, and the marked options count too."""
        (tmp_path / "several.py").write_text(
            TWO_QUESTIONS_TOOL.replace("(NORTH, SOUTH)", "(NORTH, SOUTH), multi_select=True")
        )
        with terminal("chat", "--tools", "several:ask_twice", cwd=tmp_path) as child:
            at_prompt(child).sendline("Go")
            child.expect_exact("in your own words")
            child.send(" ")
            child.sendline("a bit west")
            child.expect_exact("Where to?")
            child.expect_exact("in your own words")
            child.sendline("inland")
            child.expect_exact('"Where from?": ["North", "a bit west"], "Where to?": ["inland"]')
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    @pytest.mark.slow
    def test_an_open_question_is_answered_in_words(self, tmp_path: Path) -> None:
        """It has no menu: a tool of the application asks without offering options."""
        (tmp_path / "open.py").write_text(TWO_QUESTIONS_TOOL.replace(", options=(NORTH, SOUTH)", ""))
        with terminal("chat", "--tools", "open:ask_twice", cwd=tmp_path) as child:
            at_prompt(child).sendline("Go")
            child.expect_exact("Where from?")
            child.expect_exact("Your answer:")
            child.sendline("Bern")
            child.expect_exact("Where to?")
            child.expect_exact("Your answer:")
            child.sendline("the sea")
            child.expect_exact('"Where from?": "Bern", "Where to?": "the sea"')
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    @pytest.mark.slow
    def test_other_takes_free_text(self, tmp_path: Path) -> None:
        """P15: it arrives as it was typed."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.send("\x1b[A\r")
            child.expect_exact("Your answer:")
            child.sendline('the "quiet" one, please')
            child.expect_exact('You chose the "quiet" one, please.')
            at_prompt(child).sendeof()

            assert end_of(child) == 0


COMMANDS = {
    "/model": CommandHelp("change the model", "[NAME]", lambda: ("openai/gpt", "openai/o", "rehearsal")),
    "/mood": CommandHelp("show the mood"),
}


def completed(line: str) -> list[str]:
    """Return what the line can become."""
    completer = CommandCompleter(lambda: COMMANDS)
    found = completer.get_completions(Document(line), CompleteEvent())
    return [line[: len(line) + each.start_position] + each.text for each in found]


class TestCommands:
    """A line that begins with a slash."""

    def test_commands_are_offered_by_their_beginning(self) -> None:
        """All of them on an empty line."""
        assert completed("/mo") == ["/model", "/mood"]
        assert completed("/mode") == ["/model"]
        assert completed("") == ["/model", "/mood"]
        assert completed("/x") == []

    def test_arguments_are_offered_where_they_are_known(self) -> None:
        """Behind the command."""
        assert completed("/model open") == ["/model openai/gpt", "/model openai/o"]
        assert completed("/model ") == ["/model openai/gpt", "/model openai/o", "/model rehearsal"]
        assert completed("/mood x") == []
        assert completed("/x y") == []

    def test_a_message_is_left_alone(self) -> None:
        """Words of a message are not commands."""
        assert completed("what is /mo") == []
        assert completed("mo") == []

    def test_each_has_its_description(self) -> None:
        """Beside its name."""
        found = CommandCompleter(lambda: COMMANDS).get_completions(Document("/mood"), CompleteEvent())

        assert [each.display_meta_text for each in found] == ["show the mood"]
