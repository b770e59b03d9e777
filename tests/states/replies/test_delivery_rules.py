"""Delivery rules and nudges, rule by rule, where the cases leave a gap."""

import pytest

from turnwise.states import ModelSpec, Policy, TurnRecord, Usage, presets
from turnwise.states.context import Context
from turnwise.states.replies import after_empty, due_nudge
from turnwise.states.values.messages import Heard
from turnwise.states.values.round import fingerprint
from turnwise.states.values.turn import Delivered, Failure, Spoken
from turnwise.testing.strategies import NOON

from ...support.conversation import Conversation, call

SAID = Heard(seq=1)


def record(**fields: object) -> TurnRecord:
    """A turn under way."""
    return TurnRecord(number=1, since=NOON, **fields)


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
