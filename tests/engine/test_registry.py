"""The open conversations of an engine: each is created once, costs little at rest, and is opened quickly."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from asyncio import SelectorEventLoop, TimerHandle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from turnwise import (
    ConfigurationError,
    Conversation,
    Delivery,
    Engine,
    InvalidInput,
    MessageUpdate,
    ModelAnswer,
    ModelSpec,
    Policy,
    Refused,
    StoredEntry,
    StoreError,
    presets,
)
from turnwise.engine.composition import PortWrappers, wrapped_ports
from turnwise.engine.registry import KEPT, SharedContexts
from turnwise.engine.watching import KeptUpdates
from turnwise.persistence.errors import StorageFailed, StoreConflict
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Log
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Context, Opened, TurnEnded
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, call, failure, reply

from ..support.cases import holds_for
from ..support.databases import BOTH_STORES, Database, out_of_order, stores
from ..support.planted.stores import WrappedStore

# --- The open conversations of an engine: each is created once, however often it is asked for at the same time, and is
# taken over although the first attempt goes wrong; channels are told when a turn has ended.


class TakenIds:
    """A store in which another engine has just created the conversation that an engine is about to create."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, conversation_id: str, event: Opened, step: Any) -> Log:
        """Create the conversation, and say that its id is taken."""
        await self._store.create(conversation_id, event.replace(title="the one that exists"), step)
        raise StoreConflict(conversation_id)


PATIENCE = 60


class Unreachable:
    """A channel that delivers nothing, so that its deliveries are taken over, too."""

    name = "unreachable"

    async def deliver(self, delivery: Any) -> None:
        """Fail."""
        raise ConnectionError


class Store:
    """A store that is busy while the engine opens. Then the first page of entries that is read is `held`, or fails."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_busy = True
        self.fails = False
        self.held: asyncio.Event | None = None
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, conversation_id: str) -> Any:
        """Load it, unless the store is busy."""
        if self.is_busy:
            raise StorageFailed("The store is busy.")
        return await self._store.load(conversation_id)

    async def entries(self, *arguments: Any, **options: Any) -> Any:
        """Read them, once the test says so."""
        if self.fails:
            self.fails = False
            raise KeyError("a fault of this store")
        if self.held is not None:
            self.held.set()
            await self.go_on.wait()
        return await self._store.entries(*arguments, **options)


@asynccontextmanager
async def interrupted(database: Path) -> AsyncIterator[tuple[Engine, Store]]:
    """An engine that could not take over a turn that waits for its model, behind a text that was not delivered."""
    asked = asyncio.Event()

    async def says(request: Any) -> Any:
        if sum(message["role"] == "user" for message in request.messages) > 1:
            asked.set()
            await asyncio.Event().wait()
        return reply("Said.")

    async with Engine.open(database, model=FunctionLlm(says), channels=[Unreachable()]) as engine:
        conversation = await engine.create(conversation_id="c")
        await conversation.send("One.")
        await conversation.send("Two.", wait=False)
        await asked.wait()
    store = Store(await open_store(database))
    model = FunctionLlm(lambda _: reply("Finished."))
    async with Engine.open(store=store, model=model, channels=[Unreachable()]) as again:
        store.is_busy = False
        yield again, store
    await store.close()


async def reply_of(conversation: Conversation) -> str | None:
    """What the turn ends with."""
    return (await asyncio.wait_for(conversation.wait(), PATIENCE)).reply


class Pager:
    """A channel that keeps what it is told."""

    def __init__(self, name: str = "pager") -> None:
        self.name = name
        self.ended: list[tuple[str, int, str, int]] = []

    async def deliver(self, delivery: Delivery) -> None:
        """Take it."""

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Keep how the turn ended."""
        self.ended.append((conversation_id, ended.turn, ended.status, len(ended.deliveries)))


class BrokenPager(Pager):
    """A channel that fails at the end of each turn."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Fail."""
        raise self.error


async def test_the_conversation_that_has_the_id_is_returned(database: Path) -> None:
    """It is returned as it is, and goes on."""
    store = await SqliteStore.open(str(database))
    try:
        async with Engine.open(store=TakenIds(store), model=ScriptedLlm([reply("Hello.")])) as engine:  # type: ignore[arg-type]
            conversation = await engine.create(title="another one")
            turn = await conversation.send("Hi")

        assert (conversation.title, turn.reply) == ("the one that exists", "Hello.")
    finally:
        await store.close()


