"""What was said, written down for a model that only reads it: within its limit, and nobody speaks for another."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Texts
from turnwise.effects.model.request.dialogue_record import write_history
from turnwise.states import Message, ToolCall
from turnwise.states.values.images import Image

TEXTS = Texts()
AT_THE_MARGIN = re.compile(
    r"(?:User|Assistant|Another agent|(?:Result|Error) of (?:a tool|[\w-]+)|What was said before, already condensed)"
    r"(?: \(this message is kept beside your text\))?:"
    r"|\[\d+ older messages are left out here\]"
)
texts = st.text(max_size=400)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any kind; calls and results need not fit each other."""
    role = draw(st.sampled_from(["user", "assistant", "tool"]))
    fields: dict[str, Any] = {"role": role, "text": draw(texts) * draw(st.sampled_from([1, 50]))}
    if role == "assistant":
        fields["tool_calls"] = draw(st.lists(st.builds(ToolCall, call_id=st.just("c"), name=texts, arguments=texts)))
    if role == "tool":
        fields |= {"tool_call_id": draw(st.sampled_from(["c", "d"])), "error": draw(st.booleans())}
    return Message(**fields)


def write(*said: Message, kept: tuple[Message, ...] = (), earlier: str = "", limit: int = 10_000) -> str:
    """These messages, written down."""
    return write_history(said, kept, earlier, limit, TEXTS)


def user(text: str, **fields: Any) -> Message:
    """A user's message."""
    return Message(role="user", text=text, **fields)


class TestTheLimit:
    """How long it may become."""

    @given(st.lists(messages(), max_size=40), texts, st.integers(1_000, 30_000))
    def test_it_is_kept(self, said: list[Message], earlier: str, limit: int) -> None:
        """In bytes, whatever is said in whatever script."""
        assert len(write(*said, earlier=earlier * 20, limit=limit).encode()) <= limit

    def test_the_longest_texts_are_shortened_first(self) -> None:
        """A tool's result loses its middle; what people say in a few words stays whole."""
        result = Message(role="tool", text=f"begins {'x' * 50_000} ends", tool_call_id="c")

        written = write(user("Somewhere quiet"), result, user("In Kyoto"), limit=2_000)

        assert "  Somewhere quiet\n" in written
        assert "  In Kyoto" in written
        assert "begins xxx" in written
        assert "xxx ends" in written
        assert "characters left out …]" in written

    def test_there_is_room_to_the_last(self) -> None:
        """What is shortened is not shortened more than it must be."""
        long = [user("x" * 20_000) for _ in range(3)]

        assert len(write(*long, limit=9_000)) > 8_700

    def test_of_too_many_messages_the_newest_are_kept(self) -> None:
        """The text says how many are not, and the summary of what came before stands in front all the same."""
        many = [user(f"message {number} {'x' * 500}") for number in range(100)]

        written = write(*many, earlier="They met.", limit=3_500)

        first, second, third, *_ = written.splitlines()
        assert (first, second) == ("What was said before, already condensed:", "  They met.")
        left_out = int(re.findall(r"\[(\d+) older messages are left out here\]", third)[0])
        assert f"message {left_out} " in written
        assert f"message {left_out - 1} " not in written
        assert "message 99 " in written


class TestWhoSpeaks:
    """What stands at the left margin."""

    @given(st.lists(messages(), max_size=10), texts)
    def test_nobody_speaks_for_another(self, said: list[Message], earlier: str) -> None:
        """No text and no name can begin a line at the margin, by whatever sign a line may end."""
        for line in write(*said, earlier=earlier, limit=5_000).splitlines():
            assert line.startswith(" ") or AT_THE_MARGIN.fullmatch(line)

    def test_calls_and_results_name_their_tool(self) -> None:
        """The model reads what was called with what, and what came of it."""
        call = ToolCall(call_id="c", name="find_table", arguments='{"party": 2}')
        asks = Message(role="assistant", text="Let me look.", tool_calls=(call,))
        fails = Message(role="tool", text="no table", tool_call_id="c", error=True)

        assert write(asks, fails) == (
            'Assistant:\n  Let me look.\n  [calls find_table with {"party": 2}]\nError of find_table:\n  no table'
        )

    def test_other_agents_and_what_did_not_arrive(self) -> None:
        """D7: what another agent wrote is marked as in a request; S21: a speech that was not delivered says so."""
        mail = user("The bus is late", origin="buses", audience="user")
        lost = Message(role="tool", text="said", tool_call_id="c", undelivered=True)

        written = write(mail, lost)

        assert 'Another agent:\n  <message_for_user origin="buses">The bus is late</message_for_user>' in written
        assert f"Result of a tool:\n  said\n  {TEXTS.undelivered}" in written

    def test_images_are_told_of(self) -> None:
        """A message may be an image and nothing else; the text that is to be condensed says that there was one."""
        picture = Image(url="https://example.com/menu.png")

        assert write(user("", images=(picture,))) == "User:\n  [shows 1 image]"
        assert write(user("These", images=(picture, picture))) == "User:\n  These\n  [shows 2 images]"

    def test_what_is_kept_is_marked(self) -> None:
        """The message that is being answered stands beside the summary, and the model is told so."""
        answered = user("In Kyoto", turn=2)

        written = write(user("Somewhere quiet", turn=1), answered, kept=(answered,))

        assert written == ("User:\n  Somewhere quiet\nUser (this message is kept beside your text):\n  In Kyoto")

    @pytest.mark.parametrize("said", ["", " \n "])
    def test_who_says_nothing_is_left_out(self, said: str) -> None:
        """An empty answer takes no room."""
        assert write(user("Hi"), Message(role="assistant", text=said)) == "User:\n  Hi"
