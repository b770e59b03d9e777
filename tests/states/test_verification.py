"""Claims that the work is complete: which of them count, and what follows from their check."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turnwise.states import (
    Abort,
    Closed,
    Compacting,
    DeliverToUser,
    Failed,
    Failure,
    Heard,
    Idle,
    Limits,
    LlmRequesting,
    Made,
    ModelSpec,
    PersistToolResults,
    Refused,
    RequestLlm,
    Speech,
    SpeechRules,
    SummarizeTurn,
    Summarizing,
    Texts,
    Usage,
    Verifying,
    VerifyWork,
    WorkComplete,
    presets,
)
from turnwise.states.roles import Role

from ..support.conversation import Conversation, asking, call, completing, responding, talking

TEXTS = Texts()


def working(**rules: Any) -> Conversation:
    """A conversation under `explicit_response`, whose model has been asked."""
    conversation = Conversation(presets.explicit_response(), **rules)
    conversation.says("Read me it")
    return conversation


def claims(conversation: Conversation, *, say: str = "A") -> None:
    """The model says something to the user and claims that the work is complete."""
    conversation.model_calls(responding(), completing())
    conversation.tool_responds("respond", say)
    conversation.tool_claims()


def checked(**rules: Any) -> Conversation:
    """A conversation whose claim is being checked."""
    conversation = working(**rules)
    claims(conversation)
    conversation.rests_in(Verifying)
    return conversation


class TestWhatCountsAsAClaim:
    """S9: which claims count."""

    def test_a_claim_after_good_calls_is_checked(self) -> None:
        """S9: a claim in a round whose calls all succeeded is checked; the effects are exactly the result and the
        check."""
        conversation = checked()

        assert conversation.wanted() == [PersistToolResults, VerifyWork]

    def test_a_claim_beside_a_call_that_failed_does_not_count(self) -> None:
        """S9: a claim beside a call that failed does not count; the model is asked again and has to claim anew."""
        conversation = working()
        conversation.model_calls(responding(), completing(), "save")
        conversation.tool_responds("respond", "A")
        conversation.tool_claims()

        conversation.tool_ends("save", "No space left.", error=True)

        assert conversation.rests_in(LlmRequesting).turn.claim is None
        assert conversation.wanted() == [PersistToolResults, RequestLlm]

    @pytest.mark.parametrize("parallel", [1, 3])
    def test_it_does_not_matter_which_came_first(self, parallel: int) -> None:
        """S9: the failing call may stand before the claim, and may end before or after it."""
        conversation = working(parallel=parallel)
        conversation.model_calls("save", completing())
        for name in ("complete", "save") if parallel > 1 else ("save", "complete"):
            if name == "save":
                conversation.tool_breaks("save", "It took too long.")
            else:
                conversation.tool_claims()

        assert conversation.rests_in(LlmRequesting).turn.claim is None

    def test_a_claim_beside_a_fault_does_not_count(self) -> None:
        """S9: a claim beside a call with a fault does not count."""
        conversation = working()
        conversation.model_calls(completing(), call("gone", fault="There is no tool called gone."))

        conversation.tool_claims()

        assert conversation.rests_in(LlmRequesting).turn.claim is None

    def test_a_claim_beside_a_denied_call_does_not_count(self) -> None:
        """S9: a claim beside a call that a person denied does not count."""
        conversation = working()
        conversation.model_calls(completing(), call("pay", approval=True))
        conversation.tool_claims()

        conversation.allows("pay", False)

        assert conversation.rests_in(LlmRequesting).turn.claim is None

    def test_a_claim_beside_a_question_that_was_declined_counts(self) -> None:
        """S9: a claim beside a declined question counts, since nothing failed."""
        conversation = working(questions={"cancel": "resume"})
        conversation.model_calls(responding(), asking(), completing())
        conversation.tool_responds("respond", "A")
        conversation.tool_asks()
        conversation.cancels()

        conversation.tool_claims()

        conversation.rests_in(Verifying)

    def test_a_claim_that_counted_for_nothing_may_be_made_again(self) -> None:
        """S9: a claim that did not count may be made again in the next round."""
        conversation = working()
        conversation.model_calls(completing(), "save")
        conversation.tool_claims()
        conversation.tool_ends("save", "No space left.", error=True)

        claims(conversation)

        conversation.rests_in(Verifying)

    def test_a_claim_that_was_made_before_outlives_a_round_that_fails(self) -> None:
        """S17, S9: a claim that waits for its answer still counts if the round with the answer fails and the next one
        succeeds."""
        conversation = working()
        conversation.model_calls(completing())
        conversation.tool_claims(summary="Read it aloud.")
        conversation.model_calls(responding())
        conversation.tool_responds("respond", "")
        conversation.rests_in(LlmRequesting)

        conversation.model_calls(responding())
        conversation.tool_responds("respond", "A")

        assert conversation.rests_in(Verifying).turn.claim is not None

    @pytest.mark.parametrize("summary", ["", " \n"])
    def test_a_summary_must_say_something(self, summary: str) -> None:
        """S9: a claim with a blank summary cannot be made, so its tool gives an error result."""
        with pytest.raises(ValidationError, match="must not be empty"):
            WorkComplete(summary=summary)

    def test_a_summary_of_marked_lines_says_nothing(self) -> None:
        """S9: people would read nothing of it, so it counts as blank and the tool gives an error result."""
        conversation = Conversation(ends_on="work_complete", marker="TOOL")
        conversation.says()
        conversation.model_calls(call("finish", acts=("work_complete",)))
        conversation.tool_ends("finish", acts=(WorkComplete(summary="TOOL finish"),))

        assert conversation.results() == {"finish": TEXTS.nothing_said}
        assert conversation.rests_in(LlmRequesting).turn.claim is None

    @pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), float("inf"), "sure"])
    def test_a_confidence_lies_between_0_and_1(self, confidence: Any) -> None:
        """S9: a claim whose confidence is not a number between 0 and 1 cannot be made."""
        with pytest.raises(ValidationError):
            WorkComplete(summary="Done.", confidence=confidence)

    @pytest.mark.parametrize("confidence", [None, 0, 1, 0.5])
    def test_a_summary_alone_will_do(self, confidence: Any) -> None:
        """S9: a claim needs no confidence."""
        assert WorkComplete(summary="Done.", confidence=confidence).confidence == confidence

    def test_of_two_claims_the_last_in_the_round_counts(self) -> None:
        """Of two claims in one round the last one counts."""
        conversation = working()
        conversation.model_calls(responding(), completing("a"), completing("b"))
        conversation.tool_responds("respond", "A")
        conversation.tool_claims("a", "First")

        conversation.tool_claims("b", "Second")

        check = conversation.step.effects[-1]
        assert isinstance(check, VerifyWork) and conversation.words(check.claim) == ["Second"]

    def test_where_text_ends_a_turn_a_claim_ends_it_too(self) -> None:
        """Under `ends_on="text"` a claim ends the turn too."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(completing(), content="Here you are.")

        conversation.tool_claims()

        conversation.rests_in(Idle)
        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["Here you are."])

    def test_without_verification_a_claim_is_taken_at_its_word(self) -> None:
        """With `verify=0` a claim is not checked."""
        conversation = working(verify=0)

        claims(conversation)

        conversation.rests_in(Idle)
        assert conversation.wanted() == [PersistToolResults, DeliverToUser]
        assert conversation.ended.status == "completed"