async def test_it_goes_on_though_the_caller_is_cancelled(database: Path) -> None:
    """P27: whoever asks first may give up; nobody else would take the conversation over."""
    async with interrupted(database) as (engine, store):
        store.held = asyncio.Event()
        asking = asyncio.ensure_future(engine.get("c"))
        await asyncio.wait_for(store.held.wait(), PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        store.go_on.set()

        assert await reply_of(await engine.get("c")) == "Finished."


async def test_it_is_tried_again_when_it_has_failed(database: Path) -> None:
    """P27: whoever asks next takes the conversation over, whatever the store has raised."""
    async with interrupted(database) as (engine, store):
        store.fails = True
        with pytest.raises(KeyError):
            await engine.get("c")

        assert await reply_of(await engine.get("c")) == "Finished."


async def test_an_engine_closes_although_a_store_does_not_answer(database: Path) -> None:
    """What was to be taken over is left to the next engine."""
    async with interrupted(database) as (engine, store):
        store.held = asyncio.Event()
        asking = asyncio.ensure_future(engine.get("c"))
        await asyncio.wait_for(store.held.wait(), PATIENCE)

        await asyncio.wait_for(engine.close(), PATIENCE)

        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], BaseException)


@BOTH_STORES
class TestTurnEnds:
    """`turn_ended` of a channel."""

    async def test_each_turn_is_told_once(self, database: Database, caplog: pytest.LogCaptureFixture) -> None:
        """J14: with its status and its deliveries, also a turn that failed. A channel that raises changes nothing, also
        if it asks for the result of work that it has cancelled, or would end the process."""
        pager = Pager()
        llm = ScriptedLlm([reply("a"), failure("authentication")])
        errors = [OSError("out of paper"), asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt()]
        channels = [*map(BrokenPager, errors), pager]
        async with asyncio.timeout(20), Engine.open(database, model=llm, channels=channels) as engine:
            conversation = await engine.create()
            told = [(await conversation.send(text)).status for text in ("one", "two")]

        assert told == ["completed", "failed"]
        assert pager.ended == [(conversation.id, 1, "completed", 1), (conversation.id, 2, "failed", 0)]
        assert caplog.text.count("A channel failed at the end of a turn.") == 2 * len(errors)

    async def test_turns_of_an_earlier_process_are_not_told(self, database: Database) -> None:
        """What it heard is all that it is told: a reopened database repeats nothing."""
        pager = Pager()
        async with Engine.open(database, model=ScriptedLlm([reply("a")]), channels=[pager]) as engine:
            conversation = await engine.create()
            await conversation.send("one")
        async with Engine.open(database, model=ScriptedLlm([reply("b")]), channels=[pager]) as engine:
            await (await engine.get(conversation.id)).send("two")

        assert [turn for _, turn, _, _ in pager.ended] == [1, 2]


# --- Conversations whose ids the application chooses: each is created once, however often it is asked for.


HISTORY = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]

CHOICES: dict[str, Mapping[str, Any]] = {
    "nothing": {},
    "system": {"system": "Be brief."},
    "policy": {"policy": presets.talk()},
    "policy with models": {"policy": Policy(models=(ModelSpec(name="one"),), cancel_deadline=3.0)},
    "model": {"model": "two"},
    "model and policy": {"model": "two", "policy": Policy(when_busy="steer")},
    "tools": {"tools": ["talk"]},
    "no tools": {"tools": []},
    "messages": {"messages": HISTORY},
    "owner": {"owner": "ann"},
    "title": {"title": "Dinner"},
    "metadata": {"metadata": {"table": 4}},
    "other metadata": {"metadata": {"table": 4.5}},
    "metadata that Python takes for the same": {"metadata": {"table": True}},
    "metadata like that": {"metadata": {"table": 1}},
    "every": {"every": 60, "task": "Look."},
    "cron": {"every": 90, "task": "Look."},
    "background": {"role": "background"},
    "secrets": {"system": "Be brief.", "policy": Policy(redact=True), "metadata": {"card": "4111 1111 1111 1111"}},
}
"""What an application may choose for a new conversation; no two are the same."""


