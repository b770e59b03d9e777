"""Speech for the end of the turn: what reaches the user, when, and what happens to the model's own text."""

from typing import Any

import pytest

from turnwise.states import (
    Closed,
    DeliverToUser,
    ExecuteTool,
    Failed,
    Heard,
    Idle,
    Limits,
    LlmRequesting,
    PersistMessage,
    PersistToolResults,
    RequestLlm,
    Speech,
    SpeechRules,
    Texts,
    ToolExecuting,
    Usage,
    Verifying,
    VerifyWork,
    WorkComplete,
    presets,
)

from ..support.conversation import Conversation, call, completing, responding

TEXTS = Texts()
EACH = SpeechRules(keep="each")
BOTH_RULES = pytest.mark.parametrize(
    ("speech", "heard"), [(SpeechRules(), ["B"]), (EACH, ["A", "B"])], ids=["last", "each"]
)


def working(**rules: Any) -> Conversation:
    """A conversation under `explicit_response`, whose model has been asked."""
    conversation = Conversation(presets.explicit_response(), **rules)
    conversation.says("Read me it")
    return conversation


def says_by_tool(conversation: Conversation, text: str, call_id: str = "respond") -> None:
    """The model responds to the user in a response of its own."""
    conversation.model_calls(responding(call_id))
    conversation.tool_responds(call_id, text)


def completes(conversation: Conversation, summary: str = "All is done.") -> None:
    """The model claims that the work is complete, and the claim holds."""
    conversation.model_calls(completing())
    conversation.tool_claims(summary=summary)
    conversation.verifier_says(True)


