"""The loop of a conversation: effects reach the dispatcher in their order, a person's arguments for a call are checked,
and whatever ends an engine in the middle of a turn, the next one takes it up: nothing is lost, nothing runs that must
not.

Another engine over the same store may drive the turn, while the store has troubles of its own. An engine that is closed
in the middle of a turn leaves the store as a process does that dies at that moment; real kills are in test_kills.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from tests.support.effect_ids import call_of
from turnwise import (
    AnyTool,
    ConfigurationError,
    Conversation,
    Engine,
    EngineClosed,
    InvalidInput,
    Policy,
    Questions,
    Recovery,
    Refused,
    Retry,
    StoreError,
    Texts,
    ToolContext,
    Turn,
    presets,
    tool,
)
from turnwise.effects.context import EffectContext
from turnwise.effects.tools.tool import MAX_STORED, cut_text
from turnwise.engine.loop import dispatch_in_order
from turnwise.persistence.errors import Damaged, StorageFailed
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Log
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Abort, CancelSubAgent, Effect, Heard, SpawnSubAgent, StartTimer, ToolApproval, ToolResult
from turnwise.testing import FunctionLlm, ManualClock, call, reply
from turnwise.testing.doubles import NOON, ScriptedLlm, calls, failure

from ..support.clocks import ServerClock, asleep, clock_of
from ..support.databases import BOTH_STORES, Database
from ..support.effect_contexts import effect_context
from ..support.engine_scenarios import QUESTION, Gate, answers_after, results, until
from ..support.planted.stores import WrappedLog, WrappedStore
from ..support.terminal import run
from ..support.tools import result_in

pytestmark = BOTH_STORES

CALL = "call_1_0"


@tool(approval=True)
def pay(amount: int, to: str = "Ada") -> str:
    """Pay."""
    return f"{to} got {amount}"


@tool(approval=True, name="pay")
def pay_anything(amount: Any, to: Any = "Ada", note: Any = "") -> str:
    """Pay: a `pay` that takes more."""
    return f"{to} got {amount}"


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 10}, "to": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}


@tool(approval=True, name="pay", parameters=SCHEMA)
def pay_by_schema(amount: int, to: str = "Ada") -> str:
    """Pay: a `pay` whose arguments a schema describes."""
    return f"{to} got {amount}"


def engine_at(place: Path | str | None, *tools: AnyTool | str, rounds: int = 1, **options: Any) -> Engine:
    """An engine whose model pays 5 in this many rounds, and then says what came of it last."""

    def answer(request: Any) -> Any:
        done = [message["content"] for message in request.messages if message["role"] == "tool"]
        return call("pay", amount=5) if len(done) < rounds else reply(f"Done: {result_in(done[-1])}")

    return Engine.open(place, model=FunctionLlm(answer), tools=tools or (pay,), **options)


async def asked(engine: Engine, **options: Any) -> Conversation:
    """A conversation with a call that waits for approval."""
    conversation = await engine.create(**options)
    assert (await conversation.send("Pay")).status == "awaiting_approval"
    return conversation


async def refusal(conversation: Conversation, arguments: dict[str, Any], call_id: str = CALL, **options: Any) -> str:
    """The sentence with which an approval is refused. The call still waits, and nothing is stored."""
    before = await conversation.events()
    with pytest.raises(InvalidInput) as refused:
        await conversation.approve(call_of(conversation, call_id), True, arguments=arguments, **options)
    assert refused.value.subject == "arguments"
    assert conversation.state.type == "awaiting_approval"
    assert await conversation.events() == before
    return refused.value.sentence


def _with_an_at(text: str) -> str:
    if "@" not in text:
        raise ValueError("No address")
    return text


async def _is_reused(conversation: Conversation, call_id: str) -> None:
    with pytest.raises(Refused) as refused:
        await conversation.approve(call_id, True, arguments={"amount": "three"}, request_id="r")
    assert refused.value.code == "event_id_reused"
    assert conversation.state.type == "awaiting_approval"


SPAWN = SpawnSubAgent(effect_id=1, task=Heard(seq=1))
TIMER = StartTimer(effect_id=2, due=NOON, wakes="deadline_reached")


class Recorded:
    """A dispatcher that records what it is told."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Record the effects that are started together."""
        self.calls.append(tuple(effects))

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Record the effect that is stopped."""
        self.calls.append(effect_id)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Return at once."""

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Return at once."""

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Return at once."""


def told(*effects: Effect) -> list[object]:
    """Return what the dispatcher is told of a step with these effects."""
    dispatcher = Recorded()
    dispatch_in_order(effects, dispatcher, "a conversation", lambda: effect_context("a conversation"))
    return dispatcher.calls


