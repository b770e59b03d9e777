"""What becomes of an answer that a person stops: what the model had written is kept, and the next request shows it."""

from __future__ import annotations

import pytest

from tests.support.conversation import Conversation, asking, call, talking
from turnwise.states import (
    BranchSwitched,
    Cancelling,
    Closed,
    CloseRequested,
    DeadlineReached,
    EffectFailed,
    Heard,
    Idle,
    LlmFailed,
    LlmRequesting,
    LlmResponse,
    LlmStopped,
    RequestLlm,
    Resumed,
    Rewound,
    StartTimer,
    Usage,
    UserCancel,
)

SPENT = Usage(input_tokens=7, output_tokens=3, cost=0.01, estimated=True)


def stopping(**rules: object) -> Conversation:
    """A conversation whose model was told to stop, and has not said yet what it had written."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.happens(UserCancel)
    return conversation


class TestAStoppedAnswer:
    """P8: what had come of it."""

    def test_its_text_is_kept_as_the_message_of_the_model(self) -> None:
        """The text stands in the transcript, marked, and is the text of the turn. Nothing is delivered."""
        conversation = stopping()

        conversation.model_stops("A table for", thinking="They are two.", usage=SPENT, model="m")

        message = conversation.transcript[-1]
        assert (message.role, message.text, message.thinking) == ("assistant", "A table for", "They are two.")
        assert (message.stopped, message.model, message.deliveries) == ("cancelled", "m", ())
        ended = conversation.ended
        assert (ended.status, conversation.words(ended.final_content)) == ("cancelled", ["A table for"])
        assert (ended.usage, ended.silent, conversation.delivered()) == (SPENT, True, [])

    def test_what_a_tool_was_to_say_is_kept_as_that(self) -> None:
        """It is the message of the model, too, and says that a tool was to say it. Nothing is delivered."""
        conversation = stopping(text="thought")

        conversation.model_stops("A table for", spoken=True)

        message = conversation.transcript[-1]
        assert (message.text, message.stopped, message.spoken) == ("A table for", "cancelled", True)
        assert conversation.words(conversation.ended.final_content) == ["A table for"]
        assert (conversation.ended.user_response, conversation.delivered()) == ((), [])

    @pytest.mark.parametrize("content", ["", " \n"])
    def test_an_answer_without_a_text_leaves_nothing(self, content: str) -> None:
        """A model that had only thought has said nothing."""
        conversation = stopping()

        conversation.model_stops(content, thinking="Well.")

        assert conversation.roles() == ["user"]
        assert conversation.ended.final_content is None

    def test_what_it_cost_counts(self) -> None:
        """The turn has cost what was spent until then, in the record and in the sum."""
        conversation = stopping()

        conversation.model_stops("", usage=SPENT)

        assert conversation.ended.usage == SPENT

    def test_a_close_keeps_it_too(self) -> None:
        """The conversation closes once the model has said what it had written."""
        conversation = Conversation()
        conversation.says()
        conversation.happens(CloseRequested)

        conversation.model_stops("A table for")

        conversation.rests_in(Closed)
        assert conversation.transcript[-1].text == "A table for"

    def test_a_queued_message_begins_the_next_turn_behind_it(self) -> None:
        """What waited is asked as soon as the answer has stopped; the next request shows both."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.says("For three")
        conversation.happens(UserCancel)

        conversation.model_stops("A table for")

        conversation.rests_in(LlmRequesting)
        assert [message.text for message in conversation.transcript] == ["Hello", "A table for", "For three"]

    def test_a_sub_agent_tells_its_parent_what_it_had_written(self) -> None:
        """The outcome is the text, and the status says that it was stopped."""
        conversation = stopping(role="sub_agent")

        conversation.model_stops("Found so far")

        (told,) = (effect for effect in conversation.step.effects if effect.type == "notify_parent")
        assert (told.status, conversation.words(told.said)) == ("cancelled", ["Found so far"])