class TestTheCheck:
    """S11: the check of a claim."""

    @pytest.mark.parametrize(("keep", "deliverable"), [("each", ["A", "B"]), ("last", ["B"])])
    def test_the_verifier_sees_what_was_said(self, keep: str, deliverable: list[str]) -> None:
        """S3, S11: the deliverable is the speech that will be delivered, in call order, and not the speech that is
        dropped."""
        conversation = working(speech=SpeechRules(keep=keep))
        conversation.model_calls(responding("a"), responding("b"), completing())
        conversation.tool_responds("a", "A")
        conversation.tool_responds("b", "B")

        conversation.tool_claims(summary="Read it aloud.")

        check = conversation.step.effects[-1]
        assert isinstance(check, VerifyWork)
        assert conversation.words(check.claim) == ["Read it aloud."]
        assert conversation.words(*check.deliverable) == deliverable

    def test_a_claim_that_holds_ends_the_turn(self) -> None:
        """S11: a claim that holds completes the turn, and the speech is delivered."""
        conversation = checked()

        conversation.verifier_says(True)

        conversation.rests_in(Idle)
        assert conversation.wanted() == [DeliverToUser]
        assert (conversation.ended.status, conversation.ended.failure) == ("completed", None)

    def test_why_it_does_not_hold_goes_back_to_the_model(self) -> None:
        """S11: the next request holds the reason and what is missing."""
        conversation = checked()

        conversation.verifier_says(False, "Two tweets are missing.", "tweet 3", "tweet 5")

        assert conversation.wanted() == [RequestLlm]
        assert conversation.nudge() == "Two tweets are missing.\n- tweet 3\n- tweet 5"
        assert conversation.rests_in(LlmRequesting).turn.claim is None
        assert conversation.delivered() == []

    def test_a_check_that_breaks_counts_as_a_failure(self) -> None:
        """S11: a check that could not be made counts as failed, and the model may try again."""
        conversation = checked()

        conversation.breaks(VerifyWork, sentence="The verifier took too long.")

        assert conversation.nudge() == "The verifier took too long."
        assert conversation.rests_in(LlmRequesting).turn.rejections == 1

    def test_where_nobody_can_check_the_turn_ends_at_once(self) -> None:
        """S21: if no verifier is available, the turn ends as incomplete with the reason, and what was said is
        delivered."""
        conversation = checked()

        conversation.breaks(VerifyWork, "unavailable", "There is nobody to check it.")

        conversation.rests_in(Idle)
        assert conversation.ended.failure == Failure(kind="unverified", sentence="There is nobody to check it.")
        assert (conversation.ended.status, conversation.delivered()) == ("incomplete", ["A"])

    def test_after_five_failures_the_turn_ends_as_incomplete(self) -> None:
        """S11, S21: after five failed checks the turn ends as incomplete with the reason, and what was said is
        delivered."""
        conversation = working()
        for number in range(5):
            claims(conversation, say=f"Readback {number}")
            conversation.verifier_says(False, f"Reason {number}")

        conversation.rests_in(Idle)
        assert len(conversation.requests()) == 5
        assert conversation.ended.status == "incomplete"
        assert conversation.ended.failure == Failure(kind="unverified", sentence="Reason 4")
        assert conversation.delivered() == ["Readback 4"]

    def test_the_fifth_check_may_still_pass(self) -> None:
        """S11: four failed checks and one that passes complete the turn."""
        conversation = working()
        for _ in range(4):
            claims(conversation)
            conversation.verifier_says(False, "Not yet.")
        claims(conversation)

        conversation.verifier_says(True)

        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["A"])

    def test_with_one_failure_allowed_the_first_is_the_last(self) -> None:
        """With `verify=1` a check that could not be made ends the turn with its sentence."""
        conversation = checked(verify=1)

        conversation.breaks(VerifyWork, sentence="The verifier took too long.")

        conversation.rests_in(Idle)
        assert conversation.ended.failure == Failure(kind="unverified", sentence="The verifier took too long.")

    def test_a_text_after_a_failed_check_is_nudged_as_any_other(self) -> None:
        """S10, S11: after a failed check a text alone does not end the turn; the next request holds the nudge and the
        reason."""
        conversation = checked()
        conversation.verifier_says(False, "Not yet.")

        conversation.model_says("It is done, really.")

        assert conversation.nudge() == f"Not yet.\n\n{TEXTS.nudge}"

    def test_why_it_does_not_hold_is_told_until_the_next_claim(self) -> None:
        """S11: every request holds the reason until the model claims again."""
        conversation = checked()
        conversation.verifier_says(False, "Tea is missing.")
        assert conversation.nudge() == "Tea is missing."
        assert isinstance(conversation.requests()[-1].nudge, Heard)

        conversation.model_calls("look")
        conversation.tool_ends("look")
        assert conversation.nudge() == "Tea is missing."

        conversation.model_calls(completing())
        conversation.tool_claims("complete-2")
        conversation.verifier_says(False, "Milk is missing.")
        assert conversation.nudge() == "Milk is missing."

    def test_a_plain_request_holds_nothing_of_it(self) -> None:
        """J20: a plain request does not hold the reason."""
        conversation = working(plain_retry=1, nudges=0, ends_on="text")
        claims(conversation)
        conversation.verifier_says(False, "Tea is missing.")
        for _ in range(2):
            conversation.model_says("")

        request = conversation.requests()[-1]
        assert (request.plain, request.nudge) == (True, None)

    def test_what_the_check_cost_is_counted(self) -> None:
        """The cost of the check is part of the turn's."""
        conversation = checked()

        conversation.verifier_says(True, usage=Usage(input_tokens=7))

        assert conversation.ended.usage == Usage(input_tokens=7)

    def test_with_the_requests_spent_a_failed_check_ends_the_turn(self) -> None:
        """S11: if no request is left, a failed check ends the turn as incomplete with the reason, not with the sentence
        about the limit."""
        conversation = working(limits=Limits(requests=2))
        claims(conversation)
        conversation.verifier_says(False, "Not yet.")
        conversation.model_says("What more is there?")

        assert conversation.ended.status == "incomplete"
        assert conversation.delivered() == ["A"]

    @pytest.mark.parametrize(
        ("limits", "usage"),
        [(Limits(tokens=10), Usage(input_tokens=10)), (Limits(cost=1.0), Usage(cost=1.0))],
        ids=["tokens", "cost"],
    )
    def test_a_check_that_spends_the_budget_ends_the_turn_with_its_reason(self, limits: Limits, usage: Usage) -> None:
        """S11, law 12: a check that uses up the budget ends the turn with its reason, and nothing new is started."""
        conversation = checked(limits=limits)

        conversation.verifier_says(False, "Not yet.", usage=usage)

        conversation.rests_in(Idle)
        assert conversation.ended.failure == Failure(kind="unverified", sentence="Not yet.")
        assert conversation.delivered() == ["A"]

    def test_with_the_time_spent_a_claim_is_still_checked(self) -> None:
        """A claim is checked even if the time of the turn is used up, since the check is no model request of the
        turn."""
        conversation = working(limits=Limits(seconds=3))
        claims(conversation)
        conversation.rests_in(Verifying)

        conversation.verifier_says(False, "Not yet.")

        assert conversation.ended.failure == Failure(kind="unverified", sentence="Not yet.")

    def test_what_was_said_outlives_condensing(self) -> None:
        """S4, P21: speech is delivered even if the calls that said it were compacted."""
        conversation = working(models=(ModelSpec(name="small", window=1_000),))
        conversation.model_calls(responding(), completing(), usage=Usage(input_tokens=899))
        conversation.tool_responds("respond", "A")
        conversation.tool_claims()
        conversation.verifier_says(False, "Not yet.")
        conversation.model_says("What more?", usage=Usage(input_tokens=900))
        conversation.rests_in(Compacting)

        conversation.history_is_condensed()

        assert conversation.nudge() == f"Not yet.\n\n{TEXTS.nudge}"
        conversation.model_calls(completing())
        conversation.tool_claims()
        conversation.verifier_says(True)
        assert conversation.delivered() == ["A"]

    def test_a_request_that_fails_tells_the_reason_again(self) -> None:
        """S11: a retry, and a request after a compaction, hold the reason again."""
        conversation = checked()
        conversation.verifier_says(False, "Not yet.")

        conversation.model_fails()
        conversation.timer_rings()
        assert conversation.nudge() == "Not yet."
        conversation.model_fails("context_window")
        conversation.history_is_condensed()

        assert conversation.nudge() == "Not yet."

    def test_a_message_meanwhile_begins_the_next_turn(self) -> None:
        """A message that waits during a check that passes begins the next turn, whether it was queued or steered."""
        conversation = checked(when_busy="steer")
        conversation.says("And the replies?")

        conversation.verifier_says(True)

        assert conversation.ended.turn == 1
        assert conversation.rests_in(LlmRequesting).turn.number == 2
        assert conversation.delivered() == ["A"]

    def test_a_message_meanwhile_steers_into_the_next_try(self) -> None:
        """P37: if the check fails, a steered message enters the next request together with the reason."""
        conversation = checked(when_busy="steer")
        conversation.says("And the replies?")

        conversation.verifier_says(False, "Not yet.")

        assert conversation.rests_in(LlmRequesting).turn.number == 1
        assert conversation.roles()[-1] == "user"
        assert conversation.nudge() == "Not yet."

    def test_a_message_meanwhile_is_refused_by_default(self) -> None:
        """P2: by default a message during the check is refused as busy."""
        conversation = checked()

        with pytest.raises(Refused, match="busy with the turn"):
            conversation.says()


