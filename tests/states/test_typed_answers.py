"""Typed answers in the pure machine: whose form counts, what goes back, and how a turn ends with one or without."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import (
    Failed,
    Idle,
    Limits,
    LlmRequesting,
    ModelOutput,
    OutputSchema,
    Profile,
    RequestLlm,
    Texts,
    ToolExecuting,
    Verifying,
    VerifyWork,
    presets,
)

from ..support.conversation import Conversation, call, completing

TEXTS = Texts()
FORM = OutputSchema(name="report", json_schema={"type": "object"})
VALID = ModelOutput(way="native", value='{"a": 1}', reply="One.")
INVALID = ModelOutput(way="native", errors="a: Field required")


def asked(**rules: Any) -> Conversation:
    """A conversation whose model was asked for a typed answer."""
    conversation = Conversation(**rules)
    conversation.says("Report", output=FORM)
    return conversation


def final(output: ModelOutput) -> dict[str, Any]:
    """The fields of a response that gives this answer by a call, in front of all others."""
    return {"output": output.replace(calls=(0,), way="tool")}


def final_call(errors: str | None = None) -> Any:
    """That call."""
    return call("final_result", fault=errors, crash="pure")


def test_a_valid_answer_ends_the_turn() -> None:
    """The turn has its JSON, and the user what was made of it."""
    conversation = asked()

    conversation.model_says('{"a": 1}', output=VALID)

    conversation.rests_in(Idle)
    assert conversation.words(conversation.ended.output) == ['{"a": 1}']
    assert conversation.delivered() == ["One."]


def test_what_is_wrong_is_told_until_the_model_answers_again() -> None:
    """In the request, and not in the dialogue; also behind calls of tools in between."""
    conversation = asked()

    conversation.model_says("{}", output=INVALID)
    first = conversation.nudge()
    conversation.model_calls("look")
    conversation.tool_ends("look")
    second = conversation.nudge()
    conversation.model_says('{"a": 1}', output=VALID)

    assert first == second == f"{TEXTS.output_invalid}\n\na: Field required"
    conversation.rests_in(Idle)


def test_a_response_that_nobody_has_checked_is_no_answer() -> None:
    """As of a performer that does not know of forms: the turn never completes with it."""
    conversation = asked(output_retries=1)

    conversation.model_says("Well.")
    nudge = conversation.nudge()
    conversation.model_says("Well.")

    assert nudge == TEXTS.output_missing
    assert conversation.rests_in(Failed).kind == "output"


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_so_many_answers_are_sent_back_and_no_more(retries: int) -> None:
    """Whether they come as texts or by calls; other calls beside the last one do not run."""
    conversation = asked(output_retries=retries)

    for _ in range(retries):
        conversation.model_calls(final_call("a: Field required"), **final(INVALID))
        conversation.rests_in(LlmRequesting)
    conversation.model_calls(final_call("a: Field required"), "look", **final(INVALID))

    failed = conversation.rests_in(Failed)
    assert failed.sentence == f"{TEXTS.output_failed} a: Field required"
    assert TEXTS.not_run in conversation.results().values()
    assert len(conversation.requests()) == retries + 1


def test_an_answer_beside_other_calls_counts_when_they_have_succeeded() -> None:
    """They run first."""
    conversation = asked()

    conversation.model_calls(final_call(), "look", **final(VALID))
    conversation.rests_in(ToolExecuting)
    conversation.tool_ends("look")

    conversation.rests_in(Idle)
    assert conversation.ended.status == "completed"
    assert conversation.words(conversation.ended.output) == ['{"a": 1}']


def test_it_does_not_count_if_one_of_them_failed() -> None:
    """The model is asked again, and has seen why."""
    conversation = asked()

    conversation.model_calls(final_call(), "look", **final(VALID))
    conversation.tool_ends("look", "No.", error=True)

    conversation.rests_in(LlmRequesting)
    conversation.model_says('{"a": 1}', output=VALID)
    assert conversation.ended.output is not None


def test_the_newest_message_that_names_a_form_decides() -> None:
    """Of those that begin a turn, and of those that are steered into it; then the answers count anew."""
    conversation = Conversation(when_busy="steer", output_retries=1)
    conversation.says("Report", output=FORM)
    conversation.model_says("{}", output=INVALID)
    conversation.says("Otherwise", output=FORM.replace(name="other"))
    conversation.says("And quickly")

    conversation.model_calls("look")
    conversation.tool_ends("look")
    first, steered = conversation.requests()[0].output, conversation.requests()[-1].output
    conversation.model_says("{}", output=INVALID)
    conversation.rests_in(LlmRequesting)
    conversation.model_says("{}", output=INVALID)

    assert first is not None
    assert steered is not None
    assert steered != first
    conversation.rests_in(Failed)


def test_a_profile_and_a_conversation_ask_for_a_form() -> None:
    """A message that names none leaves it to them."""
    of_profile = Conversation(profiles=(Profile(name="reports", output=FORM),))
    of_profile.says("Report")

    (request,) = of_profile.requests()
    of_profile.model_says('{"a": 1}', output=VALID)

    assert request.output is not None
    assert request.output.seq is None
    assert of_profile.ended.output is not None


def test_without_a_form_an_answer_is_a_text() -> None:
    """Whatever a response says of itself."""
    conversation = Conversation()
    conversation.says("Hello")

    conversation.model_says('{"a": 1}', output=VALID)

    assert conversation.ended.output is None
    assert conversation.delivered() == ['{"a": 1}']


def test_a_claim_does_not_end_a_turn_that_wants_an_answer() -> None:
    """The answer is the claim, and is checked as one."""
    conversation = Conversation(presets.explicit_response())
    conversation.says("Report", output=FORM)

    conversation.model_calls(completing())
    conversation.tool_claims()
    conversation.rests_in(LlmRequesting)
    conversation.model_says('{"a": 1}', output=VALID)
    conversation.rests_in(Verifying)
    check = conversation.in_flight()[conversation.flying(VerifyWork)]
    assert isinstance(check, VerifyWork)
    assert conversation.words(check.claim) == ["One."]
    conversation.verifier_says(False, "Two.")
    conversation.rests_in(LlmRequesting)
    conversation.model_says('{"a": 1}', output=VALID)
    conversation.verifier_says(True)

    assert conversation.ended.status == "completed"
    assert conversation.ended.output is not None


def test_a_limit_ends_the_turn_as_incomplete() -> None:
    """It is the limit that ends it, and not the form."""
    conversation = asked(limits=Limits(requests=1))

    conversation.model_says("{}", output=INVALID)

    assert (conversation.ended.status, conversation.ended.limit) == ("incomplete", "requests")
    assert conversation.ended.output is None


def test_a_failed_turn_that_is_tried_again_asks_for_the_same_form() -> None:
    """Its message is in the transcript already."""
    conversation = asked(output_retries=0)
    conversation.model_says("{}", output=INVALID)

    conversation.tries_again()

    again = conversation.in_flight()[conversation.flying(RequestLlm)]
    assert isinstance(again, RequestLlm)
    assert again.output == conversation.requests()[0].output


def test_a_failure_becomes_a_reply_where_the_rules_say_so() -> None:
    """It still has the kind `output`."""
    conversation = asked(output_retries=0, on_failure="reply")

    conversation.model_says("{}", output=INVALID)

    conversation.rests_in(Idle)
    assert conversation.ended.failure is not None
    assert conversation.ended.failure.kind == "output"
