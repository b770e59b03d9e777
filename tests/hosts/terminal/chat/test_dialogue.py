"""Approvals and Ctrl-C in a chat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turnwise import Engine

from ....support.terminal import DEMO_TOOLS, PAYMENT_TOOL, REQUEST, at_prompt, end_of, newest_id, run, terminal


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
