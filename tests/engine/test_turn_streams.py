"""One turn while it goes on: its updates as they happen, and its answer while it is written."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise import (
    Conversation,
    Engine,
    EngineClosed,
    InvalidInput,
    LlmFailure,
    ModelAnswer,
    ModelRequest,
    Policy,
    Refused,
    Retry,
    Settings,
    SnapshotUpdate,
    StateChangeUpdate,
    Token,
    TokenUpdate,
    Update,
    tool,
)
from turnwise.engine.updates import StreamedText, Streaming
from turnwise.persistence.opening import open_store
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, call, reply

from ..support.databases import BOTH_STORES, Database
from ..support.documented_screen import Screen, new_screen
from ..support.engine_scenarios import Gate, Watcher, answers_after, until
from ..support.scenarios.repeated_requests import ANSWER, engine_at

pytestmark = BOTH_STORES

# --- One turn: its updates as they happen, and waiting for it, whoever began it.


@tool(crash="pure")
def look() -> str:
    """Look."""
    return "seen"


async def collect(updates: AsyncIterator[Update]) -> list[Update]:
    """Return all updates of an iterator."""
    return [update async for update in updates]


def shown(updates: list[Update]) -> list[str]:
    """Return the types of updates, and of the states that changed; without what is live."""
    return [
        update.state.type if update.type == "state_change" else update.type
        for update in updates
        if update.position is not None
    ]


DONE = ["message", "llm_requesting", "message", "delivery", "idle", "turn_ended"]


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    """Return an engine whose model does what it is told."""
    async with engine_at(database) as engine:
        yield engine


class TestStream:
    """`stream` shows the turn that takes its message, and nothing else."""

    async def test_it_shows_one_turn_from_its_message_to_its_end(self, engine: Engine) -> None:
        """Without a snapshot, and without what came before."""
        conversation = await engine.create()
        await conversation.send("Hello")

        updates = await collect(conversation.stream("And you?"))

        assert shown(updates) == DONE
        assert {update.turn for update in updates if update.type == "message"} == {2}
        assert updates[0].type == "message" and updates[0].text == "And you?"

    async def test_it_ends_when_a_person_is_asked(self, engine: Engine) -> None:
        """With the state change that brings the questions; then the handle can answer."""
        conversation = await engine.create()

        updates = await collect(conversation.stream("Ask?"))

        last = updates[-1]
        assert shown(updates)[-1] == "awaiting_user_response"
        assert last.type == "state_change" and last.state.call_id == conversation.state.waiting_call_id
        assert (await conversation.answer(ANSWER)).status == "completed"

    @pytest.mark.parametrize(("text", "end"), [("Pay", "awaiting_approval"), ("Fail", "turn_ended")])
    async def test_it_ends_where_the_turn_stops(self, engine: Engine, text: str, end: str) -> None:
        """Also where a person must allow a call, and where the turn fails."""
        assert shown(await collect((await engine.create()).stream(text)))[-1] == end

    async def test_tokens_are_shown(self, engine: Engine) -> None:
        """Live updates of the turn come between the stored ones."""
        updates = await collect((await engine.create()).stream("Hello"))

        assert "".join(update.text for update in updates if update.type == "token") == "Done: Hello"

    async def test_a_queued_message_shows_its_own_turn(self, database: Database) -> None:
        """Nothing is shown of the turn before it, nor of the one that follows."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("Wait."))
            await gate.arrived.wait()
            streaming = asyncio.ensure_future(collect(conversation.stream("Second", when_busy="queue")))
            await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
            gate.opened.set()
            updates = await streaming
            await first
            await conversation.send("Third")

        assert shown(updates) == DONE
        assert {update.turn for update in updates if update.type == "message"} == {2}

    async def test_a_steered_message_shows_the_turn_from_there_on(self, database: Database) -> None:
        """What the turn did before the message entered it is left out."""
        gate = Gate()

        async def look_first(request: ModelRequest) -> Any:
            if request.messages[-1]["role"] != "user":
                return reply("Done.")
            await gate()
            return call("look")

        async with Engine.open(database, model=FunctionLlm(look_first), tools=[look]) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("Hello"))
            await gate.arrived.wait()
            streaming = asyncio.ensure_future(collect(conversation.stream("Also this", when_busy="steer")))
            await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
            gate.opened.set()
            updates = await streaming
            turn = await first

        assert updates[0].type == "message" and updates[0].text == "Also this"
        assert shown(updates)[-1] == "turn_ended"
        assert {update.turn for update in updates if update.type == "turn_ended"} == {turn.number} == {1}

    @pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
    async def test_a_repeated_message_shows_the_same_again(self, database: Database, restarts: bool) -> None:
        """The stored updates up to the first stop, although the turn has gone on since; nothing is stored."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            first = await collect(conversation.stream("Ask?", message_id="m"))
            await conversation.answer(ANSWER)
            await conversation.send("Hello")
            steps = len(await conversation.events())
            again = await collect(conversation.stream("Ask?", message_id="m"))
        if restarts:
            async with engine_at(database) as engine:
                conversation = await engine.get(conversation.id)
                again = await collect(conversation.stream("Ask?", message_id="m"))
                assert len(await conversation.events()) == steps

        assert [update for update in again if update.id] == [update for update in first if update.id]

    async def test_a_message_that_is_repeated_while_its_turn_runs_is_followed(self, database: Database) -> None:
        """From its message on, to the end."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(collect(conversation.stream("Wait.", message_id="m")))
            await gate.arrived.wait()
            second = asyncio.ensure_future(collect((await engine.get(conversation.id)).stream("Wait.", message_id="m")))
            await asyncio.sleep(0.01)
            gate.opened.set()

            assert shown(await second) == shown(await first) == DONE

    async def test_a_watcher_that_lags_far_behind_misses_nothing(self, database: Database) -> None:
        """What the engine no longer keeps is read from the log."""
        async with engine_at(database, settings=Settings(kept_updates=1)) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            updates: list[Update] = []
            async for update in conversation.stream("Hello"):
                updates.append(update)
                await asyncio.sleep(0.02)

        assert shown(updates) == DONE

    @pytest.mark.slow
    async def test_leaving_early_stops_nothing_and_leaves_nothing(self, database_file: Path) -> None:
        """Neither `break` nor `aclose` cancels the turn; no task remains."""
        gate = Gate()
        async with engine_at(database_file, gate=gate) as engine:
            conversation = await engine.create()
            await asyncio.sleep(0.01)
            tasks = asyncio.all_tasks()
            async for update in conversation.stream("Wait."):
                assert update.type == "message"
                break
            async with aclosing(conversation.stream("Second", when_busy="queue")) as second:
                waiting = asyncio.ensure_future(anext(second))
                await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
                waiting.cancel()
                await asyncio.wait([waiting])
            gate.opened.set()
            turns = [await conversation.wait()]
            await until(lambda: conversation.state.book.turn == 2)
            turns.append(await conversation.wait())
            gc.collect()
            await asyncio.sleep(0.01)

            assert [turn.status for turn in turns] == ["completed", "completed"]
            assert asyncio.all_tasks() <= tasks

    @pytest.mark.parametrize(
        ("stop", "code"),
        [(lambda it: it.withdraw("m"), "withdrawn"), (lambda it: it.close(), "closed")],
        ids=["withdrawn", "closed"],
    )
    async def test_a_message_that_no_turn_takes_is_refused(
        self, database: Database, stop: Callable[[Conversation], Any], code: str
    ) -> None:
        """As `send` is."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
            await gate.arrived.wait()
            streaming = asyncio.ensure_future(collect(conversation.stream("Second", message_id="m", when_busy="queue")))
            await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
            await stop(conversation)

            with pytest.raises(Refused) as refused:
                await streaming
            assert refused.value.code == code

    async def test_what_send_refuses_is_refused(self, engine: Engine) -> None:
        """While a question is open, and for another message under the same id; what is invalid, at once."""
        conversation = await engine.create()
        await collect(conversation.stream("Ask?", message_id="m"))

        for text, options, code in (
            ("Hello", {"when_busy": "refuse"}, "awaiting_user_response"),
            ("Other", {"message_id": "m"}, "event_id_reused"),
        ):
            with pytest.raises(Refused) as refused:
                await collect(conversation.stream(text, **options))  # type: ignore[arg-type]
            assert refused.value.code == code
        with pytest.raises(InvalidInput):
            conversation.stream("")

    async def test_an_engine_that_closes_is_told(self, database: Database) -> None:
        """The turn has not ended, so the iteration does not just stop."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            streaming = asyncio.ensure_future(collect(conversation.stream("Wait.")))
            await gate.arrived.wait()

        with pytest.raises(EngineClosed):
            await streaming

    def test_a_blocking_program_iterates_plainly(self, database: Database) -> None:
        """Over the same updates."""
        llm = FunctionLlm(lambda _: reply("Here."))
        with Engine.open_blocking(database, model=llm) as engine:
            updates = list(engine.create().stream("Hi."))

        assert shown(updates) == DONE


