"""The ports of an engine: a store, performers and a dispatcher of the application's own, also broken ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import pytest

from tests.support.effect_ids import unmarked
from turnwise import (
    ConfigurationError,
    Engine,
    EngineClosed,
    EngineElsewhere,
    InvalidInput,
    ModelAnswer,
    ModelRequest,
    Policy,
    Profile,
    presets,
)
from turnwise.effects.clock import Clock
from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import InProcessDispatcher, Performer
from turnwise.effects.model.port import Purpose
from turnwise.engine.ports import Dispatcher
from turnwise.persistence.errors import Damaged, StorageFailed
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import LoadedConversation, Store
from turnwise.persistence.records import StoredEntry
from turnwise.states import (
    Answer,
    Effect,
    Event,
    ExecuteTool,
    LlmResponse,
    Refused,
    RequestLlm,
    Step,
    StoreError,
    ToolComplete,
    ToolResult,
    UserMessage,
)
from turnwise.states.effects import AwaitedEffect
from turnwise.states.events import files_of
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, ScriptedLlm, call, calls, reply
from turnwise.testing.doubles import NOON

from ..support.engine_scenarios import Gate, answers_after, until
from ..support.pictures import PNG
from ..support.planted.stores import WrappedLog, WrappedStore

# --- The ports of an engine: a store, performers and a dispatcher of the application's own.


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

    @pytest.mark.parametrize("performers", [{"request_llm": print}, {RequestLlm: 5}, {str: print}])
    def test_are_checked_at_once(self, performers: Any) -> None:
        """What does not map types of effect to functions is refused in one sentence."""
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
            await conversation.cancel(wait=False)

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


# --- Dispatchers that hosts plug in: whatever they do, a conversation either goes on or says why it does not.


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


def broken_dispatchers_response(effect: AwaitedEffect, text: str = "Here.") -> LlmResponse:
    """What a model says."""
    return LlmResponse(effect_id=effect.effect_id, at=NOON, content=text)


class TestAnswers:
    """What comes in by `Engine.answer`."""

    async def test_inside_of_dispatch_is_taken(self) -> None:
        """The dispatcher may have the answer at once; a second answer to the same effect is dropped."""

        def started(self: HostDispatcher, effect: AwaitedEffect, context: EffectContext) -> None:
            self.answer(context.conversation_id, broken_dispatchers_response(effect, "First."))
            self.answer(context.conversation_id, broken_dispatchers_response(effect, "Second."))

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
            self.answer("nobody", broken_dispatchers_response(effect))
            self.answer(context.conversation_id, broken_dispatchers_response(effect))

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
            self.answer(context.conversation_id, broken_dispatchers_response(effect))

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
            self.answer(context.conversation_id, broken_dispatchers_response(effect))

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


# --- Stores that hosts plug in and that break their port: a caller gets an error, and nothing runs twice.


MODEL = FunctionLlm(lambda _: reply("Here."))


@pytest.fixture
async def sound() -> AsyncIterator[Store]:
    """A store in memory."""
    store = await open_store("sqlite://")
    yield store
    await store.close()


class Held:
    """A model that does not answer."""

    name = "held"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def complete(self, request: Any, show: Any) -> Any:
        """Wait."""
        self.asked.set()
        await asyncio.Event().wait()


async def left_in_the_middle(store: Store) -> str:
    """A conversation whose engine was closed while the model was asked."""
    held = Held()
    async with Engine.open(store=store, model=held) as engine:
        conversation = await engine.create()
        await conversation.send("Hi.", wait=False)
        await held.asked.wait()
    return conversation.id


class StoresAndFails(WrappedLog):
    """It stores the first message, and reports that it could not."""

    has_failed = False

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        await super().append(event, step, targets)
        if isinstance(event, UserMessage) and not self.has_failed:
            self.has_failed = True
            raise StorageFailed("The disk is full.")


class CancelsAppends(WrappedLog):
    """It cancels its own work once for each of these types of events, as a driver does that loses its connection."""

    def __init__(self, log: Any) -> None:
        super().__init__(log)
        self.cancelled: list[type[Event]] = [UserMessage, LlmResponse]

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        if type(event) in self.cancelled:
            self.cancelled.remove(type(event))
            raise asyncio.CancelledError
        await super().append(event, step, targets)


class MissesSteps(WrappedStore):
    """It returns the entries of a log without those that `is_kept` does not keep."""

    is_kept: Callable[[StoredEntry], bool] = staticmethod(lambda entry: True)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """The entries that are kept."""
        return tuple(filter(self.is_kept, await self.store.entries(conversation_id, after, up_to)))


class HandsOutTwice(WrappedStore):
    """It returns the same conversation at each claim, and twice in each."""

    async def claim(self, limit: int) -> tuple[str, ...]:
        """The same ids as ever."""
        return (await self.store.ids()) * 2


class LoadsForEver(WrappedStore):
    """It never finishes loading one conversation."""

    stuck = ""

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation, or nothing for ever."""
        if conversation_id == self.stuck:
            await asyncio.Event().wait()
        return await super().load(conversation_id)