class Troubled(WrappedLog):
    """A log that raises these errors, one for each look, once it has been read without trouble so many times."""

    def __init__(self, log: Log, fine: int, errors: list[Exception]) -> None:
        super().__init__(log)
        self.fine = fine
        self.errors = errors

    async def catch_up(self) -> Any:
        """Return the steps that others have stored, or fail."""
        self.fine -= 1
        if self.fine < 0 and self.errors:
            raise self.errors.pop(0)
        return await super().catch_up()


class DrivenElsewhere:
    """A turn that one engine drives, and a caller that waits for it in another."""

    def __init__(self, engine: Engine, driving: Conversation, gate: Gate, clock: ManualClock) -> None:
        self.engine = engine
        self.driving = driving
        self.gate = gate
        self.clock = clock

    async def wait(self) -> asyncio.Task[Turn]:
        """Begin to wait in the other engine, and return once it looks at the store."""
        waiting = asyncio.ensure_future((await self.engine.get(self.driving.id)).wait())
        await asyncio.sleep(0.02)
        await self.clock.until_asleep()
        return waiting

    async def look(self, times: int = 1) -> None:
        """Let it look at the store so many times."""
        for _ in range(times):
            await self.clock.advance(0.5)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def driven_elsewhere(*errors: Exception) -> AsyncIterator[DrivenElsewhere]:
    """Return a turn under way in one engine, and another engine whose store fails so after the first look."""
    gate, clock = Gate(), ManualClock()
    store = await open_store("sqlite://")
    wrap = partial(Troubled, fine=1, errors=list(errors))
    slow, quick = FunctionLlm(answers_after(gate, "At last.")), FunctionLlm(lambda _: reply("Here."))
    async with (
        Engine.open(store=store, model=slow) as one,
        Engine.open(store=WrappedStore(store, wrap), model=quick, clock=clock) as other,
    ):
        driving = await one.create()
        await driving.send("Hello", wait=False)
        await gate.arrived.wait()
        yield DrivenElsewhere(other, driving, gate, clock)
    await store.close()


def silent() -> FunctionLlm:
    """Return a model that never answers, under the name of its successor."""
    return FunctionLlm(answers_after(Gate(), "never"), name="scripted")


TEXTS = Texts()


class Till:
    """A tool whose first calls never end, and that remembers under which keys it was called."""

    def __init__(self, **declared: Any) -> None:
        self.keys: list[str] = []
        self.hangs = True

        @tool(name="pay", **declared)
        async def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            self.keys.append(context.key)
            if self.hangs:
                await asyncio.Event().wait()
            return f"{amount} paid"

        self.tool = pay


async def dies_while(paying: Till, database: Database, **options: Any) -> str:
    """Return the id of a conversation whose process ended while the tool ran."""
    engine = await Engine.open(database, model=ScriptedLlm([call("pay", amount=5)]), tools=[paying.tool], **options)
    conversation = await engine.create()
    await conversation.send("Pay.", message_id="m1", wait=False)
    await until(lambda: bool(paying.keys))
    await engine.close()
    paying.hangs = False
    return conversation.id


@asynccontextmanager
async def taken_up(
    database: Database, conversation_id: str, model: Any, *tools: Any, **options: Any
) -> AsyncIterator[Conversation]:
    """Open the conversation in the next process."""
    async with Engine.open(database, model=model, tools=list(tools), **options) as engine:
        conversation = await engine.get(conversation_id)
        yield conversation
        assert (await conversation.replay()).divergence is None