class TestWhatReachesTheUser:
    """Speech is delivered at the end of the turn."""

    def test_what_was_said_is_delivered_once_when_the_work_is_done(self) -> None:
        """S1: one speech and a claim deliver the speech exactly once, apart from `final_content`."""
        conversation = working()

        says_by_tool(conversation, "A")
        assert conversation.delivered() == []
        completes(conversation, "Read it aloud.")

        conversation.rests_in(Idle)
        assert conversation.delivered() == ["A"]
        assert conversation.wanted() == [DeliverToUser]
        assert conversation.words(*conversation.ended.user_response) == ["A"]
        assert conversation.words(conversation.ended.final_content) == ["Read it aloud."]

    def test_what_the_model_wrote_stays_its_final_content(self) -> None:
        """S1: `final_content` is the text of the model, and not what was said by tool."""
        conversation = working()
        conversation.model_calls(responding(), completing(), content="Reading it to the user.")

        conversation.tool_responds("respond", "A")
        conversation.tool_claims()
        conversation.verifier_says(True)

        assert conversation.words(conversation.ended.final_content) == ["Reading it to the user."]
        assert conversation.delivered() == ["A"]

    def test_without_speech_the_final_text_is_the_reply(self) -> None:
        """S2: if the tool was never called, the reply is `final_content`."""
        conversation = working(nudges=0)

        conversation.model_says("Seven tweets, read aloud.")

        assert conversation.delivered() == ["Seven tweets, read aloud."]
        assert conversation.ended.user_response == ()
        assert not conversation.ended.silent

    @BOTH_RULES
    def test_of_two_speeches_in_one_response(self, speech: SpeechRules, heard: list[str]) -> None:
        """S3: under `last` the second of two speeches is delivered, under `each` both are, in call order; both are
        recorded."""
        conversation = working(speech=speech)
        conversation.model_calls(responding("a"), responding("b"))
        conversation.tool_responds("a", "A")
        conversation.tool_responds("b", "B")
        assert conversation.words(*(one.said for one in conversation.rests_in(LlmRequesting).turn.said)) == ["A", "B"]

        completes(conversation)

        assert conversation.delivered() == heard
        assert conversation.words(*conversation.ended.user_response) == heard

    @BOTH_RULES
    def test_of_two_speeches_in_two_responses(self, speech: SpeechRules, heard: list[str]) -> None:
        """S3: the rule is the same for speeches in two responses."""
        conversation = working(speech=speech)
        says_by_tool(conversation, "A", "a")
        says_by_tool(conversation, "B", "b")

        completes(conversation)

        assert conversation.delivered() == heard

    @BOTH_RULES
    def test_of_two_speeches_in_one_result(self, speech: SpeechRules, heard: list[str]) -> None:
        """S3: an application's tool may say two things in one result; they keep its order."""
        conversation = working(speech=speech)
        conversation.model_calls(responding())
        conversation.tool_responds("respond", "A", "B")

        completes(conversation)

        assert conversation.delivered() == heard

    @BOTH_RULES
    def test_the_last_is_the_last_in_call_order(self, speech: SpeechRules, heard: list[str]) -> None:
        """S14: with tools in parallel, `last` means the last in call order, not the last to finish."""
        conversation = working(speech=speech, parallel=2)
        conversation.model_calls(responding("a"), responding("b"))
        conversation.tool_responds("b", "B")
        conversation.tool_responds("a", "A")

        completes(conversation)

        assert conversation.delivered() == heard

    def test_two_conversations_do_not_hear_each_other(self) -> None:
        """S14: nothing said in one conversation is delivered in another one."""
        one, other = working(), working()
        says_by_tool(one, "To one")
        says_by_tool(other, "To the other")

        completes(other)
        completes(one)

        assert (one.delivered(), other.delivered()) == (["To one"], ["To the other"])

    def test_speech_beside_a_work_tool_does_not_end_the_turn(self) -> None:
        """S4: a speech beside a work tool does not end the turn, and is still delivered at its end."""
        conversation = working()
        conversation.model_calls(responding(), "work")
        conversation.tool_responds("respond", "A")
        assert conversation.wanted() == [PersistToolResults, ExecuteTool]
        conversation.tool_ends("work")

        conversation.rests_in(LlmRequesting)
        completes(conversation)

        assert conversation.delivered() == ["A"]

    def test_the_reply_is_what_was_said_in_this_turn(self) -> None:
        """S5: a speech in the first request and a claim in the third give a reply that is the speech."""
        conversation = working()
        says_by_tool(conversation, "A")
        conversation.model_calls("work")
        conversation.tool_ends("work")

        completes(conversation)

        assert len(conversation.requests()) == 3
        assert conversation.delivered() == ["A"]

    def test_what_an_earlier_turn_said_is_never_used_again(self) -> None:
        """S5: a turn without speech has its final text as its reply, not the speech of the turn before."""
        conversation = working(nudges=0)
        says_by_tool(conversation, "A")
        completes(conversation)
        conversation.says("And now?")

        conversation.model_says("Nothing new.")

        assert conversation.delivered() == ["A", "Nothing new."]
        assert conversation.ended.user_response == ()

    def test_a_status_text_never_takes_the_place_of_the_readback(self) -> None:
        """S6: the speech is delivered, and a later text such as "Work was already marked complete" is not."""
        conversation = working()
        says_by_tool(conversation, "Tweet one. Tweet two. Tweet three.")
        conversation.model_calls(completing())
        conversation.tool_claims()
        conversation.verifier_says(False, "Say it once more.")
        conversation.model_calls(completing(), content="Work was already marked complete. All is saved.")
        conversation.tool_claims()

        conversation.verifier_says(True)

        assert conversation.delivered() == ["Tweet one. Tweet two. Tweet three."]
        assert conversation.words(conversation.ended.final_content) == [
            "Work was already marked complete. All is saved."
        ]

    def test_a_status_text_beside_a_claim_that_does_not_count_is_not_delivered_either(self) -> None:
        """S6: nor is such a text delivered if the claim stood beside a failing call."""
        conversation = working(nudges=0)
        conversation.model_calls(responding(), completing(), "save")
        conversation.tool_responds("respond", "The readback")
        conversation.tool_claims()
        conversation.tool_ends("save", "No space left.", error=True)

        conversation.model_says("Work was already marked complete.")

        assert conversation.delivered() == ["The readback"]

    @pytest.mark.parametrize("name", ["respond_to_user", "speak_to_user", "x:respond_to_user", "announce"])
    def test_any_tool_may_speak_whatever_its_name(self, name: str) -> None:
        """S16: a tool of any name may speak if it declares that; the machine knows no names."""
        conversation = working()

        says_by_tool(conversation, "A", name)
        completes(conversation)

        assert conversation.delivered() == ["A"]

    def test_a_tool_that_does_not_declare_it_may_not_speak(self) -> None:
        """An act that the tool did not declare gives an error result, and none of its acts is carried out."""
        conversation = working(nudges=0)
        conversation.model_calls("work")

        conversation.tool_responds("work", "A")

        assert conversation.results() == {"work": TEXTS.act_not_declared}
        conversation.model_says("Done.")
        assert conversation.delivered() == ["Done."]

    def test_the_words_of_a_tool_that_failed_are_not_said(self) -> None:
        """The acts of an error result are not carried out."""
        conversation = working(nudges=0)
        conversation.model_calls(responding())

        conversation.tool_ends("respond", "The voice is gone.", error=True, acts=[Speech(text="A")])
        conversation.model_says("I could not speak.")

        assert conversation.delivered() == ["I could not speak."]

    def test_an_answer_in_text_and_speech_are_both_for_the_user_where_text_is_the_reply(self) -> None:
        """Under `text="reply"` both the speech and the text are delivered, in this order; `user_response` holds the
        speech alone."""
        conversation = Conversation()
        conversation.says()
        says_by_tool(conversation, "A")

        conversation.model_says("B")

        assert conversation.delivered() == ["A", "B"]
        assert conversation.words(*conversation.ended.user_response) == ["A"]
        assert [effect.ordinal for effect in conversation.step.effects if isinstance(effect, DeliverToUser)] == [1, 2]


