"""The kinds in which a model request may fail, and what follows from each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from turnwise import ConfigurationError, Engine, LlmFailure, ModelAnswer, ModelRequest, Policy, Retry, Token, presets
from turnwise.effects.model.port import LLM_FAILURES
from turnwise.states import Failed
from turnwise.states.values.value import TRANSIENT, FailureKind
from turnwise.testing import ScriptedLlm
from turnwise.testing.doubles import FunctionLlm, call, failure, reply, verdict

from ...support.cases import holds_for

QUICK = Policy(retry=Retry(attempts=2, base=0.0))


class TestKinds:
    """`LlmFailure.kind` decides what is done about a failure."""

    @holds_for("kind", sorted(set(LLM_FAILURES) - {"context_window"}))
    async def test_a_transient_failure_is_tried_again_and_then_by_the_next_model(self, kind: FailureKind) -> None:
        """P33: every other one fails the turn at once, with its kind and its sentence."""
        first = FunctionLlm(lambda request: failure(kind, "Not now."), name="first")
        second = ScriptedLlm(["Hello."], name="second")

        async with Engine.open("sqlite://", model=first, fallback_models=[second]) as engine:
            conversation = await engine.create(policy=QUICK)
            turn = await conversation.send("Hi")
            state = conversation.state

        if kind in TRANSIENT:
            assert (turn.status, turn.reply, len(first.requests)) == ("completed", "Hello.", 2)
        else:
            assert isinstance(state, Failed)
            told = f"Not now. {QUICK.texts.words_withheld}" if kind == "content_filter" else "Not now."
            assert (turn.failure, state.kind, len(first.requests)) == (told, kind, 1)

    async def test_a_request_that_was_too_long_is_condensed_first(self) -> None:
        """And sent again once."""
        answers: list[Any] = [
            reply("Hello."),
            failure("context_window"),
            reply("They greet each other."),
            reply("Well."),
        ]

        async with Engine.open("sqlite://", model=ScriptedLlm(answers)) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            turn = await conversation.send("How are you?")

        assert turn.reply == "Well."

    @pytest.mark.parametrize("kind", ["overloaded", "unavailable", "unverified", "interrupted", "", None, ["timeout"]])
    def test_another_kind_is_refused_where_it_is_raised(self, kind: Any) -> None:
        """Also the kinds in which only other effects fail."""
        with pytest.raises(ConfigurationError) as caught:
            LlmFailure(kind, "The model is overloaded.")

        known = "rate_limit, server_error, timeout, network, malformed_response, authentication, no_credit"
        assert caught.value.sentence.startswith(f"An LlmFailure cannot be of the kind {kind}. Known: {known}, ")

    async def test_in_a_turn_it_fails_the_turn_and_the_log_says_why(self, caplog: pytest.LogCaptureFixture) -> None:
        """P34: nothing hangs, and the next turn works."""
        unknown: Any = "overloaded"
        answers: list[Callable[[], Any]] = [lambda: failure(unknown), lambda: "Hello."]

        async with Engine.open("sqlite://", model=FunctionLlm(lambda request: answers.pop(0)())) as engine:
            conversation = await engine.create()
            failed, state = await conversation.send("Hi"), conversation.state
            turn = await conversation.send("Hi again")

        assert isinstance(state, Failed)
        assert (failed.status, state.kind, turn.reply) == ("failed", "internal", "Hello.")
        assert "An LlmFailure cannot be of the kind overloaded." in caplog.text

    def test_every_kind_of_a_model_is_a_kind_of_failure(self) -> None:
        """The machine knows three more, in which no model request ends."""
        assert set(get_args(FailureKind)) - set(LLM_FAILURES) == {"unavailable", "unverified", "interrupted"}


class Recorder:
    """A model that answers each purpose from a script, and records what it was asked."""

    def __init__(self, **scripts: list[ModelAnswer]) -> None:
        self.requests: list[ModelRequest] = []
        self._scripts = scripts

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """The next answer of the purpose."""
        self.requests.append(request)
        return self._scripts[request.purpose].pop(0)


async def test_every_request_has_the_id_of_its_conversation() -> None:
    """Whatever it is for, so that a model can count, cache or route by it."""
    model = Recorder(
        converse=[call("mark_work_complete", summary="Read."), reply("Done.")],
        check=[verdict(True)],
        summarize=[reply("It was read.")],
        condense=[reply("They read.")],
    )
    policy = presets.explicit_response().replace(summarize=True)

    async with Engine.open("sqlite://", model=model, tools=["respond_to_user", "mark_work_complete"]) as engine:
        conversation = await engine.create(policy=policy)
        await conversation.send("Read me it")
        await conversation.compact()

    assert {request.purpose for request in model.requests} == {"converse", "check", "summarize", "condense"}
    assert {request.conversation_id for request in model.requests} == {conversation.id}
