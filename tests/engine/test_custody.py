"""Several engines over one shared store: whoever holds a conversation carries out its effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from turnwise import ConfigurationError, Conversation, Engine, EngineClosed, StoreError, ToolContext, presets, tool
from turnwise.engine.settings import Settings
from turnwise.persistence.opening import open_store
from turnwise.states import AwaitingApproval, Idle
from turnwise.testing import FunctionLlm, RecordingChannel, call

from ..simulation.shared_store import steady_storage
from ..support.planted.stores import WrappedLog, WrappedStore

PATIENCE = 30.0
"""Seconds within which anything happens, also on a slow machine."""


class Place:
    """A store in memory that is shared by the engines that are opened over it."""

    def __init__(self, engines: AsyncExitStack) -> None:
        self._engines = engines
        self._storage = steady_storage()
        self.trace = self._storage.disk.trace
        self._count = 0

    async def store(self) -> Any:
        """The store, as one more process has it open."""
        self._count += 1
        return (await self._storage.open(f"P{self._count}")).store

    async def engine(self, **options: Any) -> Engine:
        """An engine in a process of its own."""
        return await self.opened(await self.store(), **options)

    async def opened(self, store: Any, lease: float = 5.0, worker_slots: int = 100, **options: Any) -> Engine:
        """An engine over this store."""
        opening = Engine.open(store=store, settings=Settings(lease=lease, worker_slots=worker_slots), **options)
        return await self._engines.enter_async_context(opening)

    async def events(self, conversation: Conversation) -> list[str]:
        """The types of the events of a conversation, as stored."""
        return [entry.event.type for entry in await (await self.store()).entries(conversation.id)]

    async def outbox(self, conversation: Conversation) -> Sequence[Any]:
        """What a conversation has still to hand over."""
        outbox: Sequence[Any] = await (await self.store()).outbox([conversation.id])
        return outbox


class PostgresPlace(Place):
    """A database of PostgreSQL."""

    def __init__(self, engines: AsyncExitStack, url: str) -> None:
        super().__init__(engines)
        self._url = url

    async def store(self) -> Any:
        """The store, as one more process has it open."""
        store = await open_store(self._url, connections=3)
        self._engines.push_async_callback(store.close)
        return store


class CountsReads(WrappedStore):
    """A store that notes how conversations are read."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, lambda log: _CountingLog(log, self.reads))
        self.reads: list[str] = []
        self.jobs = store.jobs
        self.take, self.let_go, self.confirm, self.show = store.take, store.let_go, store.confirm, store.show
        self.find_moved, self.notices = store.find_moved, store.notices

    async def load(self, conversation_id: str) -> Any:
        """See `Store`."""
        self.reads.append("load")
        return await super().load(conversation_id)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> Any:
        """See `Store`."""
        self.reads.append("entries")
        return await self.store.entries(conversation_id, after, up_to)


class _CountingLog(WrappedLog):
    def __init__(self, log: Any, reads: list[str]) -> None:
        super().__init__(log)
        self._reads = reads

    async def catch_up(self) -> Any:
        """See `Log`."""
        self._reads.append("catch_up")
        return await super().catch_up()


Shared = Callable[[], AbstractAsyncContextManager[Place]]


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.slow)])
def shared(request: pytest.FixtureRequest) -> Shared:
    """Makes a store, over which engines are closed at the end."""
    url: str | None = None if request.param == "memory" else request.getfixturevalue("migrated_postgres_url")

    @asynccontextmanager
    async def shared() -> AsyncIterator[Place]:
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as engines:
            place = Place(engines) if url is None else PostgresPlace(engines, url)
            yield place
        assert place.trace.faults == []

    return shared


async def until(holds: Callable[[], bool]) -> None:
    """Return once this holds."""
    while not holds():
        await asyncio.sleep(0.01)