class TestSpeechWithoutText:
    """S7: under `empty="error"` speech without text is an error result."""

    @pytest.mark.parametrize("text", ["", "  ", "\n\t", "TOOL find()\n TOOL look()"])
    def test_it_is_an_error(self, text: str) -> None:
        """S7, J13: an empty text, blanks, or lines with the marker alone give an error result, and nothing is
        recorded."""
        conversation = working(nudges=0, marker="TOOL")
        conversation.model_calls(responding())

        conversation.tool_responds("respond", text)

        assert conversation.results() == {"respond": TEXTS.nothing_said}
        assert conversation.errors() == ["respond"]
        assert conversation.rests_in(LlmRequesting).turn.said == ()

    def test_what_was_said_before_is_kept(self) -> None:
        """S7: an empty speech does not replace an earlier one."""
        conversation = working()
        says_by_tool(conversation, "A", "a")
        says_by_tool(conversation, " ", "b")

        completes(conversation)

        assert conversation.delivered() == ["A"]

    def test_a_claim_beside_it_does_not_count(self) -> None:
        """S7, S9: a claim beside an empty speech does not count, since that call failed."""
        conversation = working()
        conversation.model_calls(responding(), completing())
        conversation.tool_responds("respond", "")

        conversation.tool_claims()

        assert conversation.rests_in(LlmRequesting).turn.claim is None

    def test_where_empty_speech_is_allowed_it_is_delivered(self) -> None:
        """S7: under `empty="deliver"` an empty speech is delivered."""
        conversation = working(speech=SpeechRules(empty="deliver"))

        says_by_tool(conversation, "")
        completes(conversation)

        assert conversation.delivered() == [""]
        assert conversation.errors() == []


