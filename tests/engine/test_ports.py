"""The ports of an engine: a store, performers and a dispatcher of the application's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from tests.support.effect_ids import unmarked
from turnwise import ConfigurationError, Engine, ModelAnswer, Policy
from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import LoadedConversation, Store
from turnwise.states import (
    Effect,
    Event,
    ExecuteTool,
    LlmResponse,
    RequestLlm,
    Step,
    StoreError,
    ToolComplete,
    ToolResult,
)
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, ScriptedLlm, call, calls, reply
from turnwise.testing.doubles import NOON

from ..support.engine_scenarios import Gate, answers_after, until
from ..support.planted.stores import WrappedLog, WrappedStore


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """An open store in memory."""
    store = await open_store("sqlite://")
    yield store
    await store.close()


class StoreWrapper:
    """A store that passes every call on to another one."""

    def __init__(self, store: Store) -> None:
        self.wrapped = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    async def create(self, *arguments: Any, **options: Any) -> Any:
        """Pass on."""
        return await self.wrapped.create(*arguments, **options)

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Pass on."""
        return await self.wrapped.load(conversation_id)


class TestAStore:
    """An open store in place of a URL."""

    async def test_stays_open_when_the_engine_closes(self, store: Store) -> None:
        """It belongs to whoever opened it, who may open the next engine over it."""
        async with Engine.open(store=store, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")

        async with Engine.open(store=store, model=ScriptedLlm([reply("Again.")])) as engine:
            assert (await (await engine.get(conversation.id)).send("Hi again")).reply == "Again."

    async def test_a_closed_engine_stores_nothing_more(self, store: Store) -> None:
        """Although the store is still open, a handle of the engine takes no request."""
        async with Engine.open(store=store, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

        with pytest.raises(Exception, match="The engine is closed"):
            await conversation.send("Hi")
        assert len(await store.entries(conversation.id)) == 1

    @pytest.mark.parametrize(
        "options",
        [{}, {"url": "a.db", "store": "a store"}, {"store": 5}, {"store": StoreWrapper}],
        ids=["neither", "both", "a number", "a class"],
    )
    def test_is_given_instead_of_a_url(self, options: dict[str, Any]) -> None:
        """Neither, both, or something that is not a store is refused at once."""
        with pytest.raises(ConfigurationError) as refused:
            Engine.open(**options)

        assert "\n" not in refused.value.sentence


class TestLoading:
    """A conversation is loaded once, and loads do not wait for one another."""

    async def test_a_slow_load_does_not_delay_others(self, store: Store) -> None:
        """While one conversation is being read, another one can be asked for."""
        gate = Gate()

        class Slow(StoreWrapper):
            async def load(self, conversation_id: str) -> LoadedConversation:
                if conversation_id == slow.id:
                    await gate()
                return await super().load(conversation_id)

        async with Engine.open(store=store, model=ScriptedLlm([])) as engine:
            slow, quick = await engine.create(), await engine.create()
        async with Engine.open(store=Slow(store), model=ScriptedLlm([])) as engine:
            waiting = asyncio.ensure_future(engine.get(slow.id))
            await gate.arrived.wait()

            assert (await engine.get(quick.id)).id == quick.id
            gate.opened.set()
            assert (await waiting).id == slow.id

    async def test_whoever_asks_meanwhile_shares_the_load(self, store: Store) -> None:
        """Also if the first one who asked does not wait any longer."""
        gate = Gate()
        loads: list[str] = []

        class Slow(StoreWrapper):
            async def load(self, conversation_id: str) -> LoadedConversation:
                loads.append(conversation_id)
                await gate()
                return await super().load(conversation_id)

        async with Engine.open(store=store, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()
        async with Engine.open(store=Slow(store), model=ScriptedLlm([])) as engine:
            first, second = (asyncio.ensure_future(engine.get(conversation.id)) for _ in range(2))
            await gate.arrived.wait()
            first.cancel()
            gate.opened.set()

            assert (await second).id == conversation.id
            assert loads == [conversation.id]


class TestReadingAndTakingOver:
    """To read a conversation changes nothing; what the store hands out is taken over."""

    async def test_what_was_not_claimed_is_only_read(self, store: Store) -> None:
        """A model request of another engine is in flight: it is neither reported nor asked for again."""

        class HandsOutNothing(StoreWrapper):
            async def claim(self, limit: int) -> tuple[str, ...]:
                return ()

        gate = Gate()
        async with Engine.open(store=store, model=FunctionLlm(answers_after(gate, "Late."))) as driving:
            conversation = await driving.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            before = await store.entries(conversation.id)
            async with Engine.open(store=HandsOutNothing(store), model=ScriptedLlm([])) as reading:
                handle = await reading.get(conversation.id)
                assert handle.state.type == "llm_requesting"
                assert [message.text for message in await handle.transcript()] == ["Hi"]
                await asyncio.sleep(0.01)
            assert await store.entries(conversation.id) == before

            gate.opened.set()
            assert (await turn).reply == "Late."

    async def test_what_could_not_be_loaded_is_taken_over_when_it_is_asked_for(self, store: Store) -> None:
        """A store that fails while the engine opens does not leave a turn waiting for ever."""

        class FailsOnce(StoreWrapper):
            failures = 1

            async def load(self, conversation_id: str) -> LoadedConversation:
                if self.failures:
                    self.failures -= 1
                    raise StoreError("The disk is busy.")
                return await super().load(conversation_id)

        gate = Gate()
        async with Engine.open(store=store, model=FunctionLlm(answers_after(gate, "Lost."))) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", wait=False)
            await gate.arrived.wait()

        async with Engine.open(store=FailsOnce(store), model=FunctionLlm(lambda _: "Here.")) as engine:
            handle = await engine.get(conversation.id)
            await until(lambda: handle.state.type == "idle")

            assert [message.text for message in await handle.transcript()] == ["Hi", "Here."]


class TestPerformers:
    """Performers of the application's own, by type of effect."""

    async def test_replace_the_built_in_ones(self) -> None:
        """A performer sees its effect and the context, and its answer is stored."""
        seen: list[Any] = []

        async def ask(effect: RequestLlm, context: EffectContext) -> LlmResponse:
            said = [message.text for message in (await context.transcript()).messages]
            seen.append((unmarked(context.key(effect.effect_id)), context.turn, context.policy.models[0].name, said))
            return LlmResponse(effect_id=effect.effect_id, at=NOON, content="From elsewhere.", model="elsewhere")

        async with Engine.open("sqlite://", model=ScriptedLlm([]), performers={RequestLlm: ask}) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi")

        assert turn.reply == "From elsewhere."
        assert seen == [(f"{conversation.id}/1", 1, "scripted", ["Hi"])]

    async def test_see_what_was_said_up_to_their_step_and_no_more(self) -> None:
        """However late they look: the result of a call that ran beside theirs is not in their transcript."""
        gate = Gate()
        seen: dict[str, list[str]] = {}

        async def run(effect: ExecuteTool, context: EffectContext) -> ToolComplete:
            if effect.call.name == "slow":
                await gate()
            seen[effect.call.name] = [message.role for message in (await context.transcript()).messages]
            return ToolComplete(effect_id=effect.effect_id, at=NOON, result=ToolResult(text="Done."))

        def quick() -> str:
            """Do it."""
            return ""

        def slow() -> str:
            """Do it slowly."""
            return ""

        model = ScriptedLlm([calls(call("quick"), call("slow")), reply("Well.")])
        policy = Policy(parallel=2)
        options: dict[str, Any] = {"tools": [quick, slow], "performers": {ExecuteTool: run}, "policy": policy}
        async with Engine.open("sqlite://", model=model, **options) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            while len(await conversation.events()) < 4:
                await asyncio.sleep(0.001)
            gate.opened.set()
            await turn

        assert seen == {"quick": ["user", "assistant"], "slow": ["user", "assistant"]}

    async def test_must_return_an_answer_that_the_effect_can_have(self) -> None:
        """Another one, even a well-formed one, is a fault of the performer, and the turn fails."""

        async def ask(effect: RequestLlm, context: EffectContext) -> ToolComplete:
            return ToolComplete(effect_id=effect.effect_id, at=NOON, result=ToolResult(text="?"))

        async with Engine.open("sqlite://", model=ScriptedLlm([]), performers={RequestLlm: ask}) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"

    @pytest.mark.parametrize("performers", [5, [RequestLlm], {"request_llm": print}, {RequestLlm: 5}, {str: print}])
    def test_are_checked_at_once(self, performers: Any) -> None:
        """What is not a mapping from types of effect to functions is refused in one sentence."""
        with pytest.raises(ConfigurationError) as refused:
            Engine.open("sqlite://", performers=performers)

        assert "\n" not in refused.value.sentence


class Elsewhere:
    """A dispatcher that hands effects to a list, as to a queue of jobs."""

    def __init__(self) -> None:
        self.dispatched: list[tuple[Effect, EffectContext]] = []
        self.aborted: list[int] = []

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Keep the effects."""
        self.dispatched += [(effect, context) for effect in effects]

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Note the id."""
        self.aborted.append(effect_id)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Nothing is sent here."""

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Jobs go on when an engine closes."""

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Nothing is sent here."""

    def requests(self) -> list[RequestLlm]:
        """The model requests that were dispatched."""
        return [effect for effect, _ in self.dispatched if isinstance(effect, RequestLlm)]


def response(request: RequestLlm, text: str) -> LlmResponse:
    """The answer to a model request."""
    return LlmResponse(effect_id=request.effect_id, at=NOON, content=text, model="elsewhere")


class TestADispatcher:
    """A dispatcher in place of the one that runs effects as tasks."""

    async def test_gets_the_effects_of_each_step_and_answers_by_the_engine(self) -> None:
        """The turn goes on when `engine.answer` is called, by whoever has the result."""
        elsewhere = Elsewhere()
        async with Engine.open("sqlite://", model=ScriptedLlm([]), dispatcher=elsewhere) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await until(lambda: elsewhere.requests())
            engine.answer(conversation.id, response(elsewhere.requests()[0], "Done."))

            assert (await turn).reply == "Done."

    async def test_is_told_what_to_stop(self) -> None:
        """A cancel aborts the effect that is in flight."""
        elsewhere = Elsewhere()
        async with Engine.open("sqlite://", model=ScriptedLlm([]), dispatcher=elsewhere) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", wait=False)
            await conversation.cancel()

        assert elsewhere.aborted == [elsewhere.requests()[0].effect_id]

    async def test_an_answer_may_come_for_a_conversation_that_is_not_in_memory(self, store: Store) -> None:
        """The engine loads it, and the log decides."""
        elsewhere = Elsewhere()
        async with Engine.open(store=store, model=ScriptedLlm([]), dispatcher=elsewhere) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", wait=False)

        class HandsOutNothing(StoreWrapper):
            async def claim(self, limit: int) -> tuple[str, ...]:
                return ()

        async with Engine.open(store=HandsOutNothing(store), model=ScriptedLlm([]), dispatcher=Elsewhere()) as engine:
            engine.answer(conversation.id, response(elsewhere.requests()[0], "Done."))
            handle = await engine.get(conversation.id)
            await until(lambda: handle.state.type == "idle")

            assert [message.text for message in await handle.transcript()] == ["Hi", "Done."]

    async def test_an_answer_that_nobody_waits_for_is_dropped(self) -> None:
        """Neither one to an effect that was answered, nor one for a conversation that there is not, does anything."""
        elsewhere = Elsewhere()
        async with Engine.open("sqlite://", model=ScriptedLlm([]), dispatcher=elsewhere) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await until(lambda: elsewhere.requests())
            answer = response(elsewhere.requests()[0], "Done.")
            engine.answer(conversation.id, answer)
            await turn
            before = await conversation.events()
            engine.answer(conversation.id, answer)
            engine.answer("no such conversation", answer)

            assert (await conversation.cancel()).no_op
            assert await conversation.events() == before

    async def test_an_answer_that_the_state_does_not_wait_for_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """Its effect is in flight and stays so: somebody has to find out who sent it."""
        elsewhere = Elsewhere()
        async with Engine.open("sqlite://", model=ScriptedLlm([]), dispatcher=elsewhere) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", wait=False)
            effect_id = elsewhere.requests()[0].effect_id
            engine.answer(conversation.id, ToolComplete(effect_id=effect_id, at=NOON, result=ToolResult(text="?")))

            await until(lambda: "is not one that llm_requesting waits for" in caplog.text)
            assert conversation.state.type == "llm_requesting"

    async def test_may_wrap_the_one_in_process(self) -> None:
        """A function gets what the built-in dispatcher is made of."""
        seen: list[str] = []

        def make(performers: Any, clock: Any, answer: Callable[..., None]) -> InProcessDispatcher:
            class Noting(InProcessDispatcher):
                async def perform(self, effect: Any, context: EffectContext) -> Any:
                    seen.append(effect.type)
                    return await super().perform(effect, context)

            return Noting(performers, clock, answer)

        channel = RecordingChannel()
        async with Engine.open(
            "sqlite://", model=ScriptedLlm([reply("Hello.")]), channels=[channel], dispatcher=make, clock=ManualClock()
        ) as engine:
            await (await engine.create()).send("Hi")
            await engine.delivered()

        assert seen == ["request_llm", "deliver_to_user"]
        assert channel.texts == ["Hello."]

    @pytest.mark.parametrize(
        "broken",
        [{"opaque": None}, {"opaque": "sealed"}, {"finish_reason": None}, {"finish_reason": "\ud800"}, {"usage": None}],
        ids=repr,
    )
    async def test_gets_answers_of_the_built_in_performers_that_a_log_can_hold(self, broken: dict[str, Any]) -> None:
        """Whatever a model returns: the performer raises an error instead."""
        results: list[Any] = []

        class Noting(InProcessDispatcher):
            async def perform(self, effect: Any, context: EffectContext) -> Any:
                try:
                    results.append(await super().perform(effect, context))
                except ValueError as error:
                    results.append(error)
                    raise
                return results[-1]

        model = FunctionLlm(lambda request: ModelAnswer(content="x", **broken))
        async with Engine.open("sqlite://", model=model, dispatcher=Noting) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert isinstance(results[0], ValueError)

    @pytest.mark.parametrize("dispatcher", [5, "tasks", lambda *parts: 5], ids=["number", "text", "makes a number"])
    def test_is_checked_at_once(self, dispatcher: Any) -> None:
        """What is neither a dispatcher nor makes one is refused in one sentence."""
        with pytest.raises(ConfigurationError) as refused:
            Engine.open("sqlite://", dispatcher=dispatcher)

        assert "\n" not in refused.value.sentence


class TestALogThatNeedsATask:
    """A log that does not say otherwise: it may use the current task, as timeouts do."""

    async def test_is_called_in_a_task_of_the_engine(self, store: Store) -> None:
        """Its timeouts would otherwise cancel the caller of `send`, or find no task at all."""
        tasks: list[asyncio.Task[Any] | None] = []

        class TimedLog(WrappedLog):
            async def append(self, event: Event, step: Step, targets: Any = ()) -> None:
                async with asyncio.timeout(60):
                    tasks.append(asyncio.current_task())
                    await super().append(event, step, targets)

        timed = WrappedStore(store, TimedLog)
        async with Engine.open(store=timed, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi")

        assert turn.reply == "Hello."
        assert len(tasks) == 2
        assert not {None, asyncio.current_task()} & set(tasks)
