"""The record of a dialogue: it keeps its limit, and no text can pass for another speaker."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Texts
from turnwise.effects.model.performers.summaries import write_dialogue
from turnwise.states import Message, ToolCall
from turnwise.states.values.files import FileReference

TEXTS = Texts()
AT_THE_MARGIN = re.compile(
    r"(?:User|Assistant|Another agent|(?:Result|Error) of (?:a tool|[\w-]+)|What was said before, already condensed)"
    r"(?: \(this message is kept beside your text\))?:"
    r"|\[\d+ older messages are left out here\]"
)
texts = st.text(max_size=400)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any kind. Calls and results need not match."""
    role = draw(st.sampled_from(["user", "assistant", "tool"]))
    fields: dict[str, Any] = {"role": role, "text": draw(texts) * draw(st.sampled_from([1, 50]))}
    if role == "assistant":
        fields["tool_calls"] = draw(st.lists(st.builds(ToolCall, call_id=st.just("c"), name=texts, arguments=texts)))
    if role == "tool":
        fields |= {"tool_call_id": draw(st.sampled_from(["c", "d"])), "error": draw(st.booleans())}
    return Message(**fields)


def write(*said: Message, kept: tuple[Message, ...] = (), earlier: str = "", limit: int = 10_000) -> str:
    """The record of these messages."""
    return write_dialogue(said, kept, earlier, limit, TEXTS)


def user(text: str, **fields: Any) -> Message:
    """A user's message."""
    return Message(role="user", text=text, **fields)


class TestTheLimit:
    """The record is never longer than its limit, and not much shorter."""

    @given(st.lists(messages(), max_size=40), texts, st.integers(1_000, 30_000))
    def test_it_is_never_exceeded(self, said: list[Message], earlier: str, limit: int) -> None:
        """The limit is in bytes, and holds for any text in any script."""
        assert len(write(*said, earlier=earlier * 20, limit=limit).encode()) <= limit

    def test_the_longest_texts_are_shortened_first(self) -> None:
        """The result of a tool loses its middle, and short messages stay complete."""
        result = Message(role="tool", text=f"begins {'x' * 50_000} ends", tool_call_id="c")

        written = write(user("Somewhere quiet"), result, user("In Kyoto"), limit=2_000)

        assert "  Somewhere quiet\n" in written
        assert "  In Kyoto" in written
        assert "begins xxx" in written
        assert "xxx ends" in written
        assert "characters left out …]" in written

    def test_texts_are_not_shortened_more_than_needed(self) -> None:
        """The record takes nearly all of its limit."""
        long = [user("x" * 20_000) for _ in range(3)]

        assert len(write(*long, limit=9_000)) > 8_700

    def test_the_oldest_of_too_many_messages_are_left_out(self) -> None:
        """The record says how many are left out, and still begins with the earlier summary."""
        many = [user(f"message {number} {'x' * 500}") for number in range(100)]

        written = write(*many, earlier="They met.", limit=3_500)

        first, second, third, *_ = written.splitlines()
        assert (first, second) == ("What was said before, already condensed:", "  They met.")
        left_out = int(re.findall(r"\[(\d+) older messages are left out here\]", third)[0])
        assert f"message {left_out} " in written
        assert f"message {left_out - 1} " not in written
        assert "message 99 " in written


class TestSpeakers:
    """Only speakers stand at the left margin."""

    @given(st.lists(messages(), max_size=10), texts)
    def test_no_text_can_pass_for_a_speaker(self, said: list[Message], earlier: str) -> None:
        """No text and no name can begin a line at the margin, whatever character ends the line before."""
        for line in write(*said, earlier=earlier, limit=5_000).splitlines():
            assert line.startswith(" ") or AT_THE_MARGIN.fullmatch(line)

    def test_calls_and_results_name_their_tool(self) -> None:
        """The model reads the arguments and the result of each call."""
        call = ToolCall(call_id="c", name="find_table", arguments='{"party": 2}')
        asks = Message(role="assistant", text="Let me look.", tool_calls=(call,))
        fails = Message(role="tool", text="no table", tool_call_id="c", error=True)

        assert write(asks, fails) == (
            'Assistant:\n  Let me look.\n  [calls find_table with {"party": 2}]\nError of find_table:\n  no table'
        )

    def test_other_agents_and_undelivered_speech_are_marked(self) -> None:
        """D7: the message of another agent has the tags that it has in a request. S21: speech that was not delivered
        has a note."""
        mail = user("The bus is late", origin="buses", audience="user")
        lost = Message(role="tool", text="said", tool_call_id="c", undelivered=True)

        written = write(mail, lost)

        assert 'Another agent:\n  <message_for_user origin="buses">The bus is late</message_for_user>' in written
        assert f"Result of a tool:\n  said\n  {TEXTS.undelivered}" in written

    def test_what_the_user_has_stopped_or_interrupted_is_marked(self) -> None:
        """The words of a speech stand in its call as a whole, so the note says what of them was heard."""
        stopped = Message(role="assistant", text="There are", stopped="cancelled")
        cut = Message(role="assistant", text="There are two", heard="There are two")
        speech = Message(role="tool", text="done", tool_call_id="c", heard="There <are>")
        unheard = Message(role="tool", text="done", tool_call_id="c", heard="")

        assert write(stopped, cut, speech, unheard).splitlines() == [
            *("Assistant:", "  There are", f"  {TEXTS.stopped}"),
            *("Assistant:", "  There are two", f"  {TEXTS.stopped}"),
            *("Result of a tool:", "  done", f"  {TEXTS.heard.replace('{heard}', 'There <are>')}"),
            *("Result of a tool:", "  done", f"  {TEXTS.unheard}"),
        ]

    def test_files_are_mentioned(self) -> None:
        """A message may have an image and no text."""
        picture = FileReference(url="https://example.com/menu.png", media_type="image/png")

        assert write(user("", files=(picture,))) == "User:\n  Shows [image]"
        assert write(user("These", files=(picture, picture))) == "User:\n  These\n  Shows [2 images]"

    def test_kept_messages_are_marked(self) -> None:
        """The model learns that the message under way will stand beside its summary."""
        answered = user("In Kyoto", turn=2)

        written = write(user("Somewhere quiet", turn=1), answered, kept=(answered,))

        assert written == ("User:\n  Somewhere quiet\nUser (this message is kept beside your text):\n  In Kyoto")

    @pytest.mark.parametrize("said", ["", " \n "])
    def test_a_blank_message_is_left_out(self, said: str) -> None:
        """Such as an empty answer of the model."""
        assert write(user("Hi"), Message(role="assistant", text=said)) == "User:\n  Hi"