class TestWait:
    """`wait` returns the turn under way, whoever began it."""

    async def test_the_turn_under_way_is_returned_when_it_ends(self, database: Database) -> None:
        """To another handle than the one that began it."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
            waiting = asyncio.ensure_future((await engine.get(conversation.id)).wait())
            await gate.arrived.wait()
            assert not waiting.done()
            gate.opened.set()

            turn = await waiting

        assert (turn.number, turn.status, turn.reply) == (1, "completed", "Done: Wait.")

    async def test_a_turn_that_waits_for_a_person_is_returned_at_once(self, engine: Engine) -> None:
        """With its questions; the handle can answer them."""
        conversation = await engine.create()
        asked = await conversation.send("Ask?")
        other = await engine.get(conversation.id)

        assert await other.wait() == asked
        assert (await other.answer(ANSWER)).status == "completed"

    @pytest.mark.parametrize("text", ["Hello", "Fail"])
    async def test_at_rest_the_newest_turn_is_returned(self, engine: Engine, text: str) -> None:
        """Also one that failed, and the last one of a closed conversation."""
        conversation = await engine.create()
        await conversation.send("First")
        newest = await conversation.send(text)

        assert await conversation.wait() == newest
        await conversation.close()
        assert await conversation.wait() == newest

    async def test_without_a_turn_it_is_refused(self, engine: Engine) -> None:
        """There is nothing to return."""
        with pytest.raises(Refused) as refused:
            await (await engine.create()).wait()

        assert refused.value.code == "wrong_state"
        assert refused.value.sentence == "The conversation has had no turn yet."

    async def test_an_engine_that_closes_ends_the_wait(self, database: Database) -> None:
        """With `EngineClosed`."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
            await gate.arrived.wait()
            waiting = asyncio.ensure_future(conversation.wait())
            await asyncio.sleep(0.01)

        with pytest.raises(EngineClosed):
            await waiting

    async def test_a_turn_that_an_earlier_process_began_is_waited_for(self, database: Database) -> None:
        """The next engine takes it over."""
        async with engine_at(database, gate=Gate()) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
        async with engine_at(database) as engine:
            turn = await (await engine.get(conversation.id)).wait()

        assert (turn.number, turn.status) == (1, "completed")


