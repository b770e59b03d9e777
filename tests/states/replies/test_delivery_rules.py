"""What reaches the user, rule by rule, where the cases leave a rule between two others."""

import pytest

from turnwise.states import ModelSpec, Policy, TurnRecord, Usage
from turnwise.states.context import Context
from turnwise.states.policy import presets
from turnwise.states.replies.nudges import after_empty, due_nudge
from turnwise.states.values.messages import Heard
from turnwise.states.values.repeats import fingerprint
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
        """B6: so the model is reminded."""
        assert due_nudge(record(), self.rules, text="Hm.") == Policy().texts.speak

    def test_what_was_said_is_enough(self) -> None:
        """Though it is not delivered yet."""
        said = (Spoken(said=SAID, place=(1, 0, 1)),)

        assert due_nudge(record(said=said), self.rules, text="Hm.") is None

    def test_what_was_delivered_is_enough(self) -> None:
        """Whatever it was."""
        delivered = (Delivered(effect_id=1, said=SAID),)

        assert due_nudge(record(deliveries=delivered), self.rules, text="Hm.") is None

    def test_where_the_text_is_delivered_instead_nobody_is_silent(self) -> None:
        """A message for the user is not asked for again where the text will reach them."""
        rules = Context(policy=Policy(text="thought", silent="fallback"))

        assert due_nudge(record(relay=(SAID,)), rules, text="Your table is booked.") is None

    @pytest.mark.parametrize(("text", "reached"), [("fallback", True), ("thought", False), ("reply", True)])
    def test_the_last_text_reaches_the_user_by_policy(self, text: str, reached: bool) -> None:
        """S2, B1: as a reply, as what one falls back to, or not at all."""
        conversation = Conversation(text=text)
        conversation.says()
        conversation.model_says("Good day.")

        assert conversation.ended.silent is not reached


class TestAnEmptyResponse:
    """How the next request differs."""

    def test_plain_retries_are_counted_one_by_one(self) -> None:
        """J20: two of them are two requests."""
        context = Context(policy=Policy(plain_retry=2))

        assert after_empty(record(fell_back=True, plain_retries=0), context) == {"plain": True, "plain_retries": 1}

    def test_reminders_are_counted_one_by_one(self) -> None:
        """S10: at most as many as the rules allow."""
        context = Context(policy=Policy(ends_on="work_complete", nudges=3))
        again = after_empty(record(nudges=1), context)

        assert again is not None and again["nudges"] == 2


class TestEndings:
    """What is told of a turn that ended."""

    def test_an_error_reply_says_why(self) -> None:
        """J16: the turn has a reply and a failure."""
        conversation = Conversation(text="fallback", on_failure="reply")
        conversation.says()
        conversation.model_fails("authentication")

        failure = conversation.ended.failure
        assert isinstance(failure, Failure) and failure.kind == "authentication"
        assert not conversation.ended.silent

    def test_a_sub_agent_that_completed_says_so(self) -> None:
        """P25: with a text of its own."""
        conversation = Conversation(presets.sub_agent(), role="sub_agent")
        conversation.says()
        step = conversation.model_says("Found it.")

        (told,) = [effect for effect in step.effects if effect.type == "notify_parent"]
        assert told.status == "completed"

    def test_a_text_that_nobody_sees_is_no_answer(self) -> None:
        """S17: a claim beside a text that only falls back is asked for its answer."""
        conversation = Conversation(text="fallback", ends_on="work_complete")
        conversation.says()
        conversation.model_calls(call("finish", acts=("work_complete",)), content="Working.")
        conversation.tool_claims("finish", "Done.")

        assert conversation.nudge() == Policy().texts.answer_missing


class TestCallsAfterCondensing:
    """Results that were condensed cannot be reused."""

    def test_the_same_call_may_be_made_again(self) -> None:
        """J8 holds for what the model can still read."""
        conversation = Conversation(repeats={"window": 9}, models=(ModelSpec(name="m", window=100),))
        conversation.says()
        conversation.model_calls("look")
        conversation.tool_ends("look")
        conversation.model_calls("again", usage=Usage(input_tokens=95))
        conversation.history_is_condensed()
        conversation.model_calls("look")

        assert conversation.tools() == ["look"]


class TestFingerprints:
    """They are kept with the turn, so they are short."""

    def test_one_has_32_digits(self) -> None:
        """16 bytes."""
        assert len(fingerprint(call("look"))) == 32