def engine_at(database: Database, *, models: tuple[str, ...] = ("one", "two"), **options: Any) -> Engine:
    """An engine with models of these names."""
    first, *others = (FunctionLlm(lambda _: reply("Hello."), name=name) for name in models)
    return Engine.open(database, model=first, models=others, tools=["talk"], **options)


async def outcome(engine: Engine, conversation_id: str, choice: Mapping[str, Any]) -> str:
    """Create a conversation, and return its id or the code of the refusal."""
    try:
        return (await engine.create(conversation_id=conversation_id, **choice)).id
    except Refused as refused:
        return refused.code


async def length(conversation: Conversation) -> int:
    """Return the number of steps in the log."""
    return len(await conversation.events())


@BOTH_STORES
class TestAskedForAgain:
    """The first answer may be lost on its way, so a client asks again."""

    @pytest.mark.slow
    @pytest.mark.parametrize("name", CHOICES)
    async def test_the_same_conversation_is_returned(self, name: str, database: Database) -> None:
        """At once, after it has gone on and was renamed, and after a restart with another default model."""
        choice = CHOICES[name]
        async with engine_at(database, clock=ManualClock()) as engine:
            first = await engine.create(conversation_id="mine", **choice)
            assert await outcome(engine, "mine", choice) == first.id == "mine"
            await first.set_title("Another title")
            await first.set_policy(Policy(when_busy="steer"))
            steps = await length(first)

            again = await engine.create(conversation_id="mine", **choice)

            assert (again.title, await length(again)) == ("Another title", steps)
        async with engine_at(database, models=("two", "one"), policy=Policy(when_busy="steer")) as engine:
            assert await outcome(engine, "mine", choice) == "mine"
            assert len(await engine.list()) == 1

    @pytest.mark.slow
    async def test_with_other_choices_it_is_refused(self, database: Database) -> None:
        """Each choice against each other one, and nothing is changed by that. Rules and a model that are left to the
        engine are no choice."""
        async with engine_at(database) as engine:
            for number, (name, choice) in enumerate(CHOICES.items()):
                await engine.create(conversation_id=f"c{number}", **choice)
                for other, asked in CHOICES.items():
                    chosen = {key: choice[key] for key in choice if key not in ("policy", "model") or key in asked}
                    is_same = repr(chosen) == repr(asked)  # to Python, 1 equals True
                    expected = f"c{number}" if is_same else "event_id_reused"
                    assert await outcome(engine, f"c{number}", asked) == expected, (name, other)

            assert {summary.seq for summary in await engine.list()} == {1}

    async def test_asked_for_many_times_at_once(self, database: Database) -> None:
        """One is created, and all callers hold it; one who wants something else is refused."""
        async with engine_at(database) as engine:
            asking = [outcome(engine, "mine", {"title": "Dinner"}) for _ in range(10)]

            outcomes = await asyncio.gather(*asking, outcome(engine, "mine", {}))

            assert sorted(outcomes) == ["event_id_reused", *["mine"] * 10]
            assert [summary.title for summary in await engine.list()] == ["Dinner"]

    async def test_by_two_engines_over_one_store(self, database: Database) -> None:
        """The store decides who was first."""
        model = FunctionLlm(lambda _: reply("Hello."))
        async with (
            stores(database, 2) as (its_store, other_store),
            Engine.open(store=its_store, model=model) as one,
            Engine.open(store=other_store, model=model) as other,
        ):
            outcomes = await asyncio.gather(*(outcome(engine, "mine", {}) for engine in (one, other, one, other)))

            assert outcomes == ["mine"] * 4

    async def test_a_full_disk_creates_nothing(self, database: Database) -> None:
        """The error is that of any `create`; asked for again, the conversation is there."""
        async with engine_at(database) as engine:
            async with out_of_order(engine, database):
                with pytest.raises(StoreError):
                    await engine.create(conversation_id="mine")

            assert await engine.list() == ()
            assert await outcome(engine, "mine", {}) == "mine"

    async def test_a_deleted_one_is_created_anew(self, database: Database) -> None:
        """Nothing is left by which it could be known."""
        async with engine_at(database) as engine:
            first = await engine.create(conversation_id="mine", title="Dinner")
            await first.send("Hello")
            await engine.delete("mine")

            again = await engine.create(conversation_id="mine")

            assert (again.title, await length(again)) == (None, 1)

    async def test_a_deletion_that_nobody_waits_for_may_fail(self, database: Database) -> None:
        """Its caller was cancelled, and another engine has deleted the conversation: there is nobody to tell."""
        reported = list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: reported.append(fault))
        async with (
            stores(database, 2) as (its_store, other_store),
            Engine.open(store=its_store) as one,
            Engine.open(store=other_store) as other,
        ):
            await one.create(conversation_id="mine")
            await other.get("mine")
            deletions = [asyncio.ensure_future(engine.delete("mine")) for engine in (one, other)]
            await asyncio.sleep(0)
            for each in deletions:
                each.cancel()
            await asyncio.wait(deletions)
            while await one.list():
                await asyncio.sleep(0)

        gc.collect()
        assert reported == []

    async def test_one_that_is_created_while_the_old_one_is_deleted_goes_on(self, database: Database) -> None:
        """The old one is gone for everybody long before its last steps are overwritten. What ends the deletion then
        concerns nothing of the new one, which has its id and is in the middle of a turn."""
        async with engine_at(database) as engine:
            old = await engine.create(conversation_id="mine")
            for _ in range(40):
                await old.send("x" * 20_000)

        deleted = asyncio.Event()

        async def answer(request: Any) -> Any:
            await deleted.wait()
            return reply("Hello.")

        async with Engine.open(database, model=FunctionLlm(answer)) as engine:
            deleting = asyncio.ensure_future(engine.delete("mine"))
            deleting.add_done_callback(lambda _: deleted.set())
            while await engine.list():
                await asyncio.sleep(0)
            new = await engine.create(conversation_id="mine")
            turn = await asyncio.wait_for(new.send("Hello"), 10)

            assert (turn.status, turn.reply) == ("completed", "Hello.")
            assert await length(await engine.get("mine")) == 3

    async def test_an_agent_of_a_conversation_that_is_closed_by_now(self, database: Database) -> None:
        """It belongs to the owner of that conversation, and is returned although none could be created now."""
        async with engine_at(database) as engine:
            served = await engine.create(owner="ann")
            choice = {"role": "background", "works_for": served.id}
            agent = await engine.create(conversation_id="mine", **choice)  # type: ignore[arg-type]
            await served.close()

            assert (await outcome(engine, "mine", choice), agent.owner) == ("mine", "ann")
            assert await outcome(engine, "mine", {**choice, "owner": "bob"}) == "event_id_reused"
            assert await outcome(engine, "another", choice) == "closed"


