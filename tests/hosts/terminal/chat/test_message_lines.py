"""What a resumed conversation shows of its past."""

from __future__ import annotations

from typing import Any

from turnwise.hosts.terminal.chat.screen import RECALLED, call_line, recalled
from turnwise.states.values.messages import Message, ToolCall

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
