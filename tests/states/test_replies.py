"""What reaches the user and the model besides what was said: deliveries, nudges, and results that the machine makes."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import (
    Context,
    EffectFailed,
    Idle,
    Limits,
    LlmRequesting,
    ModelSpec,
    Policy,
    Questions,
    RequestLlm,
    Texts,
    TurnRecord,
    Usage,
    VerifyWork,
    presets,
)
from turnwise.states.replies import after_empty, due_nudge, owes_answer, wants_text
from turnwise.states.values.messages import Heard, Joined, Made
from turnwise.states.values.round import fingerprint
from turnwise.states.values.turn import Delivered, Failure, Spoken
from turnwise.testing.strategies import NOON

from ..support.conversation import Conversation, asking, call, completing

# --- Delivery rules and nudges, rule by rule, where the cases leave a gap. Nobody is reminded of a user who does not
# wait: agents without one, and turns that only other agents began.


SAID = Heard(seq=1)


def record(**fields: object) -> TurnRecord:
    """A turn under way."""
    return TurnRecord(number=1, since=NOON, **fields)


TEXTS = Policy().texts
WITHOUT_USER = ("background", "sub_agent")
STRICT = presets.explicit_response()


def conversation_of(role: str, policy: Policy) -> Conversation:
    """A conversation of an agent with this role."""
    return Conversation(policy, role=role)


def nudges(conversation: Conversation) -> list[str]:
    """The texts of the newest request's reminders."""
    (effect,) = (one for one in conversation.step.effects if isinstance(one, RequestLlm))
    parts = effect.nudge.parts if isinstance(effect.nudge, Joined) else (effect.nudge,)
    return [part.text for part in parts if isinstance(part, Made)]


class TestASilentTurn:
    """The model is reminded only if nothing would reach the user."""

    rules = Context(policy=Policy(text="thought", silent="nudge"))

    def test_a_thought_reaches_nobody(self) -> None:
        """B6: a text that is a thought leads to a reminder."""
        assert due_nudge(record(), self.rules, text="Hm.") == Policy().texts.speak

    def test_what_was_said_is_enough(self) -> None:
        """Speech that is not delivered yet prevents the reminder."""
        said = (Spoken(said=SAID, place=(1, 0, 1)),)

        assert due_nudge(record(said=said), self.rules, text="Hm.") is None

    def test_what_was_delivered_is_enough(self) -> None:
        """A delivery prevents the reminder."""
        delivered = (Delivered(effect_id=1, said=SAID),)

        assert due_nudge(record(deliveries=delivered), self.rules, text="Hm.") is None

    def test_where_the_text_is_delivered_instead_nobody_is_silent(self) -> None:
        """A text that will be delivered prevents the reminder about a message to pass on."""
        rules = Context(policy=Policy(text="thought", silent="fallback"))

        assert due_nudge(record(relay=(SAID,)), rules, text="Your table is booked.") is None

    @pytest.mark.parametrize(("text", "reached"), [("fallback", True), ("thought", False), ("reply", True)])
    def test_the_last_text_reaches_the_user_by_policy(self, text: str, reached: bool) -> None:
        """S2, B1: the policy decides whether the last text is delivered always, as a fallback, or never."""
        conversation = Conversation(text=text)
        conversation.says()
        conversation.model_says("Good day.")

        assert conversation.ended.silent is not reached


class TestAnEmptyResponse:
    """How the next request differs after an empty response."""

    def test_plain_retries_are_counted_one_by_one(self) -> None:
        """J20: two plain retries are two requests."""
        context = Context(policy=Policy(plain_retry=2))

        assert after_empty(record(fell_back=True, plain_retries=0), context) == {"plain": True, "plain_retries": 1}

    def test_reminders_are_counted_one_by_one(self) -> None:
        """S10: there are at most as many reminders as the policy allows."""
        context = Context(policy=Policy(ends_on="work_complete", nudges=3))
        again = after_empty(record(nudges=1), context)

        assert again is not None and again["nudges"] == 2


class TestEndings:
    """The outcome of a turn."""

    def test_an_error_reply_says_why(self) -> None:
        """J16: a turn that ends with an error reply has the reply and the failure."""
        conversation = Conversation(text="fallback", on_failure="reply")
        conversation.says()
        conversation.model_fails("authentication")

        failure = conversation.ended.failure
        assert isinstance(failure, Failure) and failure.kind == "authentication"
        assert not conversation.ended.silent

    def test_a_sub_agent_that_completed_says_so(self) -> None:
        """P25: a sub-agent that ends with a text of its own reports completed."""
        conversation = Conversation(presets.sub_agent(), role="sub_agent")
        conversation.says()
        step = conversation.model_says("Found it.")

        (told,) = [effect for effect in step.effects if effect.type == "notify_parent"]
        assert told.status == "completed"

    def test_a_text_that_nobody_sees_is_no_answer(self) -> None:
        """S17: after a claim beside a text that is only a fallback, the model is asked for its answer."""
        conversation = Conversation(text="fallback", ends_on="work_complete")
        conversation.says()
        conversation.model_calls(call("finish", acts=("work_complete",)), content="Working.")
        conversation.tool_claims("finish", "Done.")

        assert conversation.nudge() == Policy().texts.answer_missing


