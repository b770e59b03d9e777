"""Results that the machine itself makes: what the model reads where a tool said nothing, and whether it is an error."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import EffectFailed, Limits, Questions, Texts

from ..support.conversation import Conversation, asking, call

TEXTS = Texts()


def tells(conversation: Conversation) -> dict[str, tuple[str, bool]]:
    """The result of each call, and whether it tells of an error."""
    return {m.tool_call_id: (m.text, m.error) for m in conversation.transcript if m.tool_call_id is not None}


def asked(**rules: Any) -> Conversation:
    """A conversation that waits for an answer, with a call queued behind the question."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.model_calls(asking(), "write")
    conversation.tool_asks()
    return conversation


class TestErrors:
    """A call that did not do what it was called for."""

    def test_a_call_that_was_stopped(self) -> None:
        """P6: cancelled, and those behind it skipped."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", "b")
        conversation.cancels()

        conversation.tool_stops("a")

        assert tells(conversation) == {"a": (TEXTS.cancelled, True), "b": (TEXTS.skipped, True)}

    def test_a_call_that_did_not_stop(self) -> None:
        """P6: nobody waits for it any longer."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a")
        conversation.cancels()

        conversation.timer_rings()

        assert tells(conversation) == {"a": (TEXTS.cancelled, True)}

    def test_a_question_that_came_too_late(self) -> None:
        """It is not asked any more."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.cancels()

        conversation.tool_asks()

        assert tells(conversation) == {"ask": (TEXTS.cancelled, True)}

    def test_a_question_beside_running_tools(self) -> None:
        """It cannot be asked."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("read", "ask")

        conversation.tool_asks("ask")

        assert tells(conversation) == {"ask": (TEXTS.question_not_exclusive, True)}

    @pytest.mark.parametrize("end", [Conversation.cancels, Conversation.closes])
    def test_a_question_that_was_cancelled(self, end: Any) -> None:
        """P17, `idle`: and what stood behind it is skipped. A close does the same."""
        conversation = asked()

        end(conversation)

        assert tells(conversation) == {"ask": (TEXTS.question_cancelled, True), "write": (TEXTS.skipped, True)}

    def test_a_question_that_may_not_stand_beside_others(self) -> None:
        """P13, `alone`."""
        conversation = Conversation(questions=Questions(alongside="alone"))
        conversation.says()

        conversation.model_calls(asking(), "write")

        assert set(tells(conversation).values()) == {(TEXTS.question_not_alone, True)}

    def test_calls_that_ask_nothing_may_always_stand_together(self) -> None:
        """P13, `alone`: it is about questions."""
        conversation = Conversation(questions=Questions(alongside="alone"))
        conversation.says()

        conversation.model_calls("read", "write")

        assert conversation.tools() == ["read"]

    def test_a_call_that_was_cut_off(self) -> None:
        """P41: it may be incomplete."""
        conversation = Conversation()
        conversation.says()

        conversation.model_calls("a", finish_reason="length")

        assert tells(conversation) == {"a": (TEXTS.cut_off, True)}

    def test_a_call_beyond_the_limit(self) -> None:
        """It was not run."""
        conversation = Conversation(limits=Limits(tool_calls=0))
        conversation.says()

        conversation.model_calls("a")

        assert tells(conversation) == {"a": (TEXTS.not_run, True)}

    def test_a_call_with_a_fault_and_one_that_broke(self) -> None:
        """P5: the fault is the result."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("breaks", call("b", fault="There is no tool called b."))

        conversation.tool_breaks("breaks", "It took too long.")

        assert tells(conversation) == {"breaks": ("It took too long.", True), "b": ("There is no tool called b.", True)}


class TestNoErrors:
    """What a person says, or does not say, is no fault of the call."""

    def test_an_answer(self) -> None:
        """P14: as it was given."""
        conversation = asked()

        conversation.answers({"When?": "今"}, annotations={"When?": {"notes": "とても"}})

        said = '{"answers": {"When?": "今"}, "annotations": {"When?": {"notes": "とても"}}}'
        assert tells(conversation) == {"ask": (said, False)}

    def test_several_choices_as_text(self) -> None:
        """P14, readable: with a comma between them."""
        conversation = Conversation(questions=Questions(answer="readable", partial=True))
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks()

        conversation.answers({"When?": ["Now", "Later"]})

        assert tells(conversation) == {"ask": ("Question: When?\nAnswer: Now, Later", False)}

    def test_no_wish_to_answer(self) -> None:
        """P17, `resume`."""
        conversation = asked(questions=Questions(cancel="resume"))

        conversation.cancels()

        assert tells(conversation) == {"ask": (TEXTS.declined, False)}

    def test_no_answer_in_time(self) -> None:
        """The model goes on by its own judgment."""
        conversation = asked(questions=Questions(deadline=60))

        conversation.timer_rings()

        assert tells(conversation) == {"ask": (TEXTS.unanswered, False)}


class TestEndings:
    """What a turn came to, where the model gave no answer."""

    def test_a_last_request_that_only_calls(self) -> None:
        """`answer_now`: a sentence of ours is what the person reads."""
        conversation = Conversation(limits=Limits(requests=1))
        conversation.says()

        step = conversation.model_calls("a")

        assert step.ended is not None and step.ended.final_content is not None
        assert step.ended.final_content.text == TEXTS.limit

    def test_a_failure(self) -> None:
        """P11: the kind for programs and the sentence for people, as the state says them."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_fails("authentication")

        assert step.ended is not None and step.ended.failure is not None
        assert (step.ended.failure.kind, step.ended.failure.sentence) == ("authentication", "The model is not well.")

    def test_a_request_that_could_not_be_made(self) -> None:
        """P11: an effect that failed is told like a model that did."""
        conversation = Conversation()
        conversation.says()

        step = conversation.happens(EffectFailed, effect_id=1, kind="internal", sentence="It broke.")

        assert step.ended is not None and step.ended.failure is not None
        assert step.ended.failure.sentence == "It broke."

    def test_only_what_was_cut_off_is_truncated(self) -> None:
        """P41: a turn that was stopped, failed or ended at a limit is not."""
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
        """From the log alone it can be told again."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("Good day")

        assert conversation.history.log[-1].ended == step.ended is not None