class TestStoppedTurns:
    """Speech of a cancelled or failed turn stays in the record and is not delivered."""

    def test_a_cancelled_turn_delivers_nothing(self) -> None:
        """S8, S21: a cancelled turn delivers nothing; its speech is recorded as undelivered."""
        conversation = working()
        says_by_tool(conversation, "A")

        conversation.cancels()

        assert conversation.delivered() == []
        assert (conversation.ended.user_response, conversation.ended.silent) == ((), True)
        assert [message.undelivered for message in conversation.transcript if message.role == "tool"] == [True]

    def test_a_cancelled_check_delivers_nothing(self) -> None:
        """S8: a turn that is cancelled during the check of its claim delivers nothing."""
        conversation = working()
        conversation.model_calls(responding(), completing())
        conversation.tool_responds("respond", "A")
        conversation.tool_claims()

        conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.delivered() == []
        assert conversation.ended.status == "cancelled"

    def test_speech_that_comes_after_the_cancel_stays_in_the_record(self) -> None:
        """S8: a tool that had finished keeps its result, but its speech is not delivered."""
        conversation = working()
        conversation.model_calls(responding())
        conversation.cancels()

        conversation.tool_responds("respond", "A")

        conversation.rests_in(Idle)
        assert conversation.results() == {"respond": "done"}
        assert conversation.delivered() == []

    def test_a_failed_turn_delivers_nothing(self) -> None:
        """S8, S21: a turn that rests in Failed delivers nothing of its speech."""
        conversation = working(on_failure="fail")
        says_by_tool(conversation, "A")

        conversation.model_fails("authentication")

        conversation.rests_in(Failed)
        assert conversation.wanted() == []
        assert conversation.ended.user_response == ()

    def test_a_turn_that_ends_with_an_error_reply_delivers_that_alone(self) -> None:
        """S8: a turn that ends with an error reply delivers only that reply."""
        conversation = working(on_failure="reply")
        says_by_tool(conversation, "A")

        conversation.model_fails("authentication")

        conversation.rests_in(Idle)
        assert conversation.delivered() == [f"{TEXTS.error} The model is not well."]
        assert (conversation.ended.status, conversation.ended.user_response) == ("failed", ())

    def test_a_closed_conversation_delivers_nothing(self) -> None:
        """S8: a turn that is ended by a close delivers nothing."""
        conversation = working()
        says_by_tool(conversation, "A")

        conversation.closes()

        conversation.rests_in(Closed)
        assert conversation.delivered() == []

    def test_a_failed_turn_that_is_tried_again_does_not_say_it_after_all(self) -> None:
        """S5, S8: a retry does not deliver the speech of the failed turn."""
        conversation = working(on_failure="fail", nudges=0)
        says_by_tool(conversation, "A")
        conversation.model_fails("authentication")
        conversation.tries_again()

        conversation.model_says("B")

        assert conversation.delivered() == ["B"]


class TestEndingsThatDeliver:
    """S21: a turn that ends at a limit delivers what was said; nothing is delivered before its end."""

    def test_until_the_turn_ends_nothing_is_delivered(self) -> None:
        """S21: speech for the end of the turn is not delivered before the turn ends."""
        conversation = working()
        says_by_tool(conversation, "A", "a")
        says_by_tool(conversation, "B", "b")
        conversation.model_calls(completing())
        conversation.tool_claims()

        conversation.rests_in(Verifying)
        assert conversation.delivered() == []
        assert all(entry.ended is None for entry in conversation.history.log)

    def test_a_turn_at_its_limit_delivers_what_was_said(self) -> None:
        """S21: at the limit the speech is delivered, and not the sentence about the limit."""
        conversation = working(limits=Limits(requests=2))
        says_by_tool(conversation, "A")

        conversation.model_calls("work")

        assert conversation.ended.status == "incomplete"
        assert conversation.delivered() == ["A"]
        assert conversation.words(conversation.ended.final_content) == [TEXTS.limit]

    def test_a_turn_at_its_limit_that_said_nothing_delivers_its_ending(self) -> None:
        """S2, S21: at the limit a turn without speech delivers its `final_content`."""
        conversation = working(limits=Limits(requests=1))

        conversation.model_calls("work")

        assert conversation.delivered() == [TEXTS.limit]

    def test_once_the_tokens_are_spent_what_was_said_is_delivered(self) -> None:
        """S21: a turn whose tokens are used up delivers its speech; a claim in the last response is not taken."""
        conversation = working(limits=Limits(tokens=100))
        says_by_tool(conversation, "A")

        conversation.model_calls(completing(), usage=Usage(input_tokens=100))

        assert conversation.results() == {"respond": "done", "complete": TEXTS.not_run}
        assert (conversation.ended.status, conversation.delivered()) == ("incomplete", ["A"])