class TestCallsAfterCondensing:
    """Results that were compacted cannot be reused."""

    def test_the_same_call_may_be_made_again(self) -> None:
        """J8: after a compaction a call that was made before runs again."""
        conversation = Conversation(repeats={"window": 9}, models=(ModelSpec(name="m", window=100),))
        conversation.says()
        conversation.model_calls("look")
        conversation.tool_ends("look")
        conversation.model_calls("again", usage=Usage(input_tokens=95))
        conversation.history_is_condensed()
        conversation.model_calls("look")

        assert conversation.tools() == ["look"]


class TestFingerprints:
    """Fingerprints of calls."""

    def test_one_has_32_digits(self) -> None:
        """A fingerprint has 16 bytes, written as 32 digits."""
        assert len(fingerprint(call("look"))) == 32


class TestAgentsWithoutAUser:
    """What an agent that nobody listens to is reminded of."""

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_a_claim_is_asked_for_without_a_word_about_the_user(self, role: str) -> None:
        """Where a claim ends the turn, it is reminded of the claim alone."""
        conversation = conversation_of(role, STRICT)
        conversation.says()

        conversation.model_says("I looked.")

        assert nudges(conversation) == [TEXTS.claim_missing]
        assert "respond_to_user" not in TEXTS.claim_missing

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_a_claim_is_enough(self, role: str) -> None:
        """It is checked at once, although nothing was said to a user."""
        conversation = conversation_of(role, STRICT)
        conversation.says()
        conversation.model_calls(completing())

        conversation.tool_claims(summary="Counted three.")

        assert VerifyWork in conversation.wanted()

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_silence_is_no_fault(self, role: str) -> None:
        """Under rules by which an agent with a user is reminded to speak, it ends its turn."""
        policy = Policy(text="thought", silent="nudge")
        conversation = conversation_of(role, policy)
        conversation.says()

        conversation.model_says("Done.")

        assert conversation.ended.status == "completed"

    def test_what_is_asked_for_after_tools_is_a_result(self) -> None:
        """A sub-agent without text is asked for its result, and not for an answer to a user."""
        conversation = conversation_of("sub_agent", presets.sub_agent())
        conversation.says()
        conversation.model_calls("look")
        conversation.tool_ends("look", "Three houses.")

        conversation.model_says("")

        assert nudges(conversation) == [TEXTS.fallback_result]

    def test_a_background_agent_may_end_with_nothing(self) -> None:
        """D12: nobody would read its text, whatever its rules say about texts."""
        conversation = conversation_of("background", presets.assistant())
        conversation.says()

        conversation.model_says("")

        assert (conversation.ended.status, conversation.ended.final_content) == ("completed", None)


class TestInternalMessages:
    """D8: an internal message may be answered with nothing."""

    def begun(self, policy: Policy, **fields: Any) -> Conversation:
        """An agent with a user, which reads a message of another agent."""
        conversation = conversation_of("foreground", policy)
        conversation.agent_says("The build is done.", **fields)
        return conversation

    @pytest.mark.parametrize("preset", [presets.foreground, presets.assistant, presets.talk, presets.reply_flow])
    def test_it_may_be_answered_with_nothing(self, preset: Any) -> None:
        """D8: the turn ends as completed, and the user receives nothing."""
        policy = preset().replace(recall=False, documents=False, dialogue="transcript", route=False)
        conversation = self.begun(policy)

        conversation.model_says("")

        assert isinstance(conversation.state, Idle)
        assert (conversation.ended.status, conversation.ended.deliveries) == ("completed", ())

    def test_where_a_claim_ends_the_turn_the_claim_is_enough(self) -> None:
        """D8: the model is neither asked to speak nor told to."""
        conversation = self.begun(STRICT)
        conversation.model_says("Noted.")
        assert nudges(conversation) == [TEXTS.claim_missing]
        conversation.model_calls(completing())

        conversation.tool_claims(summary="Nothing to do.")

        assert VerifyWork in conversation.wanted()

    def test_an_answer_still_reaches_the_user(self) -> None:
        """The agent decides: what it writes is its reply."""
        conversation = self.begun(presets.foreground())

        conversation.model_says("By the way: the build is done.")

        assert len(conversation.ended.deliveries) == 1

    def test_a_message_for_the_user_is_not_internal(self) -> None:
        """D7: its turn owes the user something."""
        conversation = self.begun(presets.foreground(), audience="user")

        conversation.model_says("")

        assert isinstance(conversation.state, LlmRequesting)
        assert nudges(conversation) == [TEXTS.relay]

    def test_a_person_who_steers_the_turn_waits_for_an_answer(self) -> None:
        """From then on an empty response has the defined ending."""
        conversation = self.begun(presets.foreground().replace(when_busy="steer"))
        conversation.model_calls("look")
        conversation.says("And the tests?")
        conversation.tool_ends("look", "Green.")

        assert conversation.state.turn.internal is False

    def test_the_silent_messages_before_a_person_change_nothing(self) -> None:
        """A person's turn is no internal one, whatever enters with it."""
        conversation = conversation_of("foreground", presets.foreground())
        conversation.agent_says(silent=True)
        conversation.says()

        conversation.model_says("")

        assert conversation.ended.status == "incomplete"