class TestStoppingTheCheck:
    """A person stops the check."""

    def test_a_cancel_stops_the_check(self) -> None:
        """S8: the turn is cancelled, nothing is delivered, and the late verdict is ignored."""
        conversation = checked()
        check = conversation.flying(VerifyWork)

        conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.wanted() == [Abort]
        assert conversation.stopped() == [check]
        assert (conversation.ended.status, conversation.delivered()) == ("cancelled", [])

    def test_a_close_stops_the_check(self) -> None:
        """A close stops the check, and the conversation ends with the turn."""
        conversation = checked()

        conversation.closes()

        conversation.rests_in(Closed)
        assert (conversation.ended.status, conversation.wanted()) == ("cancelled", [Abort])

    def test_a_late_cancel_changes_nothing(self) -> None:
        """P40: a cancel that names an earlier turn changes nothing."""
        conversation = checked()

        assert conversation.cancels(turn=0).ignored
        conversation.rests_in(Verifying)


class TestSummarizing:
    """S12: a summary for display."""

    def summarized(self, **rules: Any) -> Conversation:
        """A conversation whose turn has ended and is being summarized."""
        conversation = checked(summarize=True, **rules)
        conversation.verifier_says(True)
        conversation.rests_in(Summarizing)
        return conversation

    def test_what_was_said_is_delivered_before_the_summary(self) -> None:
        """S12: the effects are exactly the delivery and then the summary, and the turn is not left yet."""
        conversation = self.summarized()

        assert conversation.wanted() == [DeliverToUser, SummarizeTurn]
        assert conversation.step.ended is None

    def test_a_summary_changes_the_final_content_only(self) -> None:
        """S12: the summary replaces `final_content` and nothing else."""
        conversation = self.summarized()

        conversation.summary_comes("It was read aloud.", usage=Usage(input_tokens=3))

        conversation.rests_in(Idle)
        assert conversation.wanted() == []
        assert conversation.words(conversation.ended.final_content) == ["It was read aloud."]
        assert conversation.words(*conversation.ended.user_response) == ["A"]
        assert (conversation.delivered(), conversation.ended.usage) == (["A"], Usage(input_tokens=3))

    @pytest.mark.parametrize("summary", [None, "", " "])
    def test_without_a_summary_the_turn_ends_as_it_was(self, summary: str | None) -> None:
        """S12: a summary that failed or is blank changes nothing."""
        conversation = self.summarized()

        if summary is None:
            conversation.breaks(SummarizeTurn)
        else:
            conversation.summary_comes(summary)

        conversation.rests_in(Idle)
        assert conversation.ended.status == "completed"
        assert conversation.words(conversation.ended.final_content) == ["All is done."]

    def test_a_cancel_ends_the_summary_only(self) -> None:
        """S12: a cancel stops the summary; the turn is completed and what was delivered stays delivered."""
        conversation = self.summarized()
        summary = conversation.flying(SummarizeTurn)

        conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.stopped() == [summary]
        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["A"])

    def test_a_close_ends_the_summary_only(self) -> None:
        """S12: a close stops the summary; the turn is completed and the conversation closed."""
        conversation = self.summarized()

        conversation.closes()

        conversation.rests_in(Closed)
        assert conversation.wanted() == [Abort]
        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["A"])

    def test_a_late_cancel_does_not_end_the_summary(self) -> None:
        """P40: a cancel that names an earlier turn does not stop the summary."""
        assert self.summarized().cancels(turn=0).ignored

    def test_a_message_meanwhile_begins_the_next_turn(self) -> None:
        """The step that leaves the turn begins the next one with the message that waited."""
        conversation = self.summarized(when_busy="queue")
        conversation.says("And the replies?")

        conversation.summary_comes()

        assert conversation.ended.turn == 1
        assert conversation.rests_in(LlmRequesting).turn.number == 2

    def test_a_cancel_lets_a_waiting_message_begin_its_turn(self) -> None:
        """A cancel of the summary does not cancel a message that waits."""
        conversation = self.summarized(when_busy="queue")
        conversation.says("And the replies?")

        conversation.cancels()

        assert (conversation.ended.turn, conversation.ended.status) == (1, "completed")
        assert conversation.rests_in(LlmRequesting).turn.number == 2

    def test_only_a_turn_that_ended_well_is_summarized(self) -> None:
        """Incomplete, failed and cancelled turns are not summarized."""
        incomplete, failed, cancelled = (working(summarize=True) for _ in range(3))

        for _ in range(3):
            incomplete.model_says("Hm.")
        failed.model_fails("authentication")
        cancelled.cancels()

        assert [each.state.type for each in (incomplete, failed, cancelled)] == ["idle", "failed", "idle"]

    def test_a_text_that_ends_a_turn_is_summarized_as_well(self) -> None:
        """With `ends_on="text"` the text is delivered, and the summary replaces it on display."""
        conversation = Conversation(summarize=True)
        conversation.says()
        conversation.model_says("A long story.")
        assert conversation.delivered() == ["A long story."]

        conversation.summary_comes("A story.")

        assert conversation.words(conversation.ended.final_content) == ["A story."]
        assert conversation.delivered() == ["A long story."]


