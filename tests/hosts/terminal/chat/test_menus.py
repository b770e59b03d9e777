"""Questions as menus.

Tab completion of commands.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from turnwise.hosts.terminal.chat.menus import CommandCompleter
from turnwise.hosts.terminal.chat.user_input import CommandHelp

from ....support.terminal import DEMO_TOOLS, PAYMENT_TOOL, REQUEST, TWO_QUESTIONS_TOOL, at_prompt, end_of, run, terminal


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestMenus:
    """What keys do in a menu."""

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