class TestIds:
    """Which ids an application may choose."""

    @pytest.mark.parametrize("chosen", ["a", "7", "a" * 100, "550e8400-e29b-41d4-a716-446655440000", "a.b_c:d@e~f-"])
    async def test_one_that_can_stand_in_a_url(self, chosen: str) -> None:
        """Letters, digits and a few signs."""
        async with engine_at("sqlite://") as engine:
            assert (await engine.create(conversation_id=chosen)).id == chosen
            assert (await engine.get(chosen)).id == chosen

    @holds_for(
        "chosen", ["", " ", "a b", ".", "..", "-a", "a/1", "a\\b", "a%2f", "a?", "a#", "ä", "a\n", "\ud800", "a" * 101]
    )
    async def test_any_other_is_refused(self, chosen: str) -> None:
        """A slash above all, which is in the ids of sub-agents: nobody creates one of another conversation."""
        async with engine_at("sqlite://") as engine:
            with pytest.raises(InvalidInput, match="1 to 100 characters"):
                await engine.create(conversation_id=chosen)

            assert await engine.list() == ()

    @pytest.mark.parametrize("chosen", [5, b"a", ["a"], True])
    async def test_what_is_no_text_is_refused(self, chosen: Any) -> None:
        """With a sentence."""
        async with engine_at("sqlite://") as engine:
            with pytest.raises(InvalidInput, match="is a text"):
                await engine.create(conversation_id=chosen)

    async def test_the_id_of_a_copy_is_taken(self, database: Path) -> None:
        """It was not asked for by anybody, so no arguments are those by which it was opened."""
        async with engine_at(database) as engine:
            copy = await (await engine.create(conversation_id="mine")).fork()

            assert await outcome(engine, copy.id, {}) == "event_id_reused"

    async def test_what_the_engine_does_not_have_is_said_first(self) -> None:
        """An unknown model is a fault of the application, whether or not the id is taken."""
        async with engine_at("sqlite://") as engine:
            await engine.create(conversation_id="mine")

            with pytest.raises(ConfigurationError, match="no model called three"):
                await engine.create(conversation_id="mine", model="three")


