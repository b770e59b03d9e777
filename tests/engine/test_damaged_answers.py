"""Answers that were made past their validation: none of them reaches a log, whoever hands it in.

A dispatcher of the application gets a sentence, and the conversation still waits. A performer that returns one to the
built-in dispatcher has failed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from turnwise import Conversation, Engine, InvalidInput, Usage, tool
from turnwise.effects.context import EffectContext
from turnwise.states import (
    Answer,
    AskUserQuestionPending,
    Effect,
    EffectFailed,
    LlmResponse,
    RequestLlm,
    ToolCall,
    ToolComplete,
    ToolResult,
)
from turnwise.states.events import exact
from turnwise.states.values.messages import MAX_IMAGES, Image
from turnwise.states.values.questions import MAX_HEADER, UserQuestion
from turnwise.testing import FunctionLlm, ScriptedLlm, call, reply
from turnwise.testing.doubles import NOON

from ..support.engine_scenarios import until

pytestmark = pytest.mark.faults

PICTURE = "https://example.com/picture.png"


class Shouted(LlmResponse):
    """A response of somebody's own type."""


class Incomparable:
    """An id that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("compared")

    __hash__ = None  # type: ignore[assignment]


def response(effect_id: int, **fields: Any) -> LlmResponse:
    """A response with these fields, made without validation."""
    return LlmResponse.model_construct(**{"type": "llm_response", "effect_id": effect_id, "at": NOON, **fields})


def result(effect_id: int, **fields: Any) -> ToolComplete:
    """A result with these fields, made without validation."""
    made = ToolResult.model_construct(**{"text": "x", **fields})
    return ToolComplete.model_construct(type="tool_complete", effect_id=effect_id, at=NOON, result=made)


def question(effect_id: int, **fields: Any) -> AskUserQuestionPending:
    """A question with these fields, made without validation."""
    asked = UserQuestion.model_construct(**{"question": "When?", **fields})
    return AskUserQuestionPending.model_construct(
        type="ask_user_question_pending", effect_id=effect_id, at=NOON, questions=(asked,)
    )


DAMAGED: dict[str, Callable[[int], Any]] = {
    "nothing in it": lambda effect_id: LlmResponse.model_construct(effect_id=effect_id),
    "no fields at all": lambda effect_id: LlmResponse.__new__(LlmResponse),
    "negative usage": lambda effect_id: response(effect_id, usage=Usage.model_construct(input_tokens=-1)),
    "usage of another type": lambda effect_id: response(effect_id, usage={"input_tokens": 1}),
    "a number as its text": lambda effect_id: response(effect_id, content=5),
    "a text as its id": lambda effect_id: response(effect_id).replace(effect_id=str(effect_id)),
    "an id that cannot be compared": lambda effect_id: response(effect_id).replace(effect_id=Incomparable()),
    "another type": lambda effect_id: response(effect_id, type="user_message"),
    "a moment without a zone": lambda effect_id: response(effect_id, at=NOON.replace(tzinfo=None)),
    "half a character": lambda effect_id: response(effect_id, content="\ud800"),
    "half a character in a call": lambda effect_id: response(
        effect_id, tool_calls=(ToolCall.model_construct(call_id="a", name="\udfff"),)
    ),
    "calls with one id": lambda effect_id: response(effect_id, tool_calls=(ToolCall(call_id="a", name="b"),) * 2),
    "no number in a block": lambda effect_id: response(effect_id, opaque=({"a": [float("nan")]},)),
    "an infinite number in a block": lambda effect_id: response(effect_id, opaque=({"a": {"b": float("inf")}},)),
    "an object in a block": lambda effect_id: response(effect_id, opaque=({"a": object()},)),
    "half a character in a result": lambda effect_id: result(effect_id, text="\ud800"),
    "no text in a result": lambda effect_id: result(effect_id, text=None),
    "too many images": lambda effect_id: result(effect_id, images=(Image(url=PICTURE),) * (MAX_IMAGES + 1)),
    "a header that is too long": lambda effect_id: question(effect_id, header="x" * (MAX_HEADER + 1)),
    "an unknown kind of failure": lambda effect_id: EffectFailed.model_construct(
        type="effect_failed", effect_id=effect_id, at=NOON, kind="odd", sentence="No."
    ),
    "a class of the application": lambda effect_id: Shouted(effect_id=effect_id, at=NOON, content="HELLO"),
}
"""What answers may hold that were made past their validation, by the effect that they answer."""


class NothingRuns:
    """A dispatcher of an application that carries out nothing by itself: the test answers."""

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Start nothing."""

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Nothing runs here."""

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Nothing is sent here."""

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Nothing runs here."""

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Nothing is sent here."""


