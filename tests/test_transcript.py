"""What was said, read from the log: each text from the one event that brought it, each result in its place."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import Heard, LogEntry, Message, Questions, Texts, ToolCall, Usage, transcript
from turnwise.states.transcript import Transcript
from turnwise.testing import Trace, traces

from .conversation import Conversation, asking, call


def texts(messages: tuple[Message, ...], role: str) -> list[str]:
    """What this role said."""
    return [message.text for message in messages if message.role == role]


class TestResults:
    """A round's results stand directly behind its message, in call order."""

    @given(st.permutations(list("abcd")), st.integers(1, 4))
    def test_results_stand_in_call_order_whatever_ends_first(self, order: list[str], parallel: int) -> None:
        """P4: whatever order they came in."""
        conversation = Conversation(parallel=parallel)
        conversation.says()
        conversation.model_calls(*"abcd")

        while running := conversation.tools():
            conversation.tool_ends(min(running, key=order.index))

        assert [message.tool_call_id for message in conversation.transcript[2:]] == list("abcd")

    def test_results_stand_behind_their_own_message(self) -> None:
        """A second round does not mix with the first, though its calls have the same names."""
        conversation = Conversation()
        conversation.says()
        for text in ("first", "second"):
            conversation.model_calls("a", "b")
            conversation.tool_ends("a", text)
            conversation.tool_ends("b", text)

        assert texts(conversation.transcript, "tool") == ["first", "first", "second", "second"]

    def test_a_result_that_comes_first_moves_behind_an_earlier_one(self) -> None:
        """A fault is there at once, and the result of the call before it still stands before it."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", call("b", fault="There is no tool called b."))
        assert texts(conversation.transcript, "tool") == ["There is no tool called b."]

        conversation.tool_ends("a", "late")

        assert texts(conversation.transcript, "tool") == ["late", "There is no tool called b."]

    def test_a_result_says_whether_it_tells_of_an_error(self) -> None:
        """Faults, failures and calls that did not run do; an answer of a person does not."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking(), call("fault", fault="No."), "breaks", "ends", "stops")
        conversation.tool_asks()
        conversation.answers({"When?": "Now"})
        conversation.tool_breaks("breaks", "It took too long.")
        conversation.tool_ends("ends")
        conversation.cancels()
        conversation.tool_stops("stops")

        errors = {message.tool_call_id: message.error for message in conversation.transcript if message.role == "tool"}
        assert errors == {"ask": False, "fault": True, "breaks": True, "ends": False, "stops": True}


class TestMessages:
    """What people and models said, and what the machine says where they say nothing."""

    def test_a_message_says_who_said_it_and_when(self) -> None:
        """Role, model and turn; thoughts and sealed blocks stay with what was said."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_says("Good day", thinking="Polite.", opaque=({"signature": "x"},), model="model-0")
        conversation.says("Again")

        hello, good_day, again = conversation.transcript
        assert (hello.role, hello.text, hello.turn) == ("user", "Hello", 1)
        assert (good_day.role, good_day.thinking, good_day.model) == ("assistant", "Polite.", "model-0")
        assert good_day.opaque == ({"signature": "x"},)
        assert again.turn == 2

    def test_a_message_holds_the_calls_that_it_asked_for(self) -> None:
        """With the arguments as the model wrote them."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("a", arguments="{not JSON"))

        assert conversation.transcript[-1].tool_calls == (ToolCall(call_id="a", name="a", arguments="{not JSON"),)

    def test_the_words_of_the_machine_come_from_the_policy(self) -> None:
        """An ending without an answer says what `Policy.texts` says."""
        conversation = Conversation(texts=Texts(empty="Nichts."))
        conversation.says()
        conversation.model_says("")

        assert texts(conversation.transcript, "assistant") == ["", "Nichts."]

    def test_a_retry_says_nothing_twice(self) -> None:
        """The message of a failed turn stands once, however often it is tried."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_fails("authentication")
        conversation.tries_again()
        conversation.model_says("Here")

        assert [message.text for message in conversation.transcript] == ["Hello", "Here"]


class TestTextStandsOnce:
    """A text is stored in the event that brought it; states, effects and endings refer to it."""

    def test_nothing_that_is_stored_repeats_a_text(self) -> None:
        """No state, effect or ending of a turn holds what a person, the model, or a tool said."""
        conversation = Conversation(questions=Questions(answer="json"))
        conversation.says("said by a person")
        conversation.model_calls(
            call("read", arguments='{"path": "written by the model"}'),
            call("gone", fault="found by the registry"),
            asking(),
            content="spoken by the model",
            thinking="thought by the model",
        )
        conversation.tool_ends("read", "returned by a tool")
        conversation.tool_asks()
        conversation.answers({"When?": "chosen by a person"})
        conversation.model_says("concluded by the model", usage=Usage(input_tokens=9))

        stored = [
            value.to_json()
            for observation in conversation.history.observations
            for value in (observation.after, *observation.effects, getattr(observation.outcome, "ended", None))
            if value is not None
        ]
        assert [text for text in stored if " by " in text] == []
        assert len(texts(conversation.transcript, "tool")) == 3

    def test_what_a_turn_came_to_is_a_reference(self) -> None:
        """`final_content` names the event that holds the answer."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("The answer")

        assert step.ended is not None
        assert step.ended.final_content == Heard(seq=step.state.book.seq)


class TestTheProjection:
    """The transcript follows from the log alone."""

    @given(traces())
    def test_it_is_the_same_in_one_go_and_entry_by_entry(self, trace: Trace) -> None:
        """From pairs of event and step, from log entries, and told one entry at a time."""
        pairs = [(each.event, each.step) for each in trace if each.step is not None]
        entries = [LogEntry.of(event, step) for event, step in pairs]
        told = Transcript()

        brought = [message for entry in entries for message in told.add(entry)]

        assert transcript(pairs) == transcript(entries) == tuple(told.messages)
        assert sorted(map(repr, brought)) == sorted(map(repr, told.messages))

    @given(traces())
    def test_what_was_said_is_never_taken_back(self, trace: Trace) -> None:
        """Messages of people and models keep their order; only results may move in before other results."""
        entries = [LogEntry.of(each.event, each.step) for each in trace if each.step is not None]

        spoken = [[m for m in transcript(entries[:n]) if m.role != "tool"] for n in range(len(entries) + 1)]

        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(spoken))

    def test_a_call_can_be_looked_up_with_its_arguments(self) -> None:
        """Whoever runs a tool reads the arguments here."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("a", arguments='{"n": 1}'))
        told = Transcript()
        for entry in conversation.history.log:
            told.add(entry)

        assert told.call("a").arguments == '{"n": 1}'

    def test_an_event_without_a_text_has_none(self) -> None:
        """To ask for it is a fault of the log, and a `LookupError`."""
        with pytest.raises(LookupError, match="an event of type retry_due brings no text"):
            Transcript().words(Heard(seq=1))