class LooksAgain(WrappedStore):
    """A store that looks for what waits a second time only when something has happened."""

    def __init__(self, store: Any, has_happened: Callable[[], bool]) -> None:
        super().__init__(store)
        self.has_happened = has_happened
        self.looks = 0

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Return conversations that wait."""
        self.looks += 1
        if self.looks == 2:
            await until(self.has_happened)
        claimed: tuple[str, ...] = await self.store.claim(limit)
        return claimed


def events_of(entries: Any) -> list[str]:
    """Return the types of the events in a log."""
    return [entry.event.type for entry in entries]


LONG = ToolResult(text="x" * 1_000_001)
"""A result that is too long, so its middle is cut out."""


class TestRefusing:
    """A person who makes a mistake is told of it, and can mend it."""

    async def test_the_call_waits_until_the_arguments_fit(self) -> None:
        """P36: the sentence names the field and repeats no value; the same request fits once it is mended."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)

            sentence = await refusal(conversation, {"amount": "secret", "to": "Eve"}, request_id="r")
            done = await conversation.approve(
                call_of(conversation, CALL), True, arguments={"amount": 3, "to": "Eve"}, request_id="r"
            )

            assert sentence.startswith("The arguments do not fit pay: amount: Input should be a valid integer")
            assert sentence.endswith(".")
            assert "secret" not in sentence
            assert done.reply == "Done: Eve got 3"
            assert (await conversation.replay()).divergence is None

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({}, "amount: Field required."),
            ({"sum": 3}, "amount: Field required; sum: Extra inputs are not permitted."),
            ({"amount": 3, "to": "x" * 1_000_001}, "the arguments are longer than 1,000,000 characters."),
        ],
    )
    async def test_whatever_does_not_fit_is_named(self, arguments: dict[str, Any], told: str) -> None:
        """What is missing, what nobody takes, and what is too long."""
        async with engine_at("sqlite://") as engine:
            assert await refusal(await asked(engine), arguments) == f"The arguments do not fit pay: {told}"

    async def test_a_schema_is_heeded(self) -> None:
        """That of a tool whose application describes its arguments, too."""
        async with engine_at("sqlite://", pay_by_schema) as engine:
            sentence = await refusal(await asked(engine), {"amount": 11})

            assert sentence == "The arguments do not fit pay: amount: Input should be at most 10."

    async def test_an_event_is_refused_like_a_call_of_the_method(self) -> None:
        """A host may make the event itself."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)
            call_id = call_of(conversation, CALL)
            event = ToolApproval(
                event_id="e", at=datetime.now(UTC), call_id=call_id, allowed=True, arguments={"amount": "three"}
            )

            with pytest.raises(InvalidInput, match="amount"):
                await conversation.dispatch(event)

            assert conversation.state.type == "awaiting_approval"
            assert (await conversation.dispatch(event.replace(arguments={"amount": 3}))).ignored is False

    async def test_what_is_left_without_secrets_must_fit(self) -> None:
        """The tool would get the arguments without them, so these are what is checked."""

        @tool(approval=True, name="pay")
        def pay_to(amount: int, to: Annotated[str, AfterValidator(_with_an_at)] = "a@b") -> str:
            """Pay."""
            return to

        async with engine_at("sqlite://", pay_to) as engine:
            conversation = await asked(engine, policy=presets.assistant().replace(redact=True))

            assert "to: No address" in await refusal(conversation, {"amount": 5, "to": "ada@example.org"})

    @pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1), RecursionError()])
    async def test_a_validator_that_breaks_refuses(self, error: BaseException) -> None:
        """Nobody knows whether the arguments fit; the conversation goes on, and others can be given."""

        def check(amount: int) -> int:
            if amount == 3:
                raise error
            return amount

        @tool(approval=True, name="pay")
        def pay_checked(amount: Annotated[int, AfterValidator(check)]) -> str:
            """Pay."""
            return f"{amount} paid"

        async with engine_at("sqlite://", pay_checked) as engine:
            conversation = await asked(engine)

            sentence = await refusal(conversation, {"amount": 3})
            done = await conversation.approve(call_of(conversation, CALL), True, arguments={"amount": 4})

            assert sentence == "The arguments do not fit pay: the arguments could not be checked."
            assert done.reply == "Done: 4 paid"


class TestTaking:
    """What does not run is not checked, and neither is what this engine cannot know."""

    async def test_a_call_that_is_denied_needs_no_arguments_that_fit(self) -> None:
        """It does not run."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)
            call_id = call_of(conversation, CALL)
            done = await conversation.approve(call_id, False, "Too much", arguments={"amount": "three"})

            assert done.reply == "Done: Error: Denied by the user: Too much"

    async def test_a_tool_that_is_gone_checks_nothing(self, database: Database) -> None:
        """The approval is taken, and the model learns that there is no such tool."""
        async with engine_at(database) as engine:
            conversation = await asked(engine)

        async with engine_at(database, "respond_to_user") as engine:
            again = await engine.get(conversation.id)
            done = await again.approve(call_of(again, CALL), True, arguments={"amount": "three"})

            assert "There is no tool called pay" in done.reply