def test_without_an_event_loop() -> None:
    """The blocking engine takes the id, too."""
    model = FunctionLlm(lambda _: reply("Hello."))
    with Engine.open_blocking("sqlite://", model=model) as engine:
        first = engine.create(conversation_id="mine")

        assert engine.create(conversation_id="mine").id == first.id == "mine"


# --- A conversation that rests costs little memory, and neither a task nor a timer.


AGENTS = 30


class Model:
    """Answers at once, and keeps nothing."""

    name = "instant"

    async def complete(self, request: Any, show: Any) -> ModelAnswer:
        """Answer."""
        return ModelAnswer(content="Noted.")


class CountingLoop(SelectorEventLoop):
    """An event loop that knows its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.started: WeakSet[TimerHandle] = WeakSet()

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> TimerHandle:
        """Start a timer, and remember it."""
        timer = super().call_at(when, callback, *arguments, **options)
        self.started.add(timer)
        return timer

    def timers(self) -> int:
        """How many timers run."""
        return sum(not timer.cancelled() and timer.when() > self.time() for timer in self.started)


async def agents(engine: Engine, count: int, turns: int) -> list[Conversation]:
    """Create background agents that have had some turns, and let everything come to rest."""
    made = [await engine.create(role="background", system="You look for tables.") for _ in range(count)]
    for conversation in made:
        for _ in range(turns):
            await conversation.send("Look.")
    for _ in range(20):
        await asyncio.sleep(0)
    return made


def test_a_resting_conversation_has_neither_a_task_nor_a_timer(tmp_path: Path) -> None:
    """However many there are, and whatever they did before: turns, watchers, waits for a turn."""
    loop = CountingLoop()

    async def count() -> tuple[tuple[int, int], tuple[int, int]]:
        async with Engine.open(tmp_path / "agents.db", model=Model()) as engine:
            kept = await agents(engine, 1, 1)
            before = len(asyncio.all_tasks()), loop.timers()
            kept += await agents(engine, AGENTS, 1)
            for conversation in kept:
                updates = conversation.updates()
                await anext(updates)
                await updates.aclose()
                await conversation.wait()
            kept += [await engine.get(one.id) for one in kept]
            await asyncio.sleep(0)
            return before, (len(asyncio.all_tasks()), loop.timers())

    try:
        before, after = loop.run_until_complete(count())
    finally:
        loop.close()

    assert after == before


@pytest.mark.slow
def test_a_resting_conversation_takes_less_than_four_kilobytes(tmp_path: Path) -> None:
    """One that has just begun, and one that was read from its log, with the handle on it."""

    async def measure() -> tuple[float, float]:
        path = tmp_path / "agents.db"
        async with Engine.open(path, model=Model()) as engine:
            kept = await agents(engine, 5, 0)
            begun, made = await growth(lambda: agents(engine, AGENTS, 0))
            ids = [one.id for one in made]
        async with Engine.open(path, model=Model()) as engine:
            kept += [await engine.get(ids.pop()) for _ in range(5)]

            async def read() -> list[Conversation]:
                return [await engine.get(each) for each in ids]

            return begun, (await growth(read))[0]

    tracemalloc.start()
    try:
        begun, loaded = asyncio.run(measure())
    finally:
        tracemalloc.stop()

    transcript = 1300  # what an empty one takes
    assert begun < 4096 + transcript
    assert loaded < 4096


async def growth(make: Any) -> tuple[float, list[Any]]:
    """Return how many bytes each of the things takes that are made."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    made = await make()
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) / len(made), made