class TestAnotherEngine:
    """A turn that another engine over the same store drives is found by looking at the store now and then."""

    async def test_it_is_waited_for(self) -> None:
        """By `wait`, by a message in its queue, and by a repeated request."""
        gate, clock = Gate(), ManualClock()
        store = await open_store("sqlite://")
        slow, quick = FunctionLlm(answers_after(gate, "At last.")), FunctionLlm(lambda _: reply("Here."))
        async with (
            Engine.open(store=store, model=slow) as one,
            Engine.open(store=store, model=quick, clock=clock) as other,
        ):
            driving = await one.create()
            here = await other.get(driving.id)
            sending = asyncio.ensure_future(driving.send("Hello", message_id="m"))
            await gate.arrived.wait()
            waits = [
                asyncio.ensure_future(asking)
                for asking in (
                    here.wait(),
                    here.send("Hello", message_id="m"),
                    collect(here.stream("Hello", message_id="m")),
                )
            ]
            await clock.until_asleep()
            gate.opened.set()
            turn = await sending
            assert not any(each.done() for each in waits)
            await clock.advance(1)
            waited, sent, streamed = await asyncio.gather(*waits)
            await asyncio.sleep(0.01)

            assert waited == sent == turn
            assert turn.reply == "At last."
            assert shown(streamed) == DONE
            assert clock.sleepers == ()
        await store.close()

    async def test_nobody_looks_unless_somebody_waits(self) -> None:
        """A watcher alone does not; nor does a caller whose own engine drives the turn."""
        gate, clock = Gate(), ManualClock()
        async with Engine.open("sqlite://", model=FunctionLlm(answers_after(gate, "At last.")), clock=clock) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            sending = asyncio.ensure_future(conversation.send("Hello"))
            waiting = asyncio.ensure_future(conversation.wait())
            await gate.arrived.wait()
            await asyncio.sleep(0.01)
            sleepers = clock.sleepers
            gate.opened.set()

            assert await waiting == await sending
            assert sleepers == ()
            await watcher.stop()


