"""Results that the machine itself makes where a tool gave none: their text, and whether they are errors."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import EffectFailed, Limits, Questions, Texts

from ..support.conversation import Conversation, asking, call

TEXTS = Texts()


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

        assert tells(conversation) == {"a": (TEXTS.cancelled, True), "b": (TEXTS.skipped, True)}

    def test_a_call_that_did_not_stop(self) -> None:
        """P6: a call that did not stop in time is cancelled too."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a")
        conversation.cancels()

        conversation.timer_rings()

        assert tells(conversation) == {"a": (TEXTS.cancelled, True)}

    def test_a_question_that_came_too_late(self) -> None:
        """A question that arrives after the cancel is not asked; its call is cancelled."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.cancels()

        conversation.tool_asks()

        assert tells(conversation) == {"ask": (TEXTS.cancelled, True)}

    def test_a_question_beside_running_tools(self) -> None:
        """A question of a tool beside other running tools cannot be asked; its call gets an error result."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("read", "ask")

        conversation.tool_asks("ask")

        assert tells(conversation) == {"ask": (TEXTS.question_not_exclusive, True)}

    @pytest.mark.parametrize("end", [Conversation.cancels, Conversation.closes])
    def test_a_question_that_was_cancelled(self, end: Any) -> None:
        """P17: under `idle` a cancelled question gets an error result and the calls behind it are skipped; closing does
        the same."""
        conversation = asked()

        end(conversation)

        assert tells(conversation) == {"ask": (TEXTS.question_cancelled, True), "write": (TEXTS.skipped, True)}

    def test_a_question_that_may_not_stand_beside_others(self) -> None:
        """P13: under `alone` every call of a response with a question beside others gets an error result."""
        conversation = Conversation(questions=Questions(alongside="alone"))
        conversation.says()

        conversation.model_calls(asking(), "write")

        assert set(tells(conversation).values()) == {(TEXTS.question_not_alone, True)}

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

        assert tells(conversation) == {"a": (TEXTS.cut_off, True)}

    def test_a_call_beyond_the_limit(self) -> None:
        """A call beyond the limit does not run."""
        conversation = Conversation(limits=Limits(tool_calls=0))
        conversation.says()

        conversation.model_calls("a")

        assert tells(conversation) == {"a": (TEXTS.not_run, True)}

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

        assert tells(conversation) == {"ask": (TEXTS.declined, False)}

    def test_no_answer_in_time(self) -> None:
        """A question that nobody answers in time has a result that tells the model to go on."""
        conversation = asked(questions=Questions(deadline=60))

        conversation.timer_rings()

        assert tells(conversation) == {"ask": (TEXTS.unanswered, False)}


class TestEndings:
    """How a turn ends without an answer of the model."""

    def test_a_last_request_that_only_calls(self) -> None:
        """With `answer_now`, calls in the last response do not run, and the turn ends with the policy's sentence for
        the limit."""
        conversation = Conversation(limits=Limits(requests=1))
        conversation.says()

        step = conversation.model_calls("a")

        assert step.ended is not None and step.ended.final_content is not None
        assert step.ended.final_content.text == TEXTS.limit

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