async def test_a_watcher_that_begins_after_a_rest_misses_nothing(tmp_path: Path) -> None:
    """What the loop has let go of is read from the log."""
    async with Engine.open(tmp_path / "agents.db", model=Model()) as engine:
        (conversation,) = await agents(engine, 1, 0)
        updates = conversation.updates(after="1.1")
        for text in ("one", "two"):
            await conversation.send(text)
        texts: list[str] = []
        while len(texts) < 2:
            update = await anext(updates)
            texts += [update.text] if isinstance(update, MessageUpdate) else []
        await updates.aclose()

    assert texts == ["one", "two"]


async def test_a_request_that_is_repeated_long_after_is_known(tmp_path: Path) -> None:
    """By the log, when the loop remembers it no more."""
    async with Engine.open(tmp_path / "agents.db", model=Model()) as engine:
        (conversation,) = await agents(engine, 1, 0)
        first = await conversation.send("first", message_id="first")
        for number in range(6):
            await conversation.send(f"later {number}")
        again = await conversation.send("first", message_id="first")
        turns = await conversation.turns()

    assert (again, len(turns)) == (first, 7)


class TestSharedContexts:
    """Equal rules are one object."""

    def test_equal_contexts_are_shared(self) -> None:
        """However they were made: from a log, or for a new conversation."""
        contexts = SharedContexts()
        first = contexts.shared(Context(policy=presets.talk(), system="Be brief.", owner="anna"))
        read = Context.model_validate_json(first.model_dump_json())

        assert contexts.shared(Context(policy=presets.talk(), system="Be brief.", owner="anna")) is first
        other = contexts.shared(read.replace(owner="bert"))
        assert (other.owner, other.system) == ("bert", "Be brief.")
        assert other.system is first.system

    @pytest.mark.parametrize("policy", [presets.talk(), Policy(parallel=5), Policy(parallel=4)])
    def test_a_context_is_equal_to_the_one_that_was_given(self, policy: Policy) -> None:
        """Also in which fields of its policy were given, on which a later change of the rules depends."""
        contexts = SharedContexts()
        contexts.shared(Context(policy=Policy()))
        given = Context(policy=policy, title="Dinner", metadata={"a": [1]})

        shared = contexts.shared(given)

        assert shared == given and shared.to_json() == given.to_json()
        assert shared.policy.model_fields_set == policy.model_fields_set

    def test_few_are_kept(self) -> None:
        """The newest."""
        contexts = SharedContexts()
        first = contexts.shared(Context(owner="0"))
        for number in range(1, KEPT + 1):
            last = contexts.shared(Context(owner=str(number)))

        assert contexts.shared(Context(owner=str(KEPT))) is last
        assert contexts.shared(Context(owner="0")) is not first


class TestKeptUpdates:
    """What is published is kept for readers only as long as it may be read."""

    def test_the_newest_are_kept(self) -> None:
        """A reader that fell behind learns so."""
        kept = KeptUpdates[int](3)
        kept.keep(range(5))

        assert (kept.since(2), kept.since(5), kept.since(1), kept.end) == ((2, 3, 4), (), None, 5)

    def test_nothing_is_kept_once_the_last_reader_has_left(self) -> None:
        """It reads from the log if it comes back."""
        kept = KeptUpdates[int](3)
        with kept.reading():
            with kept.reading():
                kept.keep((1,))
            assert (kept.is_watched, kept.since(0)) == (True, (1,))

        assert (kept.is_watched, kept.since(0), kept.since(1)) == (False, None, ())

    async def test_the_end_wakes_those_who_wait(self) -> None:
        """So does an item that nobody knows."""
        kept = KeptUpdates[int](3)
        waiting = asyncio.ensure_future(kept.beyond(0))
        await asyncio.sleep(0)
        kept.skip()
        await waiting
        assert kept.since(0) is None

        waiting = asyncio.ensure_future(kept.beyond(1))
        await asyncio.sleep(0)
        kept.end_updates()
        await waiting

        assert kept.has_ended_at(1) and not kept.has_ended_at(0)


# --- The first step of a stored conversation costs what its head costs, however long it is.
#
# The history is read where a model is to be told of it, or where somebody asks what was said, and only then.


SHORT, LONG = 1, 12
"""Turns of the conversations that are compared."""

QUESTION = {"question": "Which one?", "header": "Table", "options": [{"label": "Kikunoi"}, {"label": "Nobu"}]}