class TestWhatElseMayCome:
    """The answer of the model may come first, and there may be none."""

    def test_a_response_that_was_complete_is_kept_whole(self) -> None:
        """P7: it was on its way when the user stopped it. Its text is kept, and none of its calls runs."""
        conversation = stopping()

        conversation.model_calls(call("a"), talking("b"), content="I will look.")

        conversation.rests_in(Idle)
        assert conversation.transcript[1].stopped is None
        assert conversation.errors() == ["a", "b"]
        assert conversation.words(conversation.ended.final_content) == ["I will look."]

    def test_a_failure_leaves_nothing(self) -> None:
        """The turn was cancelled, and did not fail."""
        for kind in (LlmFailed, EffectFailed):
            conversation = stopping()

            conversation.happens(
                kind, effect_id=conversation.flying(RequestLlm), kind="network", sentence="It is gone."
            )

            conversation.rests_in(Idle)
            assert conversation.ended.status == "cancelled"

    def test_a_model_that_does_not_stop_delays_it_no_longer_than_the_deadline(self) -> None:
        """P8: the turn ends without what was written, and what comes later changes nothing."""
        conversation = stopping()
        late = conversation.flying(RequestLlm)

        conversation.happens(DeadlineReached, effect_id=conversation.flying(StartTimer))

        conversation.rests_in(Idle)
        assert conversation.happens(LlmStopped, effect_id=late, content="Late").ignored
        assert conversation.happens(LlmResponse, effect_id=late, content="Late").ignored

    def test_a_process_that_dies_meanwhile_takes_it_along(self) -> None:
        """Nobody knows what was written, and the model is not asked again."""
        conversation = stopping()

        conversation.happens(Resumed, open=tuple(conversation.in_flight()))

        conversation.rests_in(Idle)
        assert conversation.requests()[1:] == []

    def test_a_deadline_that_begins_again_goes_on_waiting(self) -> None:
        """A process takes the timer over; the model is being stopped elsewhere."""
        conversation = stopping()

        conversation.happens(Resumed, open=(conversation.flying(StartTimer),))

        conversation.rests_in(Cancelling)

    def test_a_second_cancel_changes_nothing(self) -> None:
        """P10: it is stopping already."""
        assert stopping().happens(UserCancel).ignored

    def test_a_model_may_stop_by_itself(self) -> None:
        """Whoever carries the request out may end it; the turn ends as if a person had cancelled it."""
        conversation = Conversation()
        conversation.says()

        conversation.model_stops("A table for")

        assert conversation.ended.status == "cancelled"
        assert conversation.ended.final_content == Heard(seq=conversation.state.book.seq)


