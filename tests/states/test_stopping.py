"""What becomes of an answer that a person stops: what the model had written is kept, and the next request shows it."""

from __future__ import annotations

import pytest

from tests.support.conversation import Conversation, call, talking
from turnwise.states import (
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