class CountingStore(WrappedStore):
    """Counts the steps that are read from logs, and can hold up those who read them."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.steps_read = 0
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Read them."""
        await self.may_read.wait()
        entries = await self.store.entries(conversation_id, after, up_to)
        self.steps_read += len(entries)
        return entries


@contextmanager
def counting() -> Iterator[list[CountingStore]]:
    """Count what the engines read that are opened in this block; the stores are added to the list."""
    stores: list[CountingStore] = []

    def count(store: Any) -> Any:
        stores.append(CountingStore(store))
        return stores[-1]

    with wrapped_ports(PortWrappers(store=count)):
        yield stores


def answer(request: Any) -> Any:
    """Ask the user where the last message says so, otherwise reply."""
    if request.messages[-1]["content"] == "Ask me.":
        return call("ask_user_question", questions=[QUESTION])
    return reply("Noted.")


async def stored(file: Path, turns: int, *, asks: bool) -> str:
    """Store a conversation of some turns, which rests at a question if it `asks`. Returns its id."""
    async with Engine.open(file, model=FunctionLlm(answer), tools=["ask_user_question"]) as engine:
        conversation = await engine.create()
        for _ in range(turns):
            await conversation.send("A table for two")
        if asks:
            assert (await conversation.send("Ask me.")).status == "awaiting_user"
        return conversation.id


@asynccontextmanager
async def loaded(file: Path, turns: int, *, asks: bool) -> AsyncIterator[tuple[Conversation, CountingStore, list[int]]]:
    """Open the database again and get the conversation. The list holds how many steps were read when a model was
    asked."""
    conversation_id = await stored(file, turns, asks=asks)
    asked: list[int] = []

    def note(request: Any) -> Any:
        asked.append(stores[0].steps_read)
        return answer(request)

    with counting() as stores:
        async with Engine.open(file, model=FunctionLlm(note), tools=["ask_user_question"]) as engine:
            yield await engine.get(conversation_id), stores[0], asked


REQUESTS: tuple[Callable[[Conversation], Awaitable[object]], ...] = (
    lambda conversation: conversation.cancel(),
    lambda conversation: conversation.close(),
    lambda conversation: conversation.set_tools([]),
)


@pytest.mark.parametrize("turns", [SHORT, LONG])
class TestStoredConversations:
    """Nothing of the history is read for what does not need it."""

    async def test_getting_one_reads_its_head_only(self, turns: int, tmp_path: Path) -> None:
        """Its state and its settings are known without its log."""
        async with loaded(tmp_path / "a.db", turns, asks=True) as (conversation, store, _):
            assert conversation.state.type == "awaiting_user_response"
            assert conversation.system == ""
            assert conversation.policy.recovery is not None

            assert store.steps_read == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("request_of", REQUESTS, ids=["cancel", "close", "set_tools"])
    async def test_a_request_that_needs_no_model_reads_no_history(
        self, request_of: Callable[[Conversation], Awaitable[object]], turns: int, tmp_path: Path
    ) -> None:
        """Also where it ends a turn that rests at a question."""
        async with loaded(tmp_path / "a.db", turns, asks=True) as (conversation, store, asked):
            await request_of(conversation)

            assert (store.steps_read, asked) == (0, [])

    async def test_a_message_is_stored_before_the_history_is_read(self, turns: int, tmp_path: Path) -> None:
        """The caller need not wait for what the model is told: here that cannot be read meanwhile."""
        async with loaded(tmp_path / "a.db", turns, asks=False) as (conversation, store, asked):
            store.may_read.clear()
            await conversation.send("A table for two", message_id="1", wait=False)
            store.may_read.set()

            await conversation.send("A table for two", message_id="1")
            assert len(asked) == 1

    @pytest.mark.parametrize("asks", [False, True])
    async def test_the_history_is_read_once_for_the_request_to_the_model(
        self, asks: bool, turns: int, tmp_path: Path
    ) -> None:
        """The turn that follows reads nothing more."""
        async with loaded(tmp_path / "a.db", turns, asks=asks) as (conversation, store, asked):
            steps = conversation.state.book.seq + 1
            turn = await (conversation.answer({"Which one?": "Nobu"}) if asks else conversation.send("A table for two"))
            await conversation.send("And another one")

            assert turn.status == "completed"
            assert asked == [steps, steps]
            assert store.steps_read == steps