class TestNudges:
    """S10: text without tools does not complete the work; the model is reminded, twice at most."""

    def test_text_without_tools_is_answered_with_a_nudge(self) -> None:
        """S10: a text without tools leads to a nudge that names `respond_to_user` first and then
        `mark_work_complete`."""
        conversation = working()

        conversation.model_says("I have read it.")

        nudge = conversation.nudge()
        assert conversation.wanted() == [PersistMessage, RequestLlm]
        assert nudge == TEXTS.nudge
        assert nudge.index("respond_to_user") < nudge.index("mark_work_complete") < nudge.index("Otherwise")

    def test_the_nudge_is_a_setting(self) -> None:
        """S10: the policy words the nudge."""
        conversation = working(texts=Texts(nudge="Fertig?"))

        conversation.model_says("I have read it.")

        assert conversation.nudge() == "Fertig?"

    def test_after_two_nudges_the_turn_ends_with_the_text(self) -> None:
        """S10: after two nudges a turn without speech ends with the model's own text."""
        conversation = working()
        conversation.model_says("One")
        conversation.model_says("Two")
        conversation.rests_in(LlmRequesting)

        conversation.model_says("Three")

        conversation.rests_in(Idle)
        assert (conversation.ended.status, conversation.delivered()) == ("incomplete", ["Three"])
        assert [request.nudge is None for request in conversation.requests()] == [True, False, False]

    def test_after_two_nudges_what_was_said_is_delivered(self) -> None:
        """S10, S21: after two nudges a turn with speech delivers the speech, and the text stays in the record."""
        conversation = working()
        says_by_tool(conversation, "A")

        for text in ("One", "Two", "Three"):
            conversation.model_says(text)

        assert conversation.delivered() == ["A"]

    def test_the_nudges_of_a_turn_are_counted_together(self) -> None:
        """S10: nudges are counted over the whole turn, also with tools between them."""
        conversation = working()
        conversation.model_says("One")
        conversation.model_calls("work")
        conversation.tool_ends("work")
        assert conversation.nudge() is None
        conversation.model_says("Two")

        conversation.model_says("Three")

        conversation.rests_in(Idle)

    def test_a_nudge_is_ephemeral(self) -> None:
        """S10: a nudge is in its request, and neither in the transcript nor in the next turn's request."""
        conversation = working()
        conversation.model_says("One")
        says_by_tool(conversation, "A")
        completes(conversation)

        conversation.says("Next")

        assert all(TEXTS.nudge not in message.text for message in conversation.transcript)
        assert conversation.roles() == ["user", "assistant", *["assistant", "tool"] * 2, "user"]
        assert conversation.nudge() is None

    def test_a_request_that_is_sent_again_is_nudged_again(self) -> None:
        """S10: a retry of a request holds its nudge again."""
        conversation = working()
        conversation.model_says("One")

        conversation.model_fails()
        conversation.timer_rings()

        assert conversation.nudge() == TEXTS.nudge

    def test_an_empty_response_is_nudged_like_a_text(self) -> None:
        """S10: an empty response leads to a nudge too."""
        conversation = working()

        conversation.model_says("")

        assert conversation.nudge() == TEXTS.nudge

    def test_with_the_last_request_gone_there_is_no_nudge(self) -> None:
        """S10: if no request is left, the turn ends at once with its text."""
        conversation = working(limits=Limits(requests=1))

        conversation.model_says("One")

        assert (conversation.ended.status, conversation.delivered()) == ("incomplete", ["One"])

    @pytest.mark.parametrize(
        ("limits", "usage"),
        [(Limits(tokens=10), Usage(output_tokens=10)), (Limits(cost=0.5), Usage(cost=0.5))],
        ids=["tokens", "cost"],
    )
    def test_a_response_that_spends_the_budget_is_not_nudged(self, limits: Limits, usage: Usage) -> None:
        """S10: a response whose own cost uses up the budget ends the turn with its text, without the sentence about the
        limit."""
        conversation = working(limits=limits)

        conversation.model_says("One", usage=usage)

        assert (conversation.ended.status, conversation.delivered()) == ("incomplete", ["One"])
        assert conversation.roles() == ["user", "assistant"]

    def test_a_text_that_was_cut_off_is_not_nudged(self) -> None:
        """P41: a text that was cut off ends the turn as truncated, without a nudge."""
        conversation = working()

        conversation.model_says("To be conti", finish_reason="length")

        assert (conversation.ended.status, conversation.ended.truncated) == ("incomplete", True)
        assert conversation.delivered() == ["To be conti"]

    def test_a_message_that_steers_in_meets_the_nudge(self) -> None:
        """S10, P37: a steered message enters the next request together with the nudge."""
        conversation = working(when_busy="steer")
        conversation.says("Louder, please")

        conversation.model_says("One")

        assert conversation.wanted() == [PersistMessage, PersistMessage, RequestLlm]
        assert conversation.nudge() == TEXTS.nudge
        assert conversation.roles() == ["user", "assistant", "user"]


