"""Dispatchers that hosts plug in: whatever they do, a conversation either goes on or says why it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from turnwise import Engine, EngineClosed, EngineElsewhere, InvalidInput
from turnwise.effects.clock import Clock
from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import Performer
from turnwise.engine.ports import Dispatcher
from turnwise.states import Answer, Effect, LlmResponse, StoreError, ToolComplete, ToolResult, UserMessage
from turnwise.states.effects import AwaitedEffect
from turnwise.testing import FunctionLlm, reply
from turnwise.testing.doubles import NOON

Started = Callable[["HostDispatcher", AwaitedEffect, EffectContext], None]


class HostDispatcher:
    """A dispatcher that does with each awaited effect what a test wants, and nothing else."""

    def __init__(self, answer: Callable[[str, Answer], None], started: Started, stop_error: Exception | None) -> None:
        self.answer = answer
        self.started = started
        self.stop_error = stop_error

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Hand each awaited effect to the test."""
        for effect in effects:
            if isinstance(effect, AwaitedEffect):
                self.started(self, effect, context)

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Nothing runs here."""

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Nothing is sent here."""

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Fail if the test wants it."""
        if self.stop_error is not None:
            raise self.stop_error

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Nothing is sent here."""


def engine(started: Started, stop_error: Exception | None = None) -> Engine:
    """An engine in memory with such a dispatcher."""

    def make(
        performers: Mapping[type[Effect], Performer], clock: Clock, answer: Callable[[str, Answer], None]
    ) -> Dispatcher:
        return HostDispatcher(answer, started, stop_error)

    return Engine.open("sqlite://", model=FunctionLlm(lambda _: reply("Unused.")), dispatcher=make)


def response(effect: AwaitedEffect, text: str = "Here.") -> LlmResponse:
    """What a model says."""
    return LlmResponse(effect_id=effect.effect_id, at=NOON, content=text)


class TestAnswers:
    """What comes in by `Engine.answer`."""

    async def test_inside_of_dispatch_is_taken(self) -> None:
        """The dispatcher may have the answer at once; a second answer to the same effect is dropped."""

        def started(self: HostDispatcher, effect: AwaitedEffect, context: EffectContext) -> None:
            self.answer(context.conversation_id, response(effect, "First."))
            self.answer(context.conversation_id, response(effect, "Second."))

        async with engine(started) as opened:
            conversation = await opened.create()
            assert (await conversation.send("Hi.")).reply == "First."
            assert len(await conversation.events()) == 3

    async def test_to_other_effects_are_dropped(self) -> None:
        """Unknown effects, answers of another kind than the effect takes, and unknown conversations change nothing."""

        def started(self: HostDispatcher, effect: AwaitedEffect, context: EffectContext) -> None:
            self.answer(context.conversation_id, LlmResponse(effect_id=1000, at=NOON, content="Forged."))
            tool = ToolComplete(effect_id=effect.effect_id, at=NOON, result=ToolResult(text="Forged."))
            self.answer(context.conversation_id, tool)
            self.answer("nobody", response(effect))
            self.answer(context.conversation_id, response(effect))

        async with engine(started) as opened:
            conversation = await opened.create()
            assert (await conversation.send("Hi.")).reply == "Here."
            assert len(await conversation.events()) == 3

    @pytest.mark.parametrize("junk", ["Here.", None, UserMessage(event_id="m2", at=NOON, text="I am the user.")])
    async def test_must_be_answers(self, junk: Any) -> None:
        """Anything else is refused at the door, and the conversation goes on."""
        errors: list[str] = []

        def started(self: HostDispatcher, effect: AwaitedEffect, context: EffectContext) -> None:
            try:
                self.answer(context.conversation_id, junk)
            except InvalidInput as error:
                errors.append(error.sentence)
            self.answer(context.conversation_id, response(effect))

        async with engine(started) as opened:
            conversation = await opened.create()
            assert (await conversation.send("Hi.")).reply == "Here."

        assert errors == ["What a dispatcher hands in is an answer to an effect."]

    @pytest.mark.parametrize("conversation_id", [None, 5, [], "x" * 1000])
    async def test_are_for_a_conversation(self, conversation_id: Any) -> None:
        """What cannot be the id of one is refused at the door."""
        async with engine(lambda self, effect, context: None) as opened:
            with pytest.raises(InvalidInput):
                opened.answer(conversation_id, LlmResponse(effect_id=1, at=NOON, content="Hello."))

    async def test_from_another_thread_are_refused_there(self) -> None:
        """The thread that made the mistake gets the error, and nothing has changed."""
        begun = asyncio.Event()
        async with engine(lambda self, effect, context: begun.set()) as opened:
            conversation = await opened.create()
            going = asyncio.ensure_future(conversation.send("Hi."))
            await begun.wait()
            (effect_id,) = conversation.state.in_flight()
            answer = LlmResponse(effect_id=effect_id, at=NOON, content="Here.")

            with pytest.raises(EngineElsewhere):
                await asyncio.to_thread(opened.answer, conversation.id, answer)
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(loop.call_soon_threadsafe, opened.answer, conversation.id, answer)

            assert (await going).reply == "Here."


class TestFailures:
    """Dispatchers that raise."""

    @pytest.mark.parametrize("failure", [OSError("no broker"), asyncio.CancelledError()])
    async def test_the_conversation_is_taken_over_when_dispatch_raises(self, failure: BaseException) -> None:
        """The step is stored. The caller gets an error instead of waiting for ever, and whoever asks next finds the
        effect asked for again."""
        failures = [failure]

        def started(self: HostDispatcher, effect: AwaitedEffect, context: EffectContext) -> None:
            if failures:
                raise failures.pop()
            self.answer(context.conversation_id, response(effect))

        async with engine(started) as opened:
            conversation = await opened.create()
            with pytest.raises(StoreError, match="Something broke"):
                await conversation.send("Hi.", message_id="m1")
            again = await opened.get(conversation.id)

            assert (await again.send("Hi.", message_id="m1")).reply == "Here."
            assert [entry.event.type for entry in await again.events()][1:] == [
                "user_message",
                "resumed",
                "llm_response",
            ]

    async def test_callers_are_told_when_stop_raises(self) -> None:
        """The engine closes, and whoever waits learns so."""
        begun = asyncio.Event()
        opened = await engine(lambda self, effect, context: begun.set(), OSError("no broker"))
        going = asyncio.ensure_future((await opened.create()).send("Hi."))
        await begun.wait()

        await opened.close()

        with pytest.raises(EngineClosed):
            await going