def test_a_talk_at_once_counts_as_said() -> None:
    """S17: speech that was delivered at once counts as the answer, and the verifier sees it."""
    conversation = working()
    conversation.model_calls(talking(), completing())
    conversation.tool_talks("talk", "A")

    conversation.tool_claims()

    check = conversation.step.effects[-1]
    assert isinstance(check, VerifyWork) and conversation.words(*check.deliverable) == ["A"]
    conversation.verifier_says(True)
    assert conversation.delivered() == ["A"]


def test_a_failure_before_the_check_is_a_failure() -> None:
    """A turn that fails after a claim has failed."""
    conversation = working(on_failure="fail")
    conversation.model_calls(completing())
    conversation.tool_claims()

    conversation.model_fails("authentication")

    conversation.rests_in(Failed)
    assert conversation.ended.final_content is None


def test_an_ending_of_ours_is_no_claim() -> None:
    """S17, J11: a claim without an answer, followed by empty responses, ends the turn with the policy's sentence, and
    no summary is invented."""
    conversation = working()
    conversation.model_calls(completing())
    conversation.tool_claims()
    conversation.model_says("")
    assert conversation.nudge() == TEXTS.answer_missing

    conversation.model_says("")

    assert (conversation.ended.status, conversation.ended.final_content) == ("incomplete", Made(text=TEXTS.ending))