class TestAClaimWithNothingSaid:
    """S17: after a claim without an answer the model is asked once for the answer; no summary is invented."""

    def claimed(self, **rules: Any) -> Conversation:
        """A conversation whose model claims that the work is complete without having said anything."""
        conversation = working(**rules)
        conversation.model_calls(completing())
        conversation.tool_claims(summary="Read it aloud.")
        return conversation

    def test_the_model_is_asked_for_the_answer(self) -> None:
        """S17: one more request asks for the missing answer."""
        conversation = self.claimed()

        assert conversation.wanted() == [PersistToolResults, RequestLlm]
        assert conversation.nudge() == TEXTS.answer_missing

    def test_who_has_answered_by_then_is_not_asked_again(self) -> None:
        """S17: a model that has answered is not asked again, whether it then writes a text or nothing."""
        for words in ("It is done.", ""):
            conversation = working()
            conversation.model_calls(completing())
            conversation.tool_claims()
            assert conversation.nudge() == TEXTS.answer_missing
            conversation.model_calls(responding(), "work")
            conversation.tool_responds("respond", "A")
            conversation.tool_ends("work", "It broke.", error=True)

            conversation.model_says(words)

            conversation.rests_in(Verifying)

    def test_a_text_to_fall_back_to_is_an_answer_too(self) -> None:
        """S2, S17: if the model says nothing when asked, its earlier text is checked and delivered."""
        conversation = working()
        conversation.model_calls(completing(), content="The answer is 42.")
        conversation.tool_claims()
        assert conversation.nudge() == TEXTS.answer_missing

        conversation.model_says("")

        conversation.rests_in(Verifying)
        conversation.verifier_says(True)
        assert conversation.delivered() == ["The answer is 42."]

    def test_speech_in_the_next_round_completes_the_turn(self) -> None:
        """S17: a claim in one round and speech in the next complete the turn; the claim is checked together with the
        speech."""
        conversation = self.claimed()

        says_by_tool(conversation, "A")
        check = conversation.step.effects[-1]
        conversation.verifier_says(True)

        assert isinstance(check, VerifyWork)
        assert conversation.words(check.claim, *check.deliverable) == ["Read it aloud.", "A"]
        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["A"])

    def test_a_text_in_answer_completes_the_turn(self) -> None:
        """S17, S2: a plain text as the answer is the reply."""
        conversation = self.claimed()

        conversation.model_says("Seven tweets.")
        conversation.verifier_says(True)

        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["Seven tweets."])

    def test_it_is_asked_once(self) -> None:
        """S17: a second claim without an answer is taken, and its own summary is delivered."""
        conversation = self.claimed()

        completes(conversation, "Still read aloud.")

        assert len(conversation.requests()) == 2
        assert conversation.words(conversation.ended.final_content) == ["Still read aloud."]
        assert conversation.delivered() == ["Still read aloud."]

    def test_an_answer_that_was_cut_off_says_so(self) -> None:
        """P41: an answer that was cut off ends the turn as truncated."""
        conversation = self.claimed()

        conversation.model_says("Seven twe", finish_reason="length")
        conversation.verifier_says(True)

        assert (conversation.ended.status, conversation.ended.truncated) == ("completed", True)

    def test_with_the_budget_spent_nobody_is_asked(self) -> None:
        """S17: if no request is left, the claim is checked as it is."""
        conversation = working(limits=Limits(seconds=2))
        conversation.model_calls(completing())

        conversation.tool_claims()

        conversation.rests_in(Verifying)

    def test_text_that_is_the_reply_counts_as_an_answer(self) -> None:
        """S17: under `text="reply"` the text beside the claim is the answer, so the model is not asked."""
        conversation = Conversation(ends_on="work_complete", verify=0)
        conversation.says()
        conversation.model_calls(completing(), content="Seven tweets.")

        conversation.tool_claims()

        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["Seven tweets."])