@pytest.mark.parametrize("policy", [Policy(), STRICT, presets.talk(), Policy(text="thought", silent="nudge")])
def test_who_owes_nothing_is_never_reminded_of_speaking(policy: Policy) -> None:
    """Neither the relay, nor `speak`, nor `nudge`, which name the user."""
    internal = TurnRecord(number=1, since=NOON, internal=True)
    plain = TurnRecord(number=1, since=NOON, relay=())
    for turn, role in ((internal, "foreground"), (plain, "background"), (plain, "sub_agent")):
        context = Context(role=role, policy=policy)

        assert not owes_answer(turn, context)
        assert due_nudge(turn, context, text="") in (None, TEXTS.claim_missing)
        assert wants_text(turn.replace(claim=Heard(seq=1)), context) is False


# --- Results that the machine itself makes where a tool gave none: their text, and whether they are errors.


RESULTS_TEXTS = Texts()


def tells(conversation: Conversation) -> dict[str, tuple[str, bool]]:
    """The result of each call, and whether it is an error."""
    return {m.tool_call_id: (m.text, m.error) for m in conversation.transcript if m.tool_call_id is not None}


def asked(**rules: Any) -> Conversation:
    """A conversation that waits for an answer, with a call queued behind the question."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.model_calls(asking(), "write")
    conversation.tool_asks()
    return conversation


class TestErrors:
    """A call that did not do its work has an error result."""

    def test_a_call_that_was_stopped(self) -> None:
        """P6: a running call that was stopped is cancelled, and the calls behind it are skipped."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", "b")
        conversation.cancels()

        conversation.tool_stops("a")

        assert tells(conversation) == {"a": (RESULTS_TEXTS.cancelled, True), "b": (RESULTS_TEXTS.skipped, True)}

    def test_a_call_that_did_not_stop(self) -> None:
        """P6: a call that did not stop in time is cancelled too."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a")
        conversation.cancels()

        conversation.timer_rings()

        assert tells(conversation) == {"a": (RESULTS_TEXTS.cancelled, True)}

    def test_a_question_that_came_too_late(self) -> None:
        """A question that arrives after the cancel is not asked; its call is cancelled."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.cancels()

        conversation.tool_asks()

        assert tells(conversation) == {"ask": (RESULTS_TEXTS.cancelled, True)}

    def test_a_question_beside_running_tools(self) -> None:
        """A question of a tool beside other running tools cannot be asked; its call gets an error result."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("read", "ask")

        conversation.tool_asks("ask")

        assert tells(conversation) == {"ask": (RESULTS_TEXTS.question_not_exclusive, True)}

    @pytest.mark.parametrize("end", [Conversation.cancels, Conversation.closes])
    def test_a_question_that_was_cancelled(self, end: Any) -> None:
        """P17: under `idle` a cancelled question gets an error result and the calls behind it are skipped; closing does
        the same."""
        conversation = asked()

        end(conversation)

        assert tells(conversation) == {
            "ask": (RESULTS_TEXTS.question_cancelled, True),
            "write": (RESULTS_TEXTS.skipped, True),
        }

    def test_a_question_that_may_not_stand_beside_others(self) -> None:
        """P13: under `alone` every call of a response with a question beside others gets an error result."""
        conversation = Conversation(questions=Questions(alongside="alone"))
        conversation.says()

        conversation.model_calls(asking(), "write")

        assert set(tells(conversation).values()) == {(RESULTS_TEXTS.question_not_alone, True)}

    def test_calls_that_ask_nothing_may_always_stand_together(self) -> None:
        """P13: `alone` does not concern calls without a question."""
        conversation = Conversation(questions=Questions(alongside="alone"))
        conversation.says()

        conversation.model_calls("read", "write")

        assert conversation.tools() == ["read"]

    def test_a_call_that_was_cut_off(self) -> None:
        """P41: no call of a response that was cut off runs."""
        conversation = Conversation()
        conversation.says()

        conversation.model_calls("a", finish_reason="length")

        assert tells(conversation) == {"a": (RESULTS_TEXTS.cut_off, True)}

    def test_a_call_beyond_the_limit(self) -> None:
        """A call beyond the limit does not run."""
        conversation = Conversation(limits=Limits(tool_calls=0))
        conversation.says()

        conversation.model_calls("a")

        assert tells(conversation) == {"a": (RESULTS_TEXTS.not_run, True)}

    def test_a_call_with_a_fault_and_one_that_broke(self) -> None:
        """P5: the fault of a call, or the reason why it failed, is its result."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("breaks", call("b", fault="There is no tool called b."))

        conversation.tool_breaks("breaks", "It took too long.")

        assert tells(conversation) == {"breaks": ("It took too long.", True), "b": ("There is no tool called b.", True)}


