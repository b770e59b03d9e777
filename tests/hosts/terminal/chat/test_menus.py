"""Menus"""

from __future__ import annotations

from pathlib import Path

import pytest

from ....support.terminal import (
    ASKS_TWICE,
    DEMO_TOOLS,
    REQUEST,
    TILL,
    at_prompt,
    end_of,
    run,
    terminal,
)


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestMenus:
    """Keys in menus"""

    def test_at_an_approval_enter_denies_and_a_typed_yes_allows(self, tmp_path: Path) -> None:
        """P36: Enter alone allows nothing, letters are the beginning of an answer, and other words are a reason."""
        (tmp_path / "till.py").write_text(TILL)
        with terminal("chat", "--tools", "till:pay", cwd=tmp_path) as child:
            for answer, shown in (("", "Denied by the user"), ("yes", "paid 5"), ("kjoy", "Denied by the user: kjoy")):
                at_prompt(child).sendline("Pay the bill of 5")
                child.expect_exact("and say why")
                child.sendline(answer)
                child.expect_exact(f": {shown}\r\n")
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    def test_what_is_typed_in_a_menu_is_an_answer_or_a_command(self, tmp_path: Path) -> None:
        """P15: nothing that is typed or pasted is thrown away, and no option is taken by it; commands are obeyed, and
        the question stays."""
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

    def test_where_several_may_be_chosen_typing_adds_to_what_is_marked(self, tmp_path: Path) -> None:
        """P15: every letter begins words of one's own, and the mark that was set before them counts."""
        (tmp_path / "several.py").write_text(ASKS_TWICE.replace("(NORTH, SOUTH)", "(NORTH, SOUTH), multi_select=True"))
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

    def test_other_takes_words_of_ones_own(self, tmp_path: Path) -> None:
        """P15: free text arrives as it was typed."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.send("\x1b[A\r")
            child.expect_exact("Your answer:")
            child.sendline('the "quiet" one, please')
            child.expect_exact('You chose the "quiet" one, please.')
            at_prompt(child).sendeof()

            assert end_of(child) == 0
