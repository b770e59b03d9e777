"""An agent whose text is its thinking: the user receives what a tool says, at once, and nothing else."""

from typing import Any

import pytest

from turnwise.states import (
    Abort,
    Cancelling,
    DeliverToUser,
    ExecuteTool,
    Failed,
    Idle,
    Limits,
    LlmRequesting,
    PersistMessage,
    PersistToolResults,
    RequestLlm,
    Speech,
    StartTimer,
    Texts,
    ToolComplete,
    ToolExecuting,
    ToolResult,
    presets,
)
from turnwise.testing.history import History

from ..support.conversation import Conversation, asking, call, responding, talking

TEXTS = Texts()


def talking_agent(**rules: Any) -> Conversation:
    """A conversation under `talk`, whose model has been asked."""
    conversation = Conversation(presets.talk(), **rules)
    conversation.says("Clean up, and tell me how it goes")
    return conversation


def talks(conversation: Conversation, text: str, call_id: str = "talk") -> None:
    """The model talks to the user in a response of its own."""
    conversation.model_calls(talking(call_id))
    conversation.tool_talks(call_id, text)


class TestTextIsThought:
    """B1: the model's text is never delivered."""

    def test_the_text_of_the_model_is_not_delivered(self) -> None:
        """B1: neither a text beside a call nor the text that ends the turn is delivered."""
        conversation = talking_agent()
        conversation.model_calls(talking(), content="I will greet them first.")
        conversation.tool_talks("talk", "Hello")

        conversation.model_says("That went well.")

        assert conversation.delivered() == ["Hello"]
        assert conversation.words(conversation.ended.final_content) == ["That went well."]

    def test_no_ending_of_ours_is_delivered_either(self) -> None:
        """B1: the policy's sentence about the limit is not delivered."""
        conversation = talking_agent(limits=Limits(requests=1))

        conversation.model_calls("bash")

        assert conversation.delivered() == []
        assert (conversation.ended.status, conversation.ended.silent) == ("incomplete", True)

    def test_the_last_text_ends_the_turn(self) -> None:
        """B7: a text without calls ends the turn, without a nudge."""
        conversation = talking_agent()
        talks(conversation, "Hello")

        conversation.model_says("Done.")

        conversation.rests_in(Idle)
        assert conversation.ended.status == "completed"
        assert conversation.wanted() == [PersistMessage]

    def test_the_number_of_requests_is_bounded(self) -> None:
        """B7: a model that goes on talking is stopped at the limit; what it said stays delivered."""
        conversation = talking_agent(limits=Limits(requests=3))

        while not isinstance(conversation.state, Idle):
            conversation.model_calls(talking())
            if conversation.tools():
                conversation.tool_talks("talk", "And another thing")

        assert len(conversation.requests()) == 3
        assert conversation.delivered() == ["And another thing"] * 2
        assert conversation.ended.status == "incomplete"