def test_a_rejected_claim_is_the_content_of_the_turn_that_it_ends() -> None:
    """S21: a turn that ends by a rejected claim has the model's text as its content, or else the claim."""
    silent, answered = checked(verify=1), working(verify=1)
    answered.model_calls(completing())
    answered.tool_claims()
    answered.model_says("The letter says no.")

    for conversation in (silent, answered):
        conversation.verifier_says(False, "Nothing was read.")

    contents = [conversation.words(conversation.ended.final_content) for conversation in (silent, answered)]
    assert contents == [["All is done."], ["The letter says no."]]


def test_a_check_that_fails_is_paid_for_as_well() -> None:
    """The cost of a failed check counts, and the model goes on."""
    conversation = checked()
    conversation.verifier_says(False, "Nothing was read.", usage=Usage(input_tokens=3))
    conversation.rests_in(LlmRequesting)

    conversation.cancels()

    assert conversation.ended.usage == Usage(input_tokens=3)


def test_where_texts_are_replies_a_claim_alone_is_not_an_answer() -> None:
    """S17: under `text="reply"` a claim alone is no answer, so the model is asked for one."""
    conversation = working(text="reply")
    conversation.model_calls(completing())

    conversation.tool_claims()

    conversation.rests_in(LlmRequesting)
    assert conversation.nudge() == TEXTS.answer_missing


