"""The port of models: requests, answers, and how it says that there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from turnwise import (
    ConfigurationError,
    Engine,
    LlmFailure,
    ModelAnswer,
    ModelRequest,
    Policy,
    Retry,
    Rewording,
    Texts,
    Token,
    presets,
)
from turnwise.effects.model.port import LLM_FAILURES, SENTENCES
from turnwise.states import Failed
from turnwise.states.values.value import NO_FAULT_OF_A_MODEL, TRANSIENT, FailureKind
from turnwise.testing import FunctionLlm, ScriptedLlm
from turnwise.testing.doubles import call, failure, reply, verdict

from ...support.cases import holds_for

# --- J23: content as a string, a list of parts or null is read alike, whichever model it comes from.


ALIKE: list[Any] = [
    "Hello, you.",
    ["Hello, ", "you."],
    ("Hello, ", "you."),
    [{"type": "text", "text": "Hello, "}, {"type": "output_text", "text": "you."}],
    [{"text": "Hello, "}, "you.", {"type": "reference", "reference_ids": [1]}],
    [{"type": "text", "text": ["Hello, ", {"type": "text", "text": "you."}]}],
    {"type": "text", "text": "Hello, you."},
]


@pytest.mark.parametrize("content", ALIKE)
def test_a_text_is_read_in_every_shape(content: Any) -> None:
    """J23: an application's own model may pass on what its provider sent."""
    assert ModelAnswer(content=content).content == "Hello, you."


@pytest.mark.parametrize("content", [None, "", [], [None] * 0, [{"type": "text", "text": None}], [{"type": "image"}]])
def test_nothing_is_an_empty_text(content: Any) -> None:
    """J23: null, too."""
    assert (ModelAnswer(content=content).content, ModelAnswer(thinking=content).thinking) == ("", "")


def test_thinking_among_the_parts_is_kept_apart() -> None:
    """J10: it is no part of the reply, and what was already given is kept."""
    parts: Any = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}]

    answer = ModelAnswer(content=parts, thinking="First. ")

    assert (answer.content, answer.thinking) == ("Yes.", "First. Hm.")


def deep() -> list[Any]:
    """Parts within parts without an end."""
    parts: list[Any] = []
    for _ in range(100_000):
        parts = [{"type": "text", "text": parts}]
    return parts


@pytest.mark.parametrize("content", [3, [3], [[["a"]], 3], object(), b"bytes", deep()])
def test_other_content_is_a_failure(content: Any) -> None:
    """It is a fault of the provider, which may be asked again, and nothing of it is quoted."""
    with pytest.raises(LlmFailure) as caught:
        ModelAnswer(content=content)

    assert caught.value.kind == "malformed_response"


class Own:
    """A model of an application, which passes content on as it is."""

    name = "own"

    def __init__(self, content: Any) -> None:
        self.content = content

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer with the content."""
        return ModelAnswer(content=self.content)


@pytest.mark.parametrize("content", ALIKE[1:])
async def test_a_turn_is_answered_with_it(content: Any) -> None:
    """J23: through an engine, and where a text is reworded."""
    async with Engine.open("sqlite://", model=Own(content)) as engine:
        turn = await (await engine.create()).send("Hi")

    assert turn.reply == await Rewording(Own(content))("Hello") == "Hello, you."


async def test_an_answer_of_null_is_an_empty_answer() -> None:
    """J23, J11: the turn ends without a reply, and nothing fails."""
    async with Engine.open("sqlite://", model=FunctionLlm(lambda request: ModelAnswer(content=None))) as engine:  # type: ignore[arg-type]
        turn = await (await engine.create()).send("Hi")

    assert (turn.status, turn.reply) == ("incomplete", Texts().ending)


def test_every_kind_of_failure_has_a_sentence() -> None:
    """P33: one for each kind that a model request can have."""
    assert tuple(SENTENCES) == LLM_FAILURES


# --- The kinds in which a model request may fail, and what follows from each of them.


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

    @pytest.mark.parametrize("kind", ["overloaded", *sorted(NO_FAULT_OF_A_MODEL), "", None, ["timeout"]])
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
        """The machine knows four more, in which no model request ends."""
        others = {"unavailable", "unverified", "output", "interrupted"}
        assert set(get_args(FailureKind)) - set(LLM_FAILURES) == others


class TestWaits:
    """How long a provider asks to wait."""

    @holds_for(
        ("told", "known"),
        [(7, 7.0), (-1.0, 0.0), (float("inf"), None), (float("nan"), None), (10**400, None), (None, None)],
    )
    async def test_a_wait_that_does_not_end_is_none(self, told: Any, known: float | None) -> None:
        """Whatever model raises it, its turn fails for the reason that it gives."""

        def fail(_: ModelRequest) -> ModelAnswer:
            raise LlmFailure("rate_limit", "Wait.", told)

        policy = Policy(retry=Retry(attempts=1))
        async with Engine.open("sqlite://", model=FunctionLlm(fail), policy=policy) as engine:
            turn = await (await engine.create()).send("Hello")

        assert LlmFailure("rate_limit", "Wait.", told).retry_after == known
        assert str(turn.failure) == "Wait."


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