class TestOrder:
    """B2: what is said before a tool runs is delivered before it runs."""

    @pytest.mark.parametrize("parallel", [1, 3])
    def test_talk_work_talk_in_one_response(self, parallel: int) -> None:
        """B2: for talk, bash and talk in one response, the first delivery stands before the start of bash, and the
        second after its end."""
        conversation = talking_agent(parallel=parallel)

        conversation.model_calls(talking("a"), "bash", talking("b"))
        assert conversation.tools() == ["a"]
        conversation.tool_talks("a", "I clean up now.")
        assert conversation.wanted() == [PersistToolResults, DeliverToUser, ExecuteTool]
        assert conversation.tools() == ["bash"]
        conversation.tool_ends("bash")
        assert conversation.wanted() == [PersistToolResults, ExecuteTool]
        conversation.tool_talks("b", "It is clean.")

        assert conversation.wanted() == [PersistToolResults, DeliverToUser, RequestLlm]
        assert conversation.delivered() == ["I clean up now.", "It is clean."]

    def test_talk_work_talk_in_three_responses(self) -> None:
        """B2: the order is the same in three responses with one call each."""
        conversation = talking_agent()

        talks(conversation, "I clean up now.")
        assert conversation.wanted() == [PersistToolResults, DeliverToUser, RequestLlm]
        conversation.model_calls("bash")
        conversation.tool_ends("bash")
        talks(conversation, "It is clean.")

        assert conversation.delivered() == ["I clean up now.", "It is clean."]

    def test_deliveries_of_a_turn_are_numbered(self) -> None:
        """Deliveries are numbered within their turn, and the next turn counts from 1 again."""
        conversation = talking_agent()
        talks(conversation, "a")
        talks(conversation, "b")
        conversation.model_says("Done.")
        conversation.says("Go on")

        talks(conversation, "c")

        effects = [effect for entry in conversation.history.log for effect in entry.effects]
        numbers = [(each.turn, each.ordinal) for each in effects if isinstance(each, DeliverToUser)]
        assert numbers == [(1, 1), (1, 2), (2, 1)]

    def test_one_result_may_say_several_things(self) -> None:
        """Several speeches in one result are delivered one by one, in order."""
        conversation = talking_agent()
        conversation.model_calls(talking())

        conversation.tool_talks("talk", "a", "b")

        assert conversation.wanted() == [PersistToolResults, DeliverToUser, DeliverToUser, RequestLlm]
        assert conversation.delivered() == ["a", "b"]

    def test_a_tool_that_is_not_exclusive_may_not_talk(self) -> None:
        """A tool that is not exclusive may not speak at once, since the order must not depend on which tool was
        faster."""
        conversation = talking_agent(parallel=2)
        conversation.model_calls(responding(), "bash")

        conversation.tool_talks("respond", "a")

        assert conversation.results() == {"respond": TEXTS.act_not_exclusive}
        assert conversation.delivered() == []
        assert conversation.tools() == ["bash"]

    def test_talk_and_speech_for_the_end_keep_apart(self) -> None:
        """Under `each`, speech for the end of the turn follows everything that was said at once."""
        conversation = talking_agent()
        conversation.model_calls(responding())
        conversation.tool_responds("respond", "In the end")
        talks(conversation, "At once")

        conversation.model_says("Done.")

        assert conversation.delivered() == ["At once", "In the end"]
        assert conversation.words(*conversation.ended.user_response) == ["At once", "In the end"]

    def test_the_same_text_twice_is_two_deliveries(self) -> None:
        """B10: the same text said twice is delivered twice."""
        conversation = talking_agent()
        conversation.model_calls(
            talking("a", arguments='{"message": "Hm"}'), talking("b", arguments='{"message": "Hm"}')
        )
        conversation.tool_talks("a", "Hm")
        conversation.tool_talks("b", "Hm")

        conversation.model_says("Done.")

        assert conversation.delivered() == ["Hm", "Hm"]
        assert conversation.words(*conversation.ended.user_response) == ["Hm", "Hm"]
        assert len({delivered.effect_id for delivered in conversation.ended.deliveries}) == 2

    def test_the_same_text_twice_is_not_a_repeated_call(self) -> None:
        """B10, J8: speech is never a repeated call."""
        conversation = talking_agent(repeats=presets.reply_flow().repeats)
        talks(conversation, "Hm", "a")

        talks(conversation, "Hm", "b")

        assert conversation.delivered() == ["Hm", "Hm"]


class TestWords:
    """Texts are delivered unchanged."""

    @pytest.mark.parametrize(
        "text",
        [
            'say "yes"',
            "back\\slash \\n",
            "one\ntwo\r\n\tthree",
            "日本語 مرحبا 👩‍👩‍👧",
            '{"message": "hi"}',
            " a ",
            "</talk>",
        ],
    )
    def test_a_text_arrives_byte_by_byte(self, text: str) -> None:
        """B3: quotes, backslashes, newlines, emoji and text that looks like JSON are delivered unchanged."""
        conversation = talking_agent()

        talks(conversation, text)

        assert conversation.delivered() == [text]

    @pytest.mark.parametrize("text", ["", "  \n"])
    def test_an_empty_message_is_delivered(self, text: str) -> None:
        """B5: in this preset an empty text is delivered, and the model reads that it was."""
        conversation = talking_agent()

        talks(conversation, text)

        assert conversation.delivered() == [text]
        assert conversation.results() == {"talk": "done"}

    def test_an_empty_message_is_refused_elsewhere(self) -> None:
        """B5: in other presets an empty text is an error result."""
        conversation = Conversation()
        conversation.says()

        talks(conversation, "")

        assert conversation.delivered() == []
        assert conversation.results() == {"talk": TEXTS.nothing_said}

    def test_the_acknowledgement_is_a_setting(self) -> None:
        """B11: the acknowledgement is a text of the policy, "Message delivered to user" by default."""
        assert Texts().acknowledgement == "Message delivered to user"
        assert presets.talk().texts.acknowledgement == "Message delivered to user"
        assert presets.talk().speech.never_fail