class TestNoErrors:
    """What a person says, or does not say, is not an error of the call."""

    def test_an_answer(self) -> None:
        """P14: the answer is the result, as JSON in the shape in which it was given."""
        conversation = asked()

        conversation.answers({"When?": "今"}, annotations={"When?": {"notes": "とても"}})

        said = '{"answers": {"When?": "今"}, "annotations": {"When?": {"notes": "とても"}}}'
        assert tells(conversation) == {"ask": (said, False)}

    def test_several_choices_as_text(self) -> None:
        """P14: under `readable`, several choices are joined by commas."""
        conversation = Conversation(questions=Questions(answer="readable", partial=True))
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks()

        conversation.answers({"When?": ["Now", "Later"]})

        assert tells(conversation) == {"ask": ("Question: When?\nAnswer: Now, Later", False)}

    def test_no_wish_to_answer(self) -> None:
        """P17: under `resume`, a declined question has a result that tells the model to go on."""
        conversation = asked(questions=Questions(cancel="resume"))

        conversation.cancels()

        assert tells(conversation) == {"ask": (RESULTS_TEXTS.declined, False)}

    def test_no_answer_in_time(self) -> None:
        """A question that nobody answers in time has a result that tells the model to go on."""
        conversation = asked(questions=Questions(deadline=60))

        conversation.timer_rings()

        assert tells(conversation) == {"ask": (RESULTS_TEXTS.unanswered, False)}


class TestEndingsOfResults:
    """How a turn ends without an answer of the model."""

    def test_a_last_request_that_only_calls(self) -> None:
        """With `answer_now`, calls in the last response do not run, and the turn ends with the policy's sentence for
        the limit."""
        conversation = Conversation(limits=Limits(requests=1))
        conversation.says()

        step = conversation.model_calls("a")

        assert step.ended is not None and step.ended.final_content is not None
        assert step.ended.final_content.text == RESULTS_TEXTS.limit

    def test_a_failure(self) -> None:
        """P11: a failed turn names the kind and the sentence of its failure, and so does the state."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_fails("authentication")

        assert step.ended is not None and step.ended.failure is not None
        assert (step.ended.failure.kind, step.ended.failure.sentence) == ("authentication", "The model is not well.")

    def test_a_request_that_could_not_be_made(self) -> None:
        """P11: a model request that ends in `EffectFailed` fails the turn like `LlmFailed`."""
        conversation = Conversation()
        conversation.says()

        step = conversation.happens(EffectFailed, effect_id=1, kind="internal", sentence="It broke.")

        assert step.ended is not None and step.ended.failure is not None
        assert step.ended.failure.sentence == "It broke."

    def test_only_what_was_cut_off_is_truncated(self) -> None:
        """P41: only a turn whose text was cut off is truncated, not one that was cancelled, failed or ended at a
        limit."""
        stopped, failed, limited, answered = (Conversation(limits=Limits(requests=1)) for _ in range(4))
        for conversation in (stopped, failed, limited, answered):
            conversation.says()

        steps = [
            stopped.cancels(),
            failed.model_fails("authentication"),
            limited.model_calls("a", content="So far, so good."),
            answered.model_says("Good day"),
        ]

        assert [step.ended is not None and step.ended.truncated for step in steps] == [False] * 4

    def test_the_log_keeps_what_a_turn_came_to(self) -> None:
        """The outcome of each turn can be read from the log alone."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("Good day")

        assert conversation.history.log[-1].ended == step.ended is not None