class TestTheNextTurn:
    """S19: in the next turn the model can see what the user received."""

    def test_history_shows_what_was_said_as_said(self) -> None:
        """S19: the call with its words is in the transcript, and its result is not marked."""
        conversation = working()
        conversation.model_calls(responding(arguments='{"text": "A"}'))
        conversation.tool_responds("respond", "A")
        completes(conversation)

        conversation.says("Next")

        call_, result = conversation.transcript[1:3]
        assert (call_.tool_calls[0].raw_arguments, result.text, result.undelivered) == ('{"text": "A"}', "done", False)

    def test_what_the_policy_did_not_choose_is_marked(self) -> None:
        """S19: of two speeches the result of the first says that the user did not receive it."""
        conversation = working()
        says_by_tool(conversation, "A", "a")
        says_by_tool(conversation, "B", "b")

        completes(conversation)

        marks = {m.tool_call_id: m.undelivered for m in conversation.transcript if m.tool_call_id}
        assert marks == {"a": True, "b": False, "complete": False}

    def test_a_delivery_says_where_its_words_stand(self) -> None:
        """A delivery refers to the text in the event that brought it."""
        conversation = working()
        says_by_tool(conversation, "A")
        step = conversation.state.book.seq

        completes(conversation)

        (delivered,) = conversation.ended.deliveries
        assert delivered.said == Heard(seq=step, index=1)

    def test_a_fault_is_not_speech(self) -> None:
        """The result of a call that never ran is not marked as undelivered."""
        conversation = working(nudges=0)
        conversation.model_calls(responding(fault="text is required"))

        conversation.model_says("Well.")

        assert [m.undelivered for m in conversation.transcript if m.role == "tool"] == [False]
        assert conversation.rests_in(Idle) and conversation.delivered() == ["Well."]


def test_a_claim_may_stand_before_the_speech_of_its_round() -> None:
    """S4, S9: a claim before the speech of its round counts like one behind it, since the round is judged when all of
    it has ended."""
    conversation = working()
    conversation.model_calls(completing(), responding())
    conversation.tool_claims()
    conversation.rests_in(ToolExecuting)

    conversation.tool_responds("respond", "A")
    conversation.verifier_says(True)

    assert conversation.delivered() == ["A"]


def test_one_tool_may_speak_and_claim() -> None:
    """A tool's result may hold a speech and a claim; both are carried out, in order."""
    conversation = working()
    conversation.model_calls(call("finish", acts=("speech", "work_complete")))

    conversation.tool_ends("finish", acts=[Speech(text="A"), WorkComplete(summary="Said it.")])
    conversation.verifier_says(True)

    assert conversation.delivered() == ["A"]
    assert conversation.words(conversation.ended.final_content) == ["Said it."]