class TestWhatTheUserHeard:
    """P8: a cancel, or a message that interrupts, tells it, and the rest is cut."""

    def test_a_stopped_answer_is_cut(self) -> None:
        """In the transcript and in the turn. The model reads what was heard."""
        conversation = Conversation()
        conversation.says()
        conversation.happens(UserCancel, heard="a table for two")

        conversation.model_stops("A **table** for two. And for three.")

        message = conversation.transcript[-1]
        assert (message.text, message.heard) == ("A **table** for two.", "A **table** for two.")
        assert conversation.said.kept_words(conversation.ended.final_content) == "A **table** for two."

    def test_a_turn_that_is_over_is_cut_too(self) -> None:
        """A voice speaks on when the model has ended."""
        conversation = Conversation()
        conversation.says()
        conversation.model_says("One. Two.")

        conversation.cancels(heard="One.")

        conversation.rests_in(Idle)
        assert [(m.text, m.heard, m.deliveries) for m in conversation.transcript[1:]] == [("One.", "One.", ("One.",))]

    def test_nothing_was_heard(self) -> None:
        """Of a message and of a speech."""
        conversation = Conversation(text="fallback")
        conversation.says()
        conversation.model_calls(talking())
        conversation.tool_talks("talk", "It rains.")
        conversation.happens(UserCancel, heard="")
        conversation.model_stops("Now you know.")

        result, message = conversation.transcript[-2:]
        assert (result.deliveries, result.heard) == ((), "")
        assert (message.text, message.heard) == ("", "")

    def test_what_was_said_before_counts_as_heard(self) -> None:
        """A client tells the words of the last text, or of all texts of the turn."""
        for heard in ("Two three", "One. Two three"):
            conversation = Conversation(text="fallback")
            conversation.says()
            conversation.model_calls(talking())
            conversation.tool_talks("talk", "One.")
            conversation.model_calls(talking())
            conversation.tool_talks("talk", "Two three four.")

            conversation.cancels(heard=heard)

            first, second = (message for message in conversation.transcript if message.role == "tool")
            assert (first.deliveries, first.heard) == (("One.",), None)
            assert (second.deliveries, second.heard) == (("Two three",), "Two three")

    def test_what_was_never_said_is_quoted(self) -> None:
        """Nothing is cut by it."""
        conversation = Conversation()
        conversation.says()
        conversation.model_says("It costs 5 dollars.")

        conversation.cancels(heard="It costs five")

        assert conversation.transcript[-1].text == "It costs 5 dollars."
        assert conversation.transcript[-1].heard == "It costs five"

    def test_it_is_cut_in_the_branch_that_is_left(self) -> None:
        """The conversation goes back before the model has stopped, and returns."""
        conversation = Conversation()
        conversation.says()
        conversation.happens(UserCancel, heard="One.")
        conversation.happens(Rewound, before=1, branch=0)
        conversation.model_stops("One. Two.")
        assert conversation.transcript == ()

        conversation.happens(BranchSwitched, turn=1, branch=conversation.state.book.branch)

        assert [message.text for message in conversation.transcript] == ["Hello", "One."]
        assert conversation.said.kept_words(Heard(seq=conversation.transcript[-1].seq)) == "One."

    def test_what_is_hidden_is_not_cut(self) -> None:
        """Nor what is shown in its place, which was said before it."""
        conversation = Conversation()
        for said in ("One. Two.", "Three. Four."):
            conversation.says()
            conversation.model_says(said)
        conversation.happens(Rewound, before=2, branch=0)

        conversation.cancels(heard="One.")
        conversation.happens(BranchSwitched, turn=2, branch=conversation.state.book.branch)

        assert [message.text for message in conversation.transcript[1::2]] == ["One. Two.", "Three. Four."]

    def test_another_turn_than_was_meant_is_not_cut(self) -> None:
        """P40: a click that comes late."""
        conversation = Conversation()
        conversation.says()
        conversation.model_says("One. Two.")

        assert conversation.happens(UserCancel, turn=2, heard="One.").ignored


class TestAMessageThatInterrupts:
    """It stops the turn, tells what was heard of it, and begins the next one."""

    def test_it_waits_for_the_model_to_stop(self) -> None:
        """One request does all of it."""
        conversation = Conversation()
        conversation.says()

        conversation.says("For three", when_busy="interrupt", heard="A table")
        conversation.model_stops("A table for two.")

        conversation.rests_in(LlmRequesting)
        assert conversation.ended.status == "cancelled"
        assert [message.text for message in conversation.transcript] == ["Hello", "A table", "For three"]

    def test_it_stops_tools_and_questions(self) -> None:
        """As a cancel does."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("look")
        conversation.says("No", when_busy="interrupt")
        conversation.rests_in(Cancelling)
        conversation.tool_stops("look")
        conversation.rests_in(LlmRequesting)
        conversation.model_calls(asking())
        conversation.tool_asks()

        conversation.says("Never mind", when_busy="interrupt")

        conversation.rests_in(LlmRequesting)
        assert conversation.ended.status == "cancelled"

    def test_at_rest_it_is_a_message(self) -> None:
        """And what was not heard of the turn before is cut."""
        conversation = Conversation()
        conversation.says()
        conversation.model_says("One. Two.")

        conversation.says("Stop", when_busy="interrupt", heard="One.")

        conversation.rests_in(LlmRequesting)
        assert [message.text for message in conversation.transcript] == ["Hello", "One.", "Stop"]

    def test_a_sub_agent_has_but_one_task(self) -> None:
        """The message waits."""
        conversation = Conversation(role="sub_agent")
        conversation.says()

        conversation.says("No", when_busy="interrupt")

        conversation.rests_in(LlmRequesting)

    def test_only_such_a_message_tells_what_was_heard(self) -> None:
        """Any other one leaves the turn as it is."""
        with pytest.raises(ValueError, match="interrupts"):
            Conversation().says("Hello", when_busy="queue", heard="One.")