class TestOrder:
    """An approval that is not asked for says so first, and one that was taken is not refused later."""

    async def test_an_approval_that_is_not_asked_says_so(self) -> None:
        """Whatever its arguments are: of another call, after the approval, and of a closed conversation."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)
            codes = []

            async def approve(call_id: str) -> None:
                with pytest.raises(Refused) as refused:
                    await conversation.approve(call_id, True, arguments={"amount": "three"})
                codes.append(refused.value.code)

            await approve("call_9_9")
            await conversation.approve(call_of(conversation, CALL), True, arguments={"amount": 3})
            await approve(call_of(conversation, CALL))
            await conversation.close()
            await approve(call_of(conversation, CALL))

            assert codes == ["wrong_state", "wrong_state", "closed"]

    @pytest.mark.parametrize("tools", [(pay,), ("respond_to_user",)])
    async def test_an_approval_that_was_taken_returns_its_result(
        self, database: Database, tools: tuple[AnyTool | str, ...]
    ) -> None:
        """Also if the tool takes these arguments no longer, or is gone; the log replays as it was."""
        note = {"amount": "three", "note": "Hm"}
        async with engine_at(database, pay_anything) as engine:
            conversation = await asked(engine)
            first = await conversation.approve(call_of(conversation, CALL), True, arguments=note, request_id="r")
            assert (
                await conversation.approve(call_of(conversation, CALL), True, arguments=note, request_id="r")
            ) == first

        async with engine_at(database, *tools) as engine:
            again = await engine.get(conversation.id)

            assert await again.approve(call_of(again, CALL), True, arguments=note, request_id="r") == first
            assert results(await again.transcript()) == ["Ada got three"]
            assert (await again.replay()).divergence is None

    async def test_an_id_that_another_approval_has_says_so(self, database: Database) -> None:
        """Whether it is remembered or stands in the log only, and although another call waits by now."""
        async with engine_at(database, rounds=2) as engine:
            conversation = await asked(engine)
            await conversation.approve(call_of(conversation, CALL), True, request_id="r")
            waiting = str(conversation.state.waiting_call_id)
            await _is_reused(conversation, waiting)

        async with engine_at(database, rounds=2) as engine:
            await _is_reused(await engine.get(conversation.id), waiting)


class TestSeveralEngines:
    """An engine checks what it is asked, and follows what others have taken."""

    async def test_each_engine_asks_its_own_tools(self, database_file: Path) -> None:
        """The engine whose tool takes the arguments has them stored; the other one follows."""
        store = await open_store(database_file)
        async with (
            engine_at(None, store=store) as strict,
            engine_at(None, pay_anything, store=store) as lenient,
        ):
            conversation = await asked(strict)
            await refusal(conversation, {"amount": "three"})

            call_id = call_of(conversation, CALL)
            done = await (await lenient.get(conversation.id)).approve(call_id, True, arguments={"amount": "three"})
            with pytest.raises(Refused) as refused:
                await conversation.approve(call_of(conversation, CALL), True, arguments={"amount": "three"})

            assert done.reply == "Done: Ada got three"
            assert refused.value.code == "wrong_state"
            assert (await conversation.replay()).divergence is None
        await store.close()


def test_an_effect_that_is_started_and_stopped_in_one_step_starts_first() -> None:
    """Otherwise it would be stopped before it is known, and would go on."""
    assert told(SPAWN, CancelSubAgent(effect_id=1), TIMER) == [(SPAWN,), 1, (TIMER,)]


def test_effects_that_stop_earlier_ones_come_in_their_place() -> None:
    """Most steps stop what the state has waited for before they start something else."""
    assert told(Abort(effect_id=7), Abort(effect_id=8), SPAWN, TIMER) == [7, 8, (SPAWN, TIMER)]


def test_a_step_without_effects_does_nothing() -> None:
    """The dispatcher is not called."""
    assert told() == []


async def test_a_store_that_is_busy_is_looked_at_again() -> None:
    """The waiting goes on."""
    async with driven_elsewhere(StorageFailed("busy"), StorageFailed("busy")) as driven:
        waiting = await driven.wait()
        driven.gate.opened.set()
        turn = await driven.driving.wait()
        await driven.look(2)
        assert not waiting.done()
        await driven.look()

        assert await waiting == turn


async def test_a_damaged_log_ends_the_waiting() -> None:
    """With the error; nobody waits for ever."""
    async with driven_elsewhere(Damaged(3, "Step 3 is not what was stored.")) as driven:
        waiting = await driven.wait()
        await driven.look()

        with pytest.raises(StoreError):
            await waiting
        driven.gate.opened.set()


async def test_an_engine_that_closes_looks_no_longer() -> None:
    """Its caller gets `EngineClosed`, and no task remains."""
    async with driven_elsewhere() as driven:
        waiting = await driven.wait()
        await driven.engine.close()

        with pytest.raises(EngineClosed):
            await waiting
        await asyncio.sleep(0.01)
        assert driven.clock.sleepers == ()
        driven.gate.opened.set()


async def test_a_caller_that_goes_away_ends_the_looking() -> None:
    """The last one does; another caller still gets the turn."""
    async with driven_elsewhere() as driven:
        first, second = await driven.wait(), await driven.wait()
        first.cancel()
        await asyncio.wait([first])
        assert len(driven.clock.sleepers) == 1
        second.cancel()
        await asyncio.wait([second])
        await asyncio.sleep(0.01)
        assert driven.clock.sleepers == ()

        third = await driven.wait()
        driven.gate.opened.set()
        turn = await driven.driving.wait()
        await driven.look()

        assert await third == turn


class TestTheModel:
    """A model request that was in flight."""

    async def test_it_is_asked_again_and_the_turn_ends(self, database: Database) -> None:
        """P27: the engine that opens the database goes on by itself; the same message sent again gets its turn."""
        engine = await Engine.open(database, model=(model := silent()))
        conversation = await engine.create()
        await conversation.send("Hi", message_id="m1", wait=False)
        await until(lambda: bool(model.requests))
        await engine.close()

        async with taken_up(database, conversation.id, ScriptedLlm([reply("Hello.")])) as again:
            turn = await again.send("Hi", message_id="m1")

            assert (turn.status, turn.reply, turn.number) == ("completed", "Hello.", 1)
            assert events_of(await again.events()) == ["opened", "user_message", "resumed", "llm_response"]
            resumed = (await again.events())[2]
            assert resumed.event.open == (1,)  # type: ignore[attr-defined]

    async def test_nobody_has_to_ask_for_the_conversation(self, database: Database) -> None:
        """P27: `Engine.open` finds what waits for work."""
        engine = await Engine.open(database, model=silent())
        for _ in range(3):
            conversation = await engine.create()
            await conversation.send("Hi", wait=False)
        await engine.close()

        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Hello."), name="scripted")) as engine:
            while [one.state for one in await engine.list()] != ["idle"] * 3:
                await asyncio.sleep(0.01)

    async def test_one_that_is_deleted_meanwhile_holds_up_no_other(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """P27: an engine may be used while it opens; the other conversations are taken over all the same."""
        engine = await Engine.open(database, model=silent())
        conversation = await engine.create()
        await conversation.send("Hi", message_id="m1", wait=False)
        await engine.close()

        right = SqliteStore.claim

        async def claim(store: SqliteStore, limit: int) -> tuple[str, ...]:
            return ("deleted", *claimed) if (claimed := await right(store, limit)) else ()

        monkeypatch.setattr(SqliteStore, "claim", claim)
        async with taken_up(database, conversation.id, ScriptedLlm([reply("Hello.")])) as again:
            assert (await again.send("Hi", message_id="m1")).reply == "Hello."

    async def test_what_this_engine_has_begun_is_not_taken_over(self, database_file: Path) -> None:
        """A sub-agent that a turn starts while the engine opens is found by its next look at what waits. It goes on
        here already: its tool does not run a second time."""
        paying = Till(crash="idempotent")
        engine = await Engine.open(database_file, model=silent(), tools=["spawn_agents"], policy=presets.assistant())
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        await engine.close()

        llm = ScriptedLlm([call("spawn_agents", tasks=["Pay."]), call("pay", amount=5), reply("Paid."), reply("Done.")])
        store = LooksAgain(await open_store(database_file), lambda: bool(paying.keys))
        async with Engine.open(store=store, model=llm, tools=["spawn_agents", paying.tool]) as engine:
            again = await engine.get(conversation.id)
            (child,) = await again.children()
            assert len(paying.keys) == 1
            assert "tool_interrupted" not in events_of(await (await engine.get(child.id)).events())
        await store.close()

    async def test_what_is_asked_meanwhile_comes_behind_it(self, database: Database) -> None:
        """A message that is sent at once is refused as busy, as it would have been without the crash."""
        engine = await Engine.open(database, model=silent())
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        await engine.close()

        async with taken_up(database, conversation.id, ScriptedLlm([reply("One."), reply("Two.")])) as again:
            turn = await again.send("And?", when_busy="queue")

            assert turn.reply == "Two."
            assert [message.text for message in await again.transcript()] == ["Hi", "One.", "And?", "Two."]

    async def test_a_cancel_reaches_it(self, database: Database) -> None:
        """P31: the turn can be cancelled like any other."""
        engine = await Engine.open(database, model=silent())
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        await engine.close()

        async with taken_up(database, conversation.id, silent()) as again:
            assert not (await again.cancel()).no_op
            assert again.state.type == "idle"

    async def test_a_backoff_goes_on(self, database: Database) -> None:
        """The timer is absolute, and runs for the rest of its time."""
        clock, policy = ManualClock(), Policy(retry=Retry(attempts=2, base=60, cap=60))
        engine = await Engine.open(database, model=ScriptedLlm([failure("timeout")]), policy=policy, clock=clock)
        conversation = await engine.create()
        await conversation.send("Hi", message_id="m1", wait=False)
        await until(lambda: conversation.state.type == "retry_waiting")
        due = conversation.state.timer.due  # type: ignore[attr-defined]
        await engine.close()

        later = ManualClock(clock.now())
        await later.advance(20)
        model = ScriptedLlm([reply("Now.")])
        async with taken_up(database, conversation.id, model, clock=later) as again:
            await later.until_asleep()
            assert later.sleepers == (due,)
            await later.advance_to(due)
            assert (await again.send("Hi", message_id="m1")).reply == "Now."


class TestTools:
    """A tool that was running: its own contract decides."""

    @pytest.mark.parametrize("contract", ["pure", "idempotent"])
    async def test_it_runs_again_under_the_same_key(self, database: Database, contract: Any) -> None:
        """P27: the tool sees the key that it had."""
        till = Till(crash=contract)
        conversation_id = await dies_while(till, database)

        async with taken_up(database, conversation_id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            turn = await again.send("Pay.", message_id="m1")

            assert turn.reply == "Done."
            assert results(await again.transcript()) == ["5 paid"]
            assert len(till.keys) == 2 and len(set(till.keys)) == 1

    @pytest.mark.parametrize(
        ("verdict", "result", "times"),
        [
            ("ran", TEXTS.did_run, 1),
            ("did_not_run", TEXTS.did_not_run, 1),
            ("again", "5 paid", 2),
        ],
    )
    async def test_one_that_must_not_run_twice_is_in_doubt(
        self, database: Database, verdict: Any, result: str, times: int
    ) -> None:
        """P27: nobody knows whether the tool ran, so a person is asked; it runs again only if they say so."""
        till = Till()
        conversation_id = await dies_while(till, database)

        async with taken_up(database, conversation_id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            turn = await again.send("Pay.", message_id="m1")
            assert turn.status == "in_doubt"
            assert turn.call_id == again.state.call.call_id
            with pytest.raises(Refused) as refused:
                await again.resolve("call_1_1", verdict)
            assert refused.value.code == "wrong_state"

            turn = await again.resolve(call_of(again, "call_1_0"), verdict)

            assert turn.reply == "Done."
            assert len(till.keys) == times
            assert results(await again.transcript()) == [result]

    async def test_a_doubt_outlives_further_processes(self, database: Database) -> None:
        """P19: waiting for a person does not count as an attempt, however often the program starts."""
        till = Till()
        conversation_id = await dies_while(till, database)
        for _ in range(4):
            async with taken_up(database, conversation_id, ScriptedLlm([]), till.tool) as again:
                await until(lambda again=again: again.state.type == "in_doubt")

        async with taken_up(database, conversation_id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            assert (await again.resolve(call_of(again, "call_1_0"), "ran")).reply == "Done."
        assert len(till.keys) == 1

    async def test_processes_that_end_at_once_do_not_take_the_doubt_away(self, database: Database) -> None:
        """P27: an engine that is closed before it has reported everything does not count as a failed attempt."""
        till = Till()
        conversation_id = await dies_while(till, database)
        for _ in range(6):
            engine = await Engine.open(database, model=ScriptedLlm([]), tools=[till.tool])
            await engine.close()

        async with taken_up(database, conversation_id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            assert (await again.send("Pay.", message_id="m1")).status == "in_doubt"
            assert events_of(await again.events())[-1] == "tool_interrupted"
            assert (await again.resolve(call_of(again, "call_1_0"), "ran")).reply == "Done."
        assert len(till.keys) == 1

    async def test_a_doubtful_turn_can_be_cancelled(self, database: Database) -> None:
        """The result of the call says that it is unknown whether it ran."""
        till = Till()
        conversation_id = await dies_while(till, database)

        async with taken_up(database, conversation_id, ScriptedLlm([]), till.tool) as again:
            await until(lambda: again.state.type == "in_doubt")
            await again.cancel()

            assert "unknown" in results(await again.transcript())[0]

    async def test_only_the_calls_that_ran_are_hit(self, database: Database) -> None:
        """A result from before the crash stays, and a call that had not started runs as usual."""
        till, ran = Till(crash="pure"), []

        @tool(crash="pure")
        async def look() -> str:
            """Look."""
            ran.append("look")
            return "seen"

        script = [calls(call("look"), call("pay", amount=5), call("look"))]
        engine = await Engine.open(
            database, model=ScriptedLlm(script), tools=[look, till.tool], policy=Policy(parallel=1)
        )
        conversation = await engine.create()
        await conversation.send("Go", message_id="m1", wait=False)
        await until(lambda: bool(till.keys))
        await engine.close()
        till.hangs = False

        model = ScriptedLlm([reply("Done.")])
        async with taken_up(database, conversation.id, model, look, till.tool) as again:
            assert (await again.send("Go", message_id="m1")).reply == "Done."
            assert results(await again.transcript()) == ["seen", "5 paid", "seen"]
        assert ran == ["look", "look"]
        assert len(till.keys) == 2


class TestAskingTheTool:
    """`crash="reconcile"`: the tool can be asked whether the call ran."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("said", "status", "result", "times"),
        [
            (ToolResult(text="5 paid at noon"), "completed", "5 paid at noon", 1),
            ("ran", "completed", TEXTS.did_run, 1),
            ("did_not_run", "completed", "5 paid", 2),
            (LONG, "completed", cut_text(LONG.text, MAX_STORED), 1),
            ("unknown", "in_doubt", None, 1),
            ("perhaps", "in_doubt", None, 1),
            (RuntimeError("no line"), "in_doubt", None, 1),
        ],
    )
    async def test_what_it_says_counts(
        self, database: Database, said: Any, status: str, result: str | None, times: int
    ) -> None:
        """P27: it ran with this result, or it did not and runs now; any other answer leaves the call in doubt."""
        asked: list[tuple[int, str]] = []

        async def was_paid(amount: int, context: ToolContext) -> Any:
            asked.append((amount, context.key))
            if isinstance(said, Exception):
                raise said
            return said

        till = Till(crash="reconcile", reconcile=was_paid)
        conversation_id = await dies_while(till, database)

        async with taken_up(database, conversation_id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            turn = await again.send("Pay.", message_id="m1")

            assert turn.status == status
            assert asked == [(5, till.keys[0])]
            assert len(till.keys) == times
            if result is not None:
                assert results(await again.transcript()) == [result]
            else:
                await again.resolve(str(turn.call_id), "ran")

    @pytest.mark.parametrize(
        "declared", [{"crash": "reconcile"}, {"crash": "pure", "reconcile": lambda: "ran"}, {"reconcile": lambda: 1}]
    )
    def test_the_contract_and_the_function_belong_together(self, declared: dict[str, Any]) -> None:
        """A tool that can be asked names what is asked, and no other does."""
        with pytest.raises(ConfigurationError, match="needs both"):
            tool(name="pay", **declared)(lambda: None)


class TestTooOften:
    """A conversation that kills its process is not resumed for ever."""

    async def test_after_two_resumes_without_progress_it_fails(self, database: Database) -> None:
        """P27: every open call has its result, the turn failed with a sentence, and a retry goes on."""
        policy = Policy(recovery=Recovery(resumes=2))
        engine = await Engine.open(database, model=(model := silent()), policy=policy)
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        await until(lambda: bool(model.requests))
        await engine.close()
        for newest in (3, 4):
            async with Engine.open(database, model=silent()) as engine:
                again = await engine.get(conversation.id)
                await until(lambda again=again, newest=newest: again.state.book.seq >= newest)

        async with taken_up(database, conversation.id, ScriptedLlm([reply("At last.")])) as again:
            await until(lambda: again.state.type == "failed")
            assert again.state.kind == "interrupted"  # type: ignore[attr-defined]
            assert (await again.retry()).reply == "At last."

    async def test_progress_counts_anew(self, database: Database) -> None:
        """An answer shows that the conversation does not kill the process, so attempts are counted anew."""
        till = Till(crash="pure")
        engine = await Engine.open(
            database,
            model=silent(),
            tools=[till.tool],
            policy=Policy(recovery=Recovery(resumes=1)),
        )
        conversation = await engine.create()
        await conversation.send("Pay.", message_id="m1", wait=False)
        await engine.close()

        async with taken_up(database, conversation.id, ScriptedLlm([call("pay", amount=5)]), till.tool):
            await until(lambda: bool(till.keys))
        till.hangs = False
        async with taken_up(database, conversation.id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            assert (await again.send("Pay.", message_id="m1")).reply == "Done."


class TestPeople:
    """What waits for a person goes on waiting."""

    async def test_the_same_questions_and_the_answer_works(self, database: Database) -> None:
        """P19: nothing was in flight, so nothing is written when the database is opened."""
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        async with Engine.open(database, model=asking, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            before = await conversation.send("Book a table.")
            seq = conversation.state.book.seq

        model = ScriptedLlm([reply("Booked.")])
        async with taken_up(database, conversation.id, model, "ask_user_question") as again:
            assert again.state.book.seq == seq
            assert again.state.questions == before.questions  # type: ignore[attr-defined]
            assert (await again.answer({QUESTION["question"]: "Rice"})).reply == "Booked."

    async def test_a_deadline_is_armed_again_for_what_is_left(self, database: Database) -> None:
        """P27: a deadline that passed meanwhile has passed at once. Waiting does not count as an attempt."""
        clock = clock_of(database)
        policy = Policy(questions=Questions(deadline=100), recovery=Recovery(resumes=0))
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        tools = ["ask_user_question"]
        async with Engine.open(database, model=asking, tools=tools, policy=policy, clock=clock) as engine:
            conversation = await engine.create()
            await conversation.send("Book a table.")
        for _ in range(3):
            await clock.advance(20)
            async with taken_up(database, conversation.id, ScriptedLlm([]), *tools, clock=clock) as again:
                assert again.state.type == "awaiting_user_response"
                due = again.state.deadline.due  # type: ignore[attr-defined]
                await asleep(clock, due)
                assert isinstance(clock, ServerClock) or clock.sleepers == (due,)

        await clock.advance(50)
        model = ScriptedLlm([reply("I chose for you.")])
        async with taken_up(database, conversation.id, model, *tools, clock=clock) as again:
            await clock.advance(0)
            await until(lambda: again.state.type == "idle")
            assert (await again.turns())[-1].reply == "I chose for you."


@pytest.mark.slow
class TestResolvingFromOutside:
    """`turnwise resolve`: whoever looks after the database says what became of a call, before any program runs."""

    async def test_what_is_said_holds_when_the_program_comes_back(self, database_file: Path) -> None:
        """P27: the call is found although nothing has opened the database since the crash."""
        till = Till()
        conversation_id = await dies_while(till, database_file)

        listed = run("resolve", conversation_id, "--db", database_file, cwd=database_file.parent)
        twice = [
            run("resolve", conversation_id, "ran", "--db", database_file, cwd=database_file.parent) for _ in range(2)
        ]
        afterwards = run("resolve", conversation_id, "--db", database_file, cwd=database_file.parent)

        assert re.fullmatch(r'call_1_0_[0-9a-f]{12}  pay\(\{"amount": 5\}\)\n', listed.stdout)
        call_id = listed.stdout.split()[0]
        assert (
            twice[0].stdout
            == "Resolved; the conversation is in llm_requesting; it continues in its program or in turnwise chat.\n"
        )
        assert (twice[1].returncode, twice[1].stdout) == (2, "")
        shown = run("show", conversation_id, "--events", "--db", database_file, cwd=database_file.parent).stdout
        assert f"tool_interrupted           {call_id}" in shown
        assert f"doubt_resolved             {call_id} ran" in shown
        assert afterwards.stdout == "No call is in doubt.\n"
        async with taken_up(database_file, conversation_id, ScriptedLlm([reply("Done.")]), till.tool) as again:
            assert (await again.send("Pay.", message_id="m1")).reply == "Done."
            assert results(await again.transcript()) == [TEXTS.did_run]

    async def test_what_cannot_be_settled(self, database_file: Path) -> None:
        """Another call, an invalid verdict and an unknown conversation are each refused in one sentence."""
        till = Till()
        conversation_id = await dies_while(till, database_file)

        for said in ([conversation_id, "maybe"], [conversation_id, "ran", "--call", "other"], ["nobody", "ran"]):
            done = run("resolve", *said, "--db", database_file, cwd=database_file.parent)
            assert (done.returncode, done.stdout) == (2, "")
            assert "Traceback" not in done.stderr

    async def test_a_chat_asks(self, database_file: Path) -> None:
        """A call in doubt is shown at the terminal like a question."""
        till = Till()
        model = ScriptedLlm([call("pay", amount=5)], name="rehearsal")
        engine = await Engine.open(database_file, model=model, tools=[till.tool])
        conversation = await engine.create()
        await conversation.send("Pay.", wait=False)
        await until(lambda: bool(till.keys))
        await engine.close()

        chat = run(
            "chat", conversation.id, "--db", database_file, cwd=database_file.parent, lines=["perhaps", "It ran"]
        )

        assert "The program ended while pay ran" in chat.stdout
        assert "Say one of: It ran, It did not run, Run it again." in chat.stdout
        assert chat.returncode == 0