def test_a_request_that_is_told_something_keeps_its_tools() -> None:
    """S11: a request with the reason of a failed check keeps its tools."""
    conversation = checked()

    conversation.verifier_says(False, "Nothing was read.")

    assert not conversation.requests()[-1].plain


@given(
    st.fixed_dictionaries(
        {
            "text": st.sampled_from(["reply", "fallback", "thought"]),
            "silent": st.sampled_from(["allow", "nudge", "fallback"]),
            "speech": st.builds(SpeechRules, keep=st.sampled_from(["last", "each"])),
            "relay": st.sampled_from(["prompt_only", "nudge_then_deliver"]),
        }
    ),
    st.sampled_from(get_args(Role)),
    st.booleans(),
    st.lists(st.sampled_from(["now", "turn_end"]), max_size=3),
    st.sampled_from(["", "Done!"]),
)
def test_what_is_checked_is_what_the_user_receives(
    rules: dict[str, Any], role: Role, relays: bool, moments: list[str], text: str
) -> None:
    """S2, S3, S11, D7: under all rules, what is checked is what the user receives by the end of the turn; an agent
    without a user is also checked by its result."""
    conversation = Conversation(role=role, ends_on="work_complete", verify=1, summarize=False, **rules)
    conversation.agent_says("Rice is cheap.", audience="user") if relays else conversation.says("Read me it")
    moments = moments if role == "foreground" else []  # nobody else may speak
    speeches = [call(f"say-{place}", acts=("speech",), exclusive=when == "now") for place, when in enumerate(moments)]
    conversation.model_calls(*speeches, completing(), content=text)
    for speech, when in zip(speeches, moments, strict=True):
        conversation.tool_ends(speech.name, acts=[Speech(text=speech.name, when=when)])
    conversation.tool_claims()
    if isinstance(conversation.state, LlmRequesting):  # it is asked to say something first (S17)
        conversation.model_calls(completing())
        conversation.tool_claims("complete-2")

    (check,) = (effect for effect in conversation.step.effects if isinstance(effect, VerifyWork))
    conversation.verifier_says(True)

    result = [text or "All is done."] if role != "foreground" else []
    assert conversation.words(*check.deliverable) == [*conversation.delivered(), *result]