class TestSilentTurns:
    """B6: a turn in which nothing is said."""

    def test_nothing_is_delivered(self) -> None:
        """B6: nothing is delivered, and the turn is silent."""
        conversation = talking_agent()

        conversation.model_says("They did not ask for anything.")

        assert conversation.delivered() == []
        assert (conversation.ended.silent, conversation.ended.status) == (True, "completed")

    def test_a_turn_that_talked_is_not_silent(self) -> None:
        """B6: a turn with one delivery, even an empty one, is not silent."""
        conversation = talking_agent()
        talks(conversation, "")

        conversation.model_says("Done.")

        assert not conversation.ended.silent

    def test_by_policy_the_model_is_nudged(self) -> None:
        """B6: if the policy says so, the model is reminded up to `nudges` times, and then the turn ends as it is."""
        conversation = talking_agent(silent="nudge")

        conversation.model_says("Thinking.")
        assert conversation.nudge() == TEXTS.speak
        conversation.model_says("Thinking on.")
        conversation.model_says("Still thinking.")

        conversation.rests_in(Idle)
        assert conversation.ended.silent
        assert len(conversation.requests()) == 3

    def test_a_nudge_that_helped_ends_with_the_next_text(self) -> None:
        """B6: if the model talks after a nudge, its next text ends the turn."""
        conversation = talking_agent(silent="nudge")
        conversation.model_says("Thinking.")
        talks(conversation, "Hello")

        conversation.model_says("Done.")

        conversation.rests_in(Idle)
        assert conversation.delivered() == ["Hello"]

    def test_by_policy_the_text_is_the_fallback(self) -> None:
        """B6: if the policy says so, the last text is delivered when nothing was said."""
        silent, talked = talking_agent(silent="fallback"), talking_agent(silent="fallback")
        talks(talked, "Hello")

        silent.model_says("Nothing to do.")
        talked.model_says("Nothing to do.")

        assert silent.delivered() == ["Nothing to do."]
        assert talked.delivered() == ["Hello"]
        assert silent.ended.user_response == ()

    def test_the_nudge_about_silence_waits_for_the_end_of_the_turn(self) -> None:
        """B6: a response with calls does not lead to a nudge."""
        conversation = talking_agent(silent="nudge")

        conversation.model_calls("bash", content="Working.")
        conversation.tool_ends("bash")

        assert conversation.nudge() is None

    def test_nothing_at_all_ends_silently_too(self) -> None:
        """B6, P30: an empty response ends the turn silently, and no text is made up."""
        conversation = talking_agent()

        conversation.model_says("")

        assert conversation.delivered() == []
        assert (conversation.ended.silent, conversation.ended.status) == (True, "completed")
        assert conversation.ended.final_content is None
        assert [message.text for message in conversation.transcript] == ["Clean up, and tell me how it goes", ""]

    @pytest.mark.parametrize("thinking", ["", "They know it now."])
    def test_who_has_talked_may_end_without_a_word(self, thinking: str) -> None:
        """B7: a model that has talked may end the turn with an empty response."""
        conversation = talking_agent()
        conversation.model_calls(talking())
        conversation.tool_talks("talk", "Good day.")

        conversation.model_says("", thinking=thinking)

        conversation.rests_in(Idle)
        assert (conversation.delivered(), conversation.ended.status) == (["Good day."], "completed")
        assert len(conversation.requests()) == 2

    def test_who_only_thinks_goes_on_where_something_is_missing(self) -> None:
        """A response with only thinking leads to another request, unless everything that is wanted was said."""
        silent = talking_agent()
        answering = Conversation()
        answering.says()
        answering.model_calls(talking())
        answering.tool_talks("talk", "Good day.")

        for conversation in (silent, answering):
            conversation.model_says("", thinking="Let me see.")

            conversation.rests_in(LlmRequesting)
            assert conversation.nudge() is None

    def test_a_sub_agent_is_asked_for_words(self) -> None:
        """P25, J11: a sub-agent is asked for a text, since its text is its result."""
        conversation = Conversation(presets.talk(), role="sub_agent")
        conversation.says()
        conversation.model_calls("look")
        conversation.tool_ends("look")

        conversation.model_says("")

        assert conversation.nudge() == TEXTS.fallback_result


