"""J23: content as a string, a list of parts or null is read alike, whichever model it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnwise import Engine, LlmFailure, ModelAnswer, ModelRequest, Rewording, Texts, Token
from turnwise.effects.model.port import LLM_FAILURES, SENTENCES
from turnwise.testing import FunctionLlm

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
