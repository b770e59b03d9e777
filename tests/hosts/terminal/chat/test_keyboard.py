"""The prompt of a chat at a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pexpect
import pytest

from ....support.terminal import DEMO_TOOLS, at_prompt, end_of, newest_id, run, terminal

pytestmark = pytest.mark.slow


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