async def assert_can_be_read(path: Path, conversation: Conversation, *texts: str) -> None:
    """A fresh engine finds these messages in the file, and the log replays."""
    async with Engine.open(path, model=ScriptedLlm([])) as fresh:
        read = await fresh.get(conversation.id)

        assert [message.text for message in await read.transcript()] == list(texts)
        assert (await read.replay()).divergence is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGED)
async def test_a_dispatcher_gets_a_sentence_and_the_conversation_still_waits(database: Path, kind: str) -> None:
    """P33: nothing is stored, a good answer to the same effect is taken afterwards, and the log can be read."""
    async with Engine.open(database, model=ScriptedLlm([]), dispatcher=NothingRuns()) as engine:
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi."))
        await until(lambda: bool(conversation.state.in_flight()))
        (effect_id,) = conversation.state.in_flight()
        before = await conversation.events()

        with pytest.raises(InvalidInput) as refused:
            engine.answer(conversation.id, DAMAGED[kind](effect_id))

        assert refused.value.sentence == "The answer does not hold what it declares."
        assert await conversation.events() == before
        assert set(conversation.state.in_flight()) == {effect_id}
        engine.answer(conversation.id, LlmResponse(effect_id=effect_id, at=NOON, content="Here."))
        assert (await turn).reply == "Here."

    await assert_can_be_read(database, conversation, "Hi.", "Here.")


async def test_it_is_refused_before_its_conversation_is_looked_for() -> None:
    """The dispatcher gets the sentence although the conversation is not in memory, and is loaded later."""
    async with Engine.open("sqlite://", model=ScriptedLlm([]), dispatcher=NothingRuns()) as engine:
        with pytest.raises(InvalidInput):
            engine.answer("not in memory", response(1, content=5))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGED)
async def test_a_performer_that_returns_one_has_failed(
    database: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P5: its turn fails instead of waiting for ever, the log of the application says why, and the next turn works."""
    answers = [DAMAGED[kind], lambda effect_id: LlmResponse(effect_id=effect_id, at=NOON, content="Here.")]

    async def ask(effect: RequestLlm, context: EffectContext) -> Answer:
        answer: Answer = answers.pop(0)(effect.effect_id)
        return answer

    async with Engine.open(database, model=ScriptedLlm([]), performers={RequestLlm: ask}) as engine:
        conversation = await engine.create()
        async with asyncio.timeout(60):
            failed = await conversation.send("Hi.")
            better = await conversation.send("Hi again.")

    assert (failed.status, better.reply) == ("failed", "Here.")
    assert "A performer failed on request_llm." in caplog.text
    await assert_can_be_read(database, conversation, "Hi.", "Hi again.", "Here.")


@tool(crash="pure")
async def find_table(party: int) -> str:
    """Look for free tables."""
    return "Kikunoi at 6:30 PM."


async def test_each_answer_is_validated_once() -> None:
    """`exact` is called once for each answer."""
    validated = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal validated
        validated += event == "call" and frame.f_code is exact.__code__

    answers: list[Any] = [call("find_table", party=2), reply("There is one.")]
    model = FunctionLlm(lambda request: answers.pop(0))
    async with Engine.open("sqlite://", model=model, tools=[find_table]) as engine:
        conversation = await engine.create()
        sys.setprofile(count)
        try:
            turn = await conversation.send("For two")
        finally:
            sys.setprofile(None)

    assert turn.reply == "There is one."
    assert validated == 3  # of the model, of the tool, and of the model again