class Runs:
    """A tool that runs until it is told to end, and counts how often it begins."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ends = asyncio.Event()
        self.times = 0

    def tool(self, crash: Any = "at_most_once", **options: Any) -> Any:
        """The tool."""

        @tool(name="work", crash=crash, **options)
        async def work(what: str) -> str:
            """Work."""
            self.times += 1
            self.begun.set()
            await self.ends.wait()
            return f"{what} is done"

        return work


def works_once(request: Any) -> Any:
    """Call the tool, and report what it has returned."""
    last = request.messages[-1]
    return f"Then {last['content']}." if last["role"] == "tool" else call("work", what="it")


OPTIONS: dict[str, Any] = {"model": FunctionLlm(works_once)}


async def running_elsewhere(place: Place, runs: Runs) -> tuple[Engine, Engine, Conversation]:
    """A process that only takes requests, a worker, and a conversation of the first whose tool runs in the second."""
    web = await place.engine(**OPTIONS, tools=[runs.tool()], worker=False)
    worker = await place.engine(**OPTIONS, tools=[runs.tool()])
    conversation = await web.create()
    await conversation.send("Hi", wait=False)
    await runs.begun.wait()
    return web, worker, conversation


class TestWorking:
    """A process that only takes requests, and workers."""

    async def test_a_worker_carries_out_what_another_process_stored(self, shared: Shared) -> None:
        """The caller there learns how the turn ended, and the worker has let go in the end."""
        runs = Runs()
        runs.ends.set()
        async with shared() as place:
            web = await place.engine(**OPTIONS, tools=[runs.tool()], worker=False)
            worker = await place.engine(**OPTIONS, tools=[runs.tool()])
            conversation = await web.create()

            turn = await conversation.send("Hi")

            assert turn.reply == "Then it is done."
            await until(lambda: worker.custody_counts.held == 0)
            assert (worker.custody_counts.taken, worker.custody_counts.taken_over) == (1, 0)
            assert web.custody_counts.taken == 0

    async def test_a_worker_reads_once_what_it_has_missed(self, shared: Shared) -> None:
        """What it takes is in memory from the turn before, and the step that the other process has stored also says
        what is to be carried out. While nobody looks at it there, no notice has it read. At first the newest steps are
        read, and what was said."""
        runs = Runs()
        runs.ends.set()
        async with shared() as place:
            web = await place.engine(**OPTIONS, tools=[runs.tool()], worker=False)
            reading = CountsReads(await place.store())
            worker = await place.opened(reading, **OPTIONS, tools=[runs.tool()])
            conversation = await web.create()
            reads = []
            for title in ("Breakfast", "Lunch", "Dinner"):
                await conversation.send("Hi")
                await until(lambda: worker.custody_counts.held == 0)
                await conversation.set_title(title)
                reads.append(reading.reads.copy())
                reading.reads.clear()

            assert reads == [["load", "entries", "entries"], ["catch_up"], ["catch_up"]]

    async def test_without_a_worker_nothing_is_carried_out(self, shared: Shared) -> None:
        """The message is stored, and waits."""
        runs = Runs()
        async with shared() as place:
            web = await place.engine(**OPTIONS, tools=[runs.tool()], worker=False)
            conversation = await web.create()

            await conversation.send("Hi", wait=False)
            await asyncio.sleep(0.2)

            assert len(await place.events(conversation)) == 2
            assert web.waiting == ()

    async def test_the_first_pick_up_is_no_crash(self, shared: Shared) -> None:
        """A call that must not run twice, and that a person has allowed in another process, runs; nothing is reported
        as interrupted."""
        runs = Runs()
        runs.ends.set()
        async with shared() as place:
            tools = [runs.tool(approval=True)]
            web = await place.engine(**OPTIONS, tools=tools, worker=False)
            worker = await place.engine(**OPTIONS, tools=tools)
            conversation = await web.create(policy=presets.assistant())
            await conversation.send("Hi")
            await until(lambda: worker.custody_counts.held == 0)

            state = conversation.state
            assert isinstance(state, AwaitingApproval)
            await conversation.approve(state.call.call_id, allowed=True)
            turn = await conversation.wait()

            assert turn.reply == "Then it is done."
            assert runs.times == 1
            types = await place.events(conversation)
            assert "resumed" not in types and "tool_interrupted" not in types
            assert worker.custody_counts.taken_over == 0

    async def test_a_cancel_in_another_process_stops_what_runs(self, shared: Shared) -> None:
        """The worker hears of it, stops the tool, and lets go."""
        runs = Runs()
        async with shared() as place:
            web, worker, conversation = await running_elsewhere(place, runs)
            await web.refresh(conversation.id)

            await conversation.cancel()
            turn = await conversation.wait()

            assert turn.status == "cancelled"
            await until(lambda: worker.custody_counts.held == 0)

    async def test_what_was_said_is_delivered_by_the_worker(self, shared: Shared) -> None:
        """Once, through its channels."""
        channel = RecordingChannel()
        async with shared() as place:
            web = await place.engine(model=FunctionLlm(lambda _: "Hello."), channels=[channel], worker=False)
            worker = await place.engine(model=FunctionLlm(lambda _: "Hello."), channels=[channel])
            conversation = await web.create()

            await conversation.send("Hi")
            await until(lambda: worker.custody_counts.taken == 1 and worker.custody_counts.held == 0)

            assert [delivery.text for delivery in channel.deliveries] == ["Hello."]
            assert await place.outbox(conversation) == ()

    async def test_a_call_that_asks_is_kept_until_it_is_answered_elsewhere(self, shared: Shared) -> None:
        """Its process holds the conversation as long as it waits, and it goes on there."""
        begun = 0

        @tool(name="work", crash="at_most_once", exclusive=True, acts=["question"])
        async def asks(what: str, context: ToolContext) -> str:
            """Work, if allowed."""
            nonlocal begun
            begun += 1
            answers = await context.ask([{"question": "Really?"}])
            return f"{what} is {answers.answers['Really?']}"

        async with shared() as place:
            web = await place.engine(**OPTIONS, tools=[asks], worker=False)
            worker = await place.engine(**OPTIONS, tools=[asks])
            conversation = await web.create()
            turn = await conversation.send("Hi")
            assert turn.status == "awaiting_user"
            await asyncio.sleep(0.2)
            assert worker.custody_counts.held == 1

            turn = await conversation.answer({"Really?": "yes"})

            assert (turn.reply, begun) == ("Then it is yes.", 1)
            await until(lambda: worker.custody_counts.held == 0)

    async def test_a_turn_is_traced_where_it_is_carried_out(self, shared: Shared) -> None:
        """Its model requests are in its span, although another process has begun it. The span ends with the turn."""
        pytest.importorskip("opentelemetry.sdk", reason="the extra `dev` brings the SDK")
        from .test_tracing import Spans

        spans, runs = Spans(), Runs()
        runs.ends.set()
        async with shared() as place:
            web = await place.engine(**OPTIONS, tools=[runs.tool()], worker=False)
            worker = await place.engine(**OPTIONS, tools=[runs.tool()], tracer_provider=spans.provider)
            await (await web.create()).send("Hi")
            await until(lambda: worker.custody_counts.held == 0)

            turn = spans.one("invoke_agent")
            inner = [span for span in spans.all if span is not turn]
            assert len(inner) == 3
            assert all(span.parent is not None and span.parent.span_id == turn.context.span_id for span in inner)


class TestDelivered:
    """`delivered` waits for what all processes have said, whichever of them sends it."""

    async def test_the_caller_waits_for_another_process(self, shared: Shared) -> None:
        """The attempt of the worker ends first, also if it fails."""
        arrived, ends = asyncio.Event(), asyncio.Event()

        async def fails(_: Any) -> None:
            arrived.set()
            await ends.wait()
            raise OSError("The screen is off.")

        channel, model = RecordingChannel(fails), FunctionLlm(lambda _: "Hello.")
        async with shared() as place:
            web = await place.engine(model=model, channels=[channel], worker=False)
            await place.engine(model=model, channels=[channel])
            conversation = await web.create()
            await conversation.send("Hi")
            await arrived.wait()
            waiting = asyncio.ensure_future(web.delivered())
            await asyncio.sleep(0.1)
            assert not waiting.done()

            ends.set()
            await waiting

            assert [delivery.text for delivery in channel.failed] == ["Hello."]

    async def test_what_waits_for_a_worker_is_waited_for(self, shared: Shared) -> None:
        """A worker that comes later sends it; one that ends the conversation stops no caller."""
        channel, model = RecordingChannel(), FunctionLlm(lambda _: "Hello.")
        async with shared() as place:
            web = await place.engine(model=model, channels=[channel], worker=False)
            await web.delivered()
            conversation = await web.create()
            await conversation.send("Hi", wait=False)
            other = await place.engine(model=model, channels=[channel], worker=False)
            await other.delivered()  # nothing is said yet
            assert channel.texts == []

            await place.engine(model=model, channels=[channel])
            await conversation.wait()
            await other.delivered()

            assert channel.texts == ["Hello."]

    async def test_closing_ends_the_wait(self, shared: Shared) -> None:
        """The caller learns that the engine is closed."""
        model, channel = FunctionLlm(lambda _: "Hello."), RecordingChannel(lambda _: asyncio.Event().wait())
        async with shared() as place:
            web = await place.engine(model=model, channels=[channel], worker=False)
            await place.engine(model=model, channels=[channel])
            await (await web.create()).send("Hi")
            waiting = asyncio.ensure_future(web.delivered())
            await asyncio.sleep(0.1)
            await web.close()

            with pytest.raises(EngineClosed):
                await waiting


class TestLosing:
    """A custody that another process has taken."""

    async def test_answers_of_a_lost_custody_are_dropped(self, shared: Shared) -> None:
        """Nothing of what ran gets into the log, and a request at that very process is stored all the same."""
        runs = Runs()
        async with shared() as place:
            other = await place.store()
            worker = await place.engine(**OPTIONS, tools=[runs.tool()])
            conversation = await worker.create()
            await conversation.send("Hi", wait=False)
            await runs.begun.wait()

            taken = await other.take(conversation.id, "somebody else")
            assert taken is not None and taken.was_left
            runs.ends.set()
            await until(lambda: worker.custody_counts.lost == 1)
            await conversation.set_title("Still there")

            types = await place.events(conversation)
            assert types[-1] == "details_changed"
            assert "tool_complete" not in types
            await until(lambda: worker.custody_counts.held == 0)

    async def test_a_call_that_must_not_run_twice_is_in_doubt_after_a_take_over(self, shared: Shared) -> None:
        """The process that began it has not let go."""
        runs = Runs()
        async with shared() as place:
            other = await place.store()
            first = await place.engine(**OPTIONS, tools=[runs.tool()], lease=1.0)
            conversation = await first.create()
            await conversation.send("Hi", wait=False)
            await runs.begun.wait()
            second = await place.engine(**OPTIONS, tools=[runs.tool()])

            taken = await other.take(conversation.id, "somebody who dies")
            assert taken is not None
            await other.let_go(taken, at_rest=False)
            there = await second.get(conversation.id)
            while there.state.type != "in_doubt":
                await second.refresh(conversation.id)
                await asyncio.sleep(0.01)

            assert runs.times == 1


class TestLettingGo:
    """A conversation that rests."""

    async def test_a_step_that_is_stored_before_it_is_let_go_is_not_lost(self, shared: Shared) -> None:
        """Another process stores a message between the look at the state and the end of the custody; its job calls."""
        async with shared() as place:
            web = await place.engine(model=FunctionLlm(lambda _: "Hello."), worker=False)
            store = await place.store()
            let_go, sent = store.let_go, asyncio.Event()

            async def send_before(taken: Any, *, at_rest: bool) -> None:
                if not sent.is_set():
                    sent.set()
                    await again.send("Once more", wait=False, message_id="late")
                await let_go(taken, at_rest=at_rest)

            store.let_go = send_before
            worker = await place.opened(store, model=FunctionLlm(lambda _: "Hello."))
            conversation = await web.create()
            again = await web.get(conversation.id)

            await conversation.send("Hi")
            await sent.wait()
            turn = await again.send("Once more", message_id="late")

            assert turn.number == 2
            await until(lambda: worker.custody_counts.held == 0)
            assert worker.custody_counts.taken == 2

    async def test_a_deadline_is_kept_by_whoever_is_called_when_it_is_due(self, shared: Shared) -> None:
        """Nobody holds the conversation while a person is waited for."""
        async with shared() as place:
            policy = presets.assistant().replace(approval_deadline=7.0)
            tools = [Runs().tool(approval=True)]
            web = await place.engine(**OPTIONS, tools=tools, worker=False)
            worker = await place.engine(**OPTIONS, tools=tools)
            conversation = await web.create(policy=policy)

            turn = await conversation.send("Hi")
            assert turn.status == "awaiting_approval"
            await until(lambda: worker.custody_counts.held == 0)
            while not isinstance(conversation.state, Idle):
                await web.refresh(conversation.id)
                await asyncio.sleep(0.02)

            assert worker.custody_counts.taken_over == 0

    async def test_drained_workers_come_to_rest(self, shared: Shared) -> None:
        """What is at hand ends, and nothing new is taken; another worker takes that."""
        runs = Runs()
        async with shared() as place:
            first = await place.engine(**OPTIONS, tools=[runs.tool()])
            conversation = await first.create()
            await conversation.send("Hi", wait=False)
            await runs.begun.wait()

            draining = asyncio.ensure_future(first.drain(PATIENCE))
            await asyncio.sleep(0.1)
            assert not draining.done()
            runs.ends.set()
            await draining
            await conversation.send("Again", wait=False)
            second = await place.engine(**OPTIONS, tools=[runs.tool()])

            assert (await (await second.get(conversation.id)).wait()).number == 2
            assert first.custody_counts.taken == 1

    async def test_what_is_not_at_rest_goes_on_elsewhere_when_its_worker_closes(self, shared: Shared) -> None:
        """At once, without waiting until it counts as dead."""
        runs = Runs()
        async with shared() as place:
            first = await place.engine(**OPTIONS, tools=[runs.tool("idempotent")], lease=1000.0)
            conversation = await first.create()
            await conversation.send("Hi", wait=False)
            await runs.begun.wait()
            second = await place.engine(**OPTIONS, tools=[runs.tool("idempotent")], lease=1000.0)

            await first.close()
            runs.ends.set()
            turn = await (await second.get(conversation.id)).wait()

            assert turn.reply == "Then it is done."
            assert runs.times == 2
            assert second.custody_counts.taken_over == 1

    @pytest.mark.parametrize("steps", [0, 1, 4, 16])
    async def test_one_whose_opening_is_cancelled_looks_after_nothing(
        self, steps: int, migrated_postgres_url: str
    ) -> None:
        """No worker goes on that belongs to no engine."""
        before = asyncio.all_tasks()
        opening = asyncio.ensure_future(Engine.open(migrated_postgres_url, **OPTIONS).__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])

        assert opening.cancelled()
        async with asyncio.timeout(PATIENCE):
            await until(lambda: asyncio.all_tasks() <= before)

    async def test_what_a_process_cannot_send_does_not_keep_it_busy(self, shared: Shared) -> None:
        """A delivery waits for a process that has its channel; it was due before, and is not called for without end."""

        def fails(_: Any) -> None:
            raise ConnectionError("the phone is off")

        model = FunctionLlm(lambda _: "Hello.")
        async with shared() as place:
            web = await place.engine(model=model, channels=[RecordingChannel(fails)], worker=False)
            first = await place.engine(model=model, channels=[RecordingChannel(fails)])
            conversation = await web.create()
            await conversation.send("Hi")
            await until(lambda: first.custody_counts.taken == 1)
            await first.close()
            without = await place.engine(model=model)

            await until(lambda: without.custody_counts.taken >= 1 and without.custody_counts.held == 0)
            await asyncio.sleep(2)

            assert without.custody_counts.taken <= 5
            assert len(await place.outbox(conversation)) == 1


class TestEndings:
    """Conversations that end in one process while another one looks after them."""

    async def test_a_deletion_elsewhere_ends_what_runs(self, shared: Shared) -> None:
        """The tool is stopped, and nothing is left of the conversation."""
        runs = Runs()
        async with shared() as place:
            web, worker, conversation = await running_elsewhere(place, runs)

            await web.delete(conversation.id)

            await until(lambda: worker.custody_counts.held == 0)
            assert worker.in_memory == 0

    async def test_a_schedule_wakes_a_conversation_by_a_worker(self, shared: Shared) -> None:
        """Nobody holds it meanwhile, and it wakes up once."""
        async with shared() as place:
            web = await place.engine(model=FunctionLlm(lambda _: "Nothing new."), worker=False)
            await place.engine(model=FunctionLlm(lambda _: "Nothing new."))
            await place.engine(model=FunctionLlm(lambda _: "Nothing new."))
            conversation = await web.create(every=timedelta(seconds=1), task="Look.")

            while len(await place.events(conversation)) < 3:
                await asyncio.sleep(0.05)
            await web.refresh(conversation.id)
            await conversation.set_schedule()

            types = await place.events(conversation)
            assert types[:3] == ["opened", "wake_up", "llm_response"]

    async def test_a_sub_agent_is_looked_after_like_any_conversation(self, shared: Shared) -> None:
        """Its parent waits for it, wherever it is, and leaves room for it although it takes the only slot."""

        def answer(request: Any) -> Any:
            texts = [str(message["content"]) for message in request.messages]
            if any("Find tables" in text for text in texts):
                return "Two tables."
            if request.messages[-1]["role"] == "tool":
                return "There are two."
            return call("spawn_agents", tasks=[{"text": "Find tables"}])

        options: dict[str, Any] = {"model": FunctionLlm(answer), "tools": ["spawn_agents"]}
        async with shared() as place:
            web = await place.engine(**options, worker=False)
            await place.engine(**options, worker_slots=1)
            conversation = await web.create()

            turn = await conversation.send("Look")

            assert turn.status == "completed"
            (child,) = await conversation.children()
            assert (await web.get(child.id)).state.type == "closed"


class TestMistakes:
    """What is refused."""

    def test_a_store_of_one_process_has_no_others(self) -> None:
        """Nobody would carry anything out."""
        with pytest.raises(ConfigurationError, match=r"PostgreSQL; The database in memory is"):
            Engine.open("sqlite://", worker=False)

    async def test_a_database_that_cannot_be_used_is_what_is_wrong(self) -> None:
        """Whoever has mistyped the address is not told to take another kind of database."""
        engine = Engine.open("postgresql:/nowhere", worker=False)

        with pytest.raises(StoreError, match="not a URL that PostgreSQL knows"):
            async with engine:
                pass

    async def test_two_engines_do_not_use_one_open_store(self, shared: Shared) -> None:
        """It would take the steps of the one for those of the other, which holds the conversation."""
        async with shared() as place:
            store = await place.store()
            async with Engine.open(store=store):
                with pytest.raises(ConfigurationError, match="Another engine uses this store"):
                    await Engine.open(store=store)