class TestLogs:
    """What `append` and `catch_up` may break."""

    async def test_a_step_that_was_stored_and_reported_as_failed_is_found(self, sound: Store) -> None:
        """The log is ahead of what is in memory: whoever asks gets an error, then the conversation as stored."""
        async with Engine.open(store=WrappedStore(sound, StoresAndFails), model=MODEL) as engine:
            conversation = await engine.create()
            for error in (Refused, StoreError):
                with pytest.raises(error):
                    await conversation.send("Hi.", message_id="m1")
            again = await engine.get(conversation.id)

            assert (await again.send("Hi.", message_id="m1")).reply == "Here."
            assert [message.text for message in await again.transcript()] == ["Hi.", "Here."]

    async def test_the_files_of_such_a_step_stay(self, sound: Store) -> None:
        """The log refers to them, although the caller was told that nothing was stored."""
        async with Engine.open(store=WrappedStore(sound, StoresAndFails), model=MODEL) as engine:
            conversation = await engine.create()
            with pytest.raises(Refused) as refused:
                await conversation.send("See", files=[PNG])
            (message,) = (entry.event for entry in await sound.entries(conversation.id, 1))

            assert refused.value.code == "storage"
            assert [await sound.files.read(conversation.id, one.sha256) for one in files_of(message)] == [PNG]

    async def test_that_is_cancelled_by_the_store_itself_has_failed(self, sound: Store) -> None:
        """A request is refused, and may be sent again; an answer is kept until it is stored."""
        async with asyncio.timeout(20), Engine.open(store=WrappedStore(sound, CancelsAppends), model=MODEL) as engine:
            conversation = await engine.create()
            with pytest.raises(Refused) as refused:
                await conversation.send("Hi.")

            assert refused.value.code == "storage"
            assert (await conversation.send("Hi.")).reply == "Here."


class TestEntries:
    """A log with steps missing."""

    async def test_nobody_is_shown_a_part_of_it(self, sound: Store) -> None:
        """Turns, updates and new messages report the missing step, and no model is asked without it."""
        store = MissesSteps(sound)
        async with Engine.open(store=store, model=MODEL) as engine:
            conversation_id = (await engine.create()).id
            await (await engine.get(conversation_id)).send("Hi.")
        store.is_kept = lambda entry: entry.seq != 2
        async with Engine.open(store=store, model=MODEL) as engine:
            conversation = await engine.get(conversation_id)

            for asked in (conversation.turns(), anext(conversation.updates()), conversation.send("Hello?")):
                with pytest.raises(Damaged, match="Step 2 is missing"):
                    await asked


class TestClaims:
    """Taking over."""

    async def test_what_is_handed_out_twice_is_taken_over_once(self, sound: Store) -> None:
        """The machine hears once that a process has died, and opening ends."""
        conversation_id = await left_in_the_middle(sound)

        async with Engine.open(store=HandsOutTwice(sound), model=Held()):
            stored = [entry.event.type for entry in await sound.entries(conversation_id)]

        assert stored == ["opened", "user_message", "resumed"]

    async def test_what_a_closed_engine_claimed_is_for_the_next(self, sound: Store) -> None:
        """Three engines, one after the other over one open store: each goes on where the one before was closed."""
        conversation_id = await left_in_the_middle(sound)

        for _ in range(2):
            async with Engine.open(store=sound, model=Held()):
                pass

        stored = [entry.event.type for entry in await sound.entries(conversation_id)]
        assert stored == ["opened", "user_message", "resumed", "resumed"]


class TestLoads:
    """A conversation that does not load."""

    async def test_holds_up_no_other_and_no_closing(self, sound: Store) -> None:
        """Others go on, and whoever waits for it learns that the engine is closed."""
        store = LoadsForEver(sound)
        async with Engine.open(store=sound, model=MODEL) as engine:
            stuck, other = (await engine.create()).id, (await engine.create()).id
        store.stuck = stuck
        async with Engine.open(store=store, model=MODEL) as engine:
            getting = asyncio.ensure_future(engine.get(stuck))
            await asyncio.sleep(0)
            assert (await (await engine.get(other)).send("Hi.")).reply == "Here."

        with pytest.raises(EngineClosed):
            await getting

    async def test_an_opening_that_waits_for_it_can_be_given_up(self, sound: Store) -> None:
        """A caller that is cancelled gets away."""
        store = LoadsForEver(sound)
        store.stuck = await left_in_the_middle(sound)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), Engine.open(store=store, model=MODEL):
                pass


async def test_a_model_is_told_whose_request_it_answers() -> None:
    """The owner and the metadata of the conversation come with every request of it, whatever it is for."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ModelAnswer | str:
        requests.append(request)
        if request.purpose != "converse":
            return {"check": '{"passed": true}', "route": '{"profile": "cook"}'}.get(request.purpose, "A few words.")
        was_heard = request.messages[-1]["role"] == "tool"
        return call("mark_work_complete", summary="Greeted.") if was_heard else call("respond_to_user", text="Hi")

    rules = presets.explicit_response().replace(route=True, recall=True, summarize=True)
    profiles = [Profile(name="waiter"), Profile(name="cook")]
    tools = ["respond_to_user", "mark_work_complete"]
    async with Engine.open(
        "sqlite://", model=FunctionLlm(answer), policy=rules, tools=tools, profiles=profiles
    ) as engine:
        conversation = await engine.create(owner="anna", metadata={"tenant": "north"})
        await conversation.send("What did I say about the tables?")
        await conversation.send("And now?")
        await conversation.compact()

    assert {request.purpose for request in requests} == {*get_args(Purpose)} - {"reword"}
    assert {(request.owner, request.metadata["tenant"]) for request in requests} == {("anna", "north")}