class TestStopped:
    """B8: what was delivered stays delivered, and every call that is left gets a result."""

    def test_a_cancel_between_two_talks(self) -> None:
        """B8: a cancel after the first of three calls stops the second and skips the third."""
        conversation = talking_agent()
        conversation.model_calls(talking("a"), "bash", talking("b"))
        conversation.tool_talks("a", "I clean up now.")
        conversation.cancels()
        assert conversation.wanted() == [Abort, StartTimer]

        conversation.tool_stops("bash")

        conversation.rests_in(Idle)
        assert conversation.delivered() == ["I clean up now."]
        assert conversation.results() == {"a": "done", "bash": TEXTS.cancelled, "b": TEXTS.skipped}
        assert conversation.words(*conversation.ended.user_response) == ["I clean up now."]
        assert (conversation.ended.status, conversation.ended.silent) == ("cancelled", False)

    def test_a_cancel_before_the_talk_ran(self) -> None:
        """B8: a talk that is stopped before it ran delivers nothing."""
        conversation = talking_agent()
        conversation.model_calls(talking())
        conversation.cancels()

        conversation.tool_stops("talk")

        assert conversation.delivered() == []
        assert conversation.results() == {"talk": TEXTS.cancelled}

    def test_a_talk_that_had_truly_finished_is_delivered(self) -> None:
        """A talk that had finished before it was told to stop keeps its result and is delivered."""
        conversation = talking_agent()
        conversation.model_calls(talking("a"), talking("b"))
        conversation.cancels()

        conversation.tool_talks("a", "Hello")

        conversation.rests_in(Idle)
        assert conversation.wanted() == [PersistToolResults, DeliverToUser, Abort]
        assert conversation.results() == {"a": "done", "b": TEXTS.skipped}
        assert [m.undelivered for m in conversation.transcript if m.role == "tool"] == [False, False]

    def test_a_failure_after_a_talk_keeps_it_delivered(self) -> None:
        """S8: what was delivered before a failure stays delivered."""
        conversation = talking_agent()
        talks(conversation, "Hello")

        conversation.model_fails("authentication")

        conversation.rests_in(Failed)
        assert conversation.words(*conversation.ended.user_response) == ["Hello"]
        assert conversation.delivered() == ["Hello"]

    def test_a_deadline_in_the_middle_of_a_talk(self) -> None:
        """B8: a talk that ignores the cancel is not awaited beyond the deadline, and what it says later is not
        delivered."""
        conversation = talking_agent()
        conversation.model_calls(talking())
        late = conversation.running("talk")
        conversation.cancels()
        conversation.rests_in(Cancelling)
        conversation.timer_rings()

        result = ToolResult(text="done", acts=(Speech(text="Hello", when="now"),))
        step = conversation.happens(ToolComplete, effect_id=late, result=result)

        assert step.ignored
        assert conversation.delivered() == []


class TestReplay:
    """B9: a replay delivers nothing and shows the deliveries in order."""

    def test_the_log_tells_the_deliveries_in_order(self) -> None:
        """B9: the same events lead to the same deliveries, with the same ids and the same words."""
        conversation = talking_agent()
        talks(conversation, "a", "a")
        talks(conversation, "b", "b")
        conversation.model_says("Done.")
        replayed = History()

        for entry in conversation.history.log:
            replayed.take(entry.event)

        assert [entry.effects for entry in replayed.log] == [entry.effects for entry in conversation.history.log]
        assert replayed.log[-1].ended == conversation.ended
        assert conversation.words(*(one.said for one in conversation.ended.deliveries)) == ["a", "b"]


class TestTalkBesideOtherCalls:
    """A talk keeps its place among calls of every kind."""

    def test_beside_a_question(self) -> None:
        """B2: what is said before a question is delivered before it is asked."""
        conversation = talking_agent()
        conversation.model_calls(talking(), asking())

        conversation.tool_talks("talk", "One question:")
        assert conversation.wanted() == [PersistToolResults, DeliverToUser, ExecuteTool]
        conversation.tool_asks()

        assert conversation.asked() and conversation.delivered() == ["One question:"]

    def test_beside_a_call_that_must_be_allowed(self) -> None:
        """B2: what is said before an approval is delivered before it is asked for; the calls behind it wait."""
        conversation = talking_agent()
        conversation.model_calls(talking("a"), call("pay", approval=True), talking("b"))

        conversation.tool_talks("a", "I would pay now.")
        assert conversation.wanted() == [PersistToolResults, DeliverToUser]
        conversation.allows("pay")
        conversation.tool_ends("pay")

        conversation.rests_in(ToolExecuting)
        assert (conversation.tools(), conversation.delivered()) == (["b"], ["I would pay now."])

    def test_beside_a_fault(self) -> None:
        """B4: a talk with a fault delivers nothing, and the other one is delivered."""
        conversation = talking_agent()
        conversation.model_calls(talking("a", fault="Invalid input."), talking("b"))

        conversation.tool_talks("b", "Hello")

        conversation.rests_in(LlmRequesting)
        assert conversation.delivered() == ["Hello"]
        assert conversation.results() == {"a": "Invalid input.", "b": "done"}

    def test_a_tool_that_is_no_talk_may_say_something(self) -> None:
        """An application's exclusive tool may speak at once when it has done its work."""
        conversation = talking_agent()
        conversation.model_calls(call("light", exclusive=True, acts=("speech",)))

        conversation.tool_ends("light", "on", acts=[Speech(text="The light is on.", when="now")])

        assert conversation.results() == {"light": "on"}
        assert conversation.delivered() == ["The light is on."]