class TestTurnAfter:
    """`turn_after` returns the turn as it stopped first after a request."""

    async def test_a_message_led_to_a_question_that_is_answered_by_now(self, database: Database) -> None:
        """The turn is returned as it waited then, and after the answer as it ended, also by another engine."""
        questions = [{"question": "When?", "options": [{"label": "6:30"}, {"label": "7:00"}]}]
        model = ScriptedLlm([call("ask_user_question", questions=questions), reply("Booked.")])
        async with Engine.open(database, model=model, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            asked = await conversation.send("A table", message_id="m1")
            ended = await conversation.answer({"When?": "6:30"}, request_id="a1")
            assert [await conversation.turn_after(one) for one in ("m1", "a1")] == [asked, ended]

        async with Engine.open(database, tools=["ask_user_question"]) as engine:
            again = await engine.get(conversation.id)
            assert [await again.turn_after(one) for one in ("m1", "a1")] == [asked, ended]

    async def test_a_message_that_waits_belongs_to_the_turn_that_takes_it(self, engine: Engine) -> None:
        """And not to the one that was under way when it was sent."""
        conversation = await engine.create()
        await conversation.send("Hello", message_id="m1", wait=False)
        queued = await conversation.send("And?", message_id="m2", when_busy="queue", wait=False)

        assert queued.status == "queued"
        assert [(await conversation.turn_after(one)).number for one in ("m1", "m2")] == [1, 2]

    async def test_a_request_without_a_turn(self, engine: Engine) -> None:
        """An unknown one, and one before the first turn, are refused instead of waited for."""
        conversation = await engine.create()
        await conversation.set_title("Dinner", request_id="t1")

        for request_id, sentence in (("t1", "belongs to no turn"), ("t2", "under this id")):
            with pytest.raises(InvalidInput, match=sentence):
                await conversation.turn_after(request_id)


# --- A client that shows an answer while it is written shows exactly that, whenever it begins to watch.


AT_ONCE = Policy(retry=Retry(attempts=4, base=0))
"""Failed requests are sent again without a wait."""

Attempt = list[str]
"""The pieces that a model writes before it fails, or, for the last attempt, its whole answer."""


@dataclass
class Writes:
    """A model that writes the pieces of its attempts, and fails behind each but the last. Behind each piece, `pause` is
    called with what was written in this attempt. To any further request it answers at once."""

    attempts: list[Attempt]
    pause: Callable[[str], Awaitable[None]]
    kind: Any = "text"
    name: str = "writes"
    made: int = 0

    async def complete(self, request: Any, show: Callable[[Token], None]) -> ModelAnswer:
        """Write the next attempt."""
        if self.made == len(self.attempts):
            return ModelAnswer(content="Well.")
        pieces, self.made = self.attempts[self.made], self.made + 1
        for count, piece in enumerate(pieces, start=1):
            show(Token(piece, kind=self.kind))
            await self.pause("".join(pieces[:count]))
        if self.made < len(self.attempts):
            raise LlmFailure("network", "The connection broke.")
        return ModelAnswer(content="".join(pieces))


@dataclass
class Client:
    """A client: its screen, and the id from which it resumes."""

    screen: Screen
    last: str | None = None
    task: asyncio.Task[None] | None = None

    def begin(self, conversation: Conversation) -> None:
        """Watch from here on."""
        self.task = asyncio.ensure_future(self._watch(conversation))

    async def _watch(self, conversation: Conversation) -> None:
        async with aclosing(conversation.updates(self.last)) as updates:
            async for update in updates:
                self.screen.show(update)
                self.last = update.id or self.last

    def shows(self, messages: list[str], draft: str) -> bool:
        """Whether the screen shows this."""
        return (self.screen.messages, self.screen.draft) == (messages, draft)

    async def stop(self) -> None:
        """Lose the connection."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])


PIECES = st.lists(st.text("ab \n🎉", min_size=1, max_size=3), min_size=1, max_size=5)
ACTIONS = st.sampled_from(["join", "join from the start", "reconnect", "queue a message", "nothing"])


@dataclass
class StreamedTurn:
    """A turn with clients, to which something happens behind each piece of the answer."""

    actions: list[str]
    clients: list[Client] = field(default_factory=list)
    queued: int = 0

    async def hold(self, attempts: list[Attempt], kept: Settings) -> None:
        """Hold the conversation. At the end every client must show its messages, and no draft."""
        async with Engine.open("sqlite://", model=Writes(attempts, self.act), settings=kept) as engine:
            self.conversation = conversation = await engine.create(policy=AT_ONCE)
            self.add(Client(new_screen()))
            await conversation.send("Hello")
            await until(lambda: conversation.state.type == "idle")
            said = [message.text for message in await conversation.transcript() if message.text.strip()]
            await until(lambda: all(client.shows(said, "") for client in self.clients))
            for client in self.clients:
                await client.stop()

    async def act(self, written: str) -> None:
        """Do the next action, and wait until every client shows what was written so far."""
        match self.actions.pop(0) if self.actions else "nothing":
            case "join":
                self.add(Client(new_screen()))
            case "join from the start":
                self.add(Client(new_screen(), "0.0"))
            case "reconnect":
                await self.clients[0].stop()
                self.clients[0].begin(self.conversation)
            case "queue a message":
                self.queued += 1
                await self.conversation.send("More", wait=False, when_busy="queue", message_id=f"q{self.queued}")
            case _:
                pass
        await until(lambda: all(client.screen.draft == written for client in self.clients))

    def add(self, client: Client) -> None:
        """Another client begins to watch."""
        self.clients.append(client)
        client.begin(self.conversation)


@pytest.mark.slow
class TestAnyClient:
    """The client of docs/guides/speech.md, which begins, or begins again, at any point."""

    @settings(max_examples=30)
    @given(attempts=st.lists(PIECES, min_size=1, max_size=3), actions=st.lists(ACTIONS, max_size=8))
    def test_shows_exactly_what_is_written(self, attempts: list[Attempt], actions: list[str]) -> None:
        """Behind every piece its draft is what was written in this attempt, and at the end the answer is a message."""
        asyncio.run(StreamedTurn(actions).hold(attempts, Settings()))

    @settings(max_examples=20)
    @given(attempts=st.lists(PIECES, min_size=1, max_size=3), actions=st.lists(ACTIONS, max_size=8))
    def test_shows_the_same_where_few_updates_are_kept(self, attempts: list[Attempt], actions: list[str]) -> None:
        """A client that falls behind reads what it missed from the log, and the streamed text with it."""
        asyncio.run(StreamedTurn(actions).hold(attempts, Settings(kept_updates=1)))


class TestARetry:
    """A model that fails in the middle of its answer."""

    async def test_is_told_by_the_state_and_by_the_tokens(self, database: Database) -> None:
        """The states carry request, attempt and model; tokens those of their request. All of them differ by attempt."""

        async def go_on(written: str) -> None:
            """Pause for nothing."""

        async with Engine.open(database, model=Writes([["Good mor"], ["Good mor", "ning."]], go_on)) as engine:
            conversation = await engine.create(policy=AT_ONCE)
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hello")
            await watcher.until("turn_ended")
            await watcher.stop()

        states = [update.state for update in watcher.updates if isinstance(update, StateChangeUpdate)]
        first, waiting, second, idle = states
        tokens = [update for update in watcher.updates if isinstance(update, TokenUpdate)]
        assert (first.type, first.attempt, first.model, first.turn) == ("llm_requesting", 1, "writes", 1)
        assert (waiting.type, waiting.attempt, waiting.model, waiting.request) == ("retry_waiting", 2, "writes", None)
        assert (second.type, second.attempt, second.turn) == ("llm_requesting", 2, 1)
        assert (idle.type, idle.request, idle.attempt) == ("idle", None, None)
        assert first.request != second.request
        assert [(token.text, token.request, token.attempt, token.turn) for token in tokens] == [
            ("Good mor", first.request, 1, 1),
            ("Good mor", second.request, 2, 1),
            ("ning.", second.request, 2, 1),
        ]

    async def test_leaves_nothing_of_the_text_before(self, database: Database) -> None:
        """While the next attempt is waited for, a snapshot has no streamed text."""
        policy = Policy(retry=Retry(base=3600))
        gate = Gate()
        gate.opened.set()
        async with Engine.open(database, model=Writes([["Good mor"], ["Never."]], lambda _: gate())) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send("Hello", wait=False)
            await until(lambda: conversation.state.type == "retry_waiting")
            snapshot = await anext(conversation.updates())
            await conversation.cancel()

        assert isinstance(snapshot, SnapshotUpdate)
        assert (snapshot.streaming, "streaming" in snapshot.data) == (None, False)


class TestACancelledTurn:
    """A turn that is cancelled while the model writes."""

    async def test_leaves_what_was_written_on_the_screen(self, database: Database) -> None:
        """P8: the client shows the first piece as a message."""
        gate = Gate()
        async with Engine.open(database, model=Writes([["Good mor", "ning."]], lambda _: gate())) as engine:
            conversation = await engine.create()
            client = Client(new_screen())
            client.begin(conversation)
            await conversation.send("Hello", wait=False)
            await until(lambda: client.shows(["Hello"], "Good mor"))
            await conversation.cancel()
            await until(lambda: client.shows(["Hello", "Good mor"], ""))
            await client.stop()


class TestAWatcherThatBeginsInTheMiddle:
    """What it gets, besides what it would get at any time."""

    @pytest.fixture
    async def writing(self, database: Database) -> Any:
        """A conversation whose model has written one piece, thinking, and waits at the gate."""
        gate = Gate()
        async with Engine.open(database, model=Writes([["Hm, ", "so."]], lambda _: gate(), "thinking")) as engine:
            conversation = await engine.create()
            await conversation.send("Hello", wait=False)
            await gate.arrived.wait()
            yield conversation, gate

    async def test_gets_the_text_so_far_in_its_snapshot(self, writing: tuple[Conversation, Gate]) -> None:
        """By kind, with the ids of the request. The tokens after it go on from there."""
        conversation, gate = writing
        watcher = Watcher(conversation)
        snapshot = await watcher.until("snapshot")
        gate.opened.set()
        await watcher.until("turn_ended")
        await watcher.stop()

        assert isinstance(snapshot, SnapshotUpdate)
        request = snapshot.state.request
        assert request is not None
        assert snapshot.streaming == Streaming("", "Hm, ", turn=1, request=request, attempt=1)
        assert snapshot.data["streaming"] == {
            "text": "", "thinking": "Hm, ", "turn": 1, "request": request, "attempt": 1,
        }  # fmt: skip
        assert [update.data for update in watcher.updates if update.type == "token"] == [
            {"text": "so.", "kind": "thinking", "turn": 1, "request": request, "attempt": 1}
        ]

    async def test_gets_it_as_one_token_if_it_resumes(self, writing: tuple[Conversation, Gate]) -> None:
        """Behind what it missed from the log: a token from the start, then the others as they come."""
        conversation, gate = writing
        watcher = Watcher(conversation, after="1.0")
        caught_up = await watcher.until("token")
        gate.opened.set()
        await watcher.until("turn_ended")
        await watcher.stop()

        assert (caught_up.id, caught_up.position) == (None, None)
        tokens = [update for update in watcher.updates if isinstance(update, TokenUpdate)]
        assert [(token.text, token.from_start) for token in tokens] == [("Hm, ", True), ("so.", False)]
        assert watcher.types()[:4] == ["message", "state_change", "token", "token"]


class TestTheStreamedText:
    """What is kept of the answer under way."""

    def test_is_that_of_one_request_and_attempt(self) -> None:
        """A token of another one begins anew, and the kinds are kept apart."""
        streamed = StreamedText()
        for token in (
            TokenUpdate("lost", "text", turn=1, request=4, attempt=1),
            TokenUpdate("Hm", "thinking", turn=1, request=6, attempt=2),
            TokenUpdate("a", "text", turn=1, request=6, attempt=2),
            TokenUpdate("b", "text", turn=1, request=6, attempt=2),
        ):
            streamed.add(token)

        assert streamed.so_far == streamed.so_far == Streaming("ab", "Hm", turn=1, request=6, attempt=2)
        assert [(token.kind, token.text) for token in streamed.tokens()] == [("thinking", "Hm"), ("text", "ab")]

    def test_is_forgotten_with_its_request(self) -> None:
        """It stays as long as the request is awaited."""
        streamed = StreamedText()
        streamed.add(TokenUpdate("a", "text", turn=1, request=4, attempt=1))
        streamed.keep_only({4, 5})
        assert streamed.so_far is not None

        streamed.keep_only({5})

        assert (streamed.so_far, list(streamed.tokens())) == (None, [])

    def test_only_a_request_that_is_made_again_begins_again(self) -> None:
        """A report of what an earlier process has left may be stored when the next one streams already."""
        streamed = StreamedText()
        first = TokenUpdate("A table", "text", 1, 7, 1)
        streamed.add(first)

        streamed.begin_again([6])
        assert streamed.replacing(first) == first
        assert streamed.so_far == Streaming("A table", "", 1, 7, 1)

        streamed.begin_again([6, 7])
        assert streamed.so_far is None
        assert streamed.replacing(first).from_start


class TestWhatModelsShow:
    """Models may show anything."""

    async def test_half_a_character_is_replaced(self, database: Database) -> None:
        """A lone surrogate could not be sent to any client."""
        gate = Gate()
        gate.opened.set()
        async with Engine.open(database, model=Writes([["\ud83d", "?"]], lambda _: gate())) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hello")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert [update.data["text"] for update in watcher.updates if update.type == "token"] == ["\ufffd", "?"]

    async def test_what_is_no_text_fails_the_request(self, database: Database) -> None:
        """The turn fails with one sentence, and whoever watches is shown no such token."""
        pieces: Any = [[5]]
        async with Engine.open(database, model=Writes(pieces, lambda _: asyncio.sleep(0))) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hello")

        assert turn.status == "failed"
        assert turn.failure
