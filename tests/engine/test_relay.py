"""Engines of several processes over one shared store: each shows what the others store, delete and show."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Literal

import pytest

from turnwise import Conversation, Engine, UnknownConversation
from turnwise.effects.model.port import Token
from turnwise.engine.relay import MOST_UNREAD
from turnwise.engine.updates import SnapshotUpdate, TokenUpdate, TreeUpdate, Update, parse_id
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import ConversationGone, LiveShown, Log, Notice, NoticesMissed, StepStored
from turnwise.testing import FunctionLlm, ScriptedLlm, call, reply

from ..simulation.shared_store import steady_storage
from ..support.engine_scenarios import QUESTION, Gate, Watcher, answers_after, until
from ..support.planted.stores import WrappedLog, WrappedStore


class HearsLess(WrappedStore):
    """The store of a process that does not hear all notices: of none that it `loses`. `also_hears` are more of them,
    `looks` tell how many conversations each look at the store named, and `catch_ups` are counted."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, self._wrapped)
        self.loses: Callable[[Notice], object] = lambda notice: False
        self.catch_ups = 0
        self.looks: list[int] = []
        self._heard: asyncio.Queue[Notice] = asyncio.Queue()
        self.jobs = store.jobs
        self.take, self.let_go, self.confirm, self.show = store.take, store.let_go, store.confirm, store.show

    def _wrapped(self, log: Log) -> Log:
        store = self

        class CountingLog(WrappedLog):
            async def catch_up(self) -> Any:
                store.catch_ups += 1
                return await super().catch_up()

        return CountingLog(log)

    async def find_moved(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """See `SharedStore`."""
        self.looks.append(len(known))
        return await self.store.find_moved(known)  # type: ignore[attr-defined,no-any-return]

    def also_hears(self, *notices: Notice) -> None:
        """Have these notices heard, too."""
        for notice in notices:
            self._heard.put_nowait(notice)

    async def notices(self) -> AsyncGenerator[Notice, None]:
        """See `SharedStore`."""
        listening = asyncio.ensure_future(self._listen())
        try:
            while True:
                yield await self._heard.get()
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self) -> None:
        async with aclosing(self.store.notices()) as notices:  # type: ignore[attr-defined]
            async for notice in notices:
                if not self.loses(notice):
                    self._heard.put_nowait(notice)


class Processes:
    """Two engines that share a store: `worker` carries out what is asked for, and `web` takes requests and shows."""

    def __init__(self, worker: Engine, web: Engine, web_store: HearsLess) -> None:
        self.worker = worker
        self.web = web
        self.web_store = web_store

    def lose(self, *kinds: type[Notice]) -> None:
        """From now on the web process hears no notices of these kinds."""
        self.web_store.loses = lambda notice: isinstance(notice, kinds)

    def hear(self, *notices: Notice) -> None:
        """Have the web process hear these notices."""
        self.web_store.also_hears(*notices)


OpenProcesses = Callable[..., AbstractAsyncContextManager[Processes]]


@pytest.fixture(params=["double", pytest.param("postgres", marks=pytest.mark.slow)])
def processes(request: pytest.FixtureRequest) -> OpenProcesses:
    """Opens two engines over one store: a double, or a PostgreSQL database."""
    url = None if request.param == "double" else request.getfixturevalue("postgres_url")

    @asynccontextmanager
    async def opened(model: Any = None, **options: Any) -> AsyncIterator[Processes]:
        model = model or FunctionLlm(lambda _: reply("Here."))
        async with _stores(url) as (first, second):
            heard = HearsLess(second)
            async with (
                Engine.open(store=first, model=model, **options) as worker,
                Engine.open(store=heard, model=model, worker=False, **options) as web,
            ):
                yield Processes(worker, web, heard)

    return opened


@asynccontextmanager
async def _stores(url: str | None) -> AsyncIterator[tuple[Any, Any]]:
    if url is None:
        storage = steady_storage()
        yield (await storage.open("P1")).store, (await storage.open("P2")).store
        return
    async with AsyncExitStack() as opened:
        stores = []
        for _ in range(2):
            stores.append(await open_store(url))
            opened.push_async_callback(stores[-1].close)
        yield stores[0], stores[1]


async def both_handles(engines: Processes, **options: Any) -> tuple[Conversation, Conversation]:
    """A new conversation, as the worker and as the web process have it."""
    there = await engines.worker.create(**options)
    return there, await engines.web.get(there.id)


async def both_watched(there: Conversation, here: Conversation) -> tuple[Watcher, Watcher]:
    """Watchers of a conversation in both processes, from the same step on."""
    watchers = Watcher(there), Watcher(here)
    for watcher in watchers:
        await watcher.until("snapshot")
    return watchers


async def until_alike(left: Watcher, right: Watcher, turns: int) -> None:
    """Wait until so many turns have ended, and both watchers have seen the same of them, each update once. A watcher
    that saw one twice, or in another order, never has."""
    await left.until("turn_ended", turns)
    await until(lambda: stored(left.updates) == stored(right.updates))
    await asyncio.gather(left.stop(), right.stop())


def stored(updates: list[Update]) -> list[tuple[str | None, str, Any]]:
    """The stored updates, without a snapshot."""
    return [(one.id, one.type, one.data) for one in updates if one.id is not None and one.type != "snapshot"]


class TestOneConversation:
    """Somebody watches or waits in a process that stores nothing."""

    async def test_every_stored_update_is_shown_as_in_the_process_that_stored_it(
        self, processes: OpenProcesses
    ) -> None:
        """In the same order, with the same ids, each once."""
        async with processes() as engines:
            there, here = await both_handles(engines)
            left, right = await both_watched(there, here)
            for text in ("One.", "Two.", "Three."):
                await there.send(text)

            await until_alike(left, right, turns=3)
            assert (await here.replay()).divergence is None

    async def test_tokens_are_shown_while_the_answer_is_written(self, processes: OpenProcesses) -> None:
        """Before its step is stored, and as one text with those of the process that writes it."""
        gate = Gate()

        async def slowly(request: Any, show: Any) -> Any:
            for text in ("A ", "table", "."):
                show(Token(text))
            await gate()
            return reply("A table.")

        async with processes(Streams(slowly)) as engines:
            there, here = await both_handles(engines)
            right = Watcher(here)
            await right.until("snapshot")
            going = asyncio.ensure_future(there.send("Hi."))
            await until(lambda: texts(right.updates) == "A table.")
            assert "message" in right.types()
            assert not right.types().count("turn_ended")
            gate.opened.set()
            await going
            await right.until("turn_ended")
            await right.stop()

    async def test_a_text_is_never_shown_with_a_gap(self, processes: OpenProcesses) -> None:
        """When tokens are lost, those behind them are not shown, until the text so far is sent once more."""
        gate, words = Gate(), [f"word-{number} " for number in range(100)]

        async def slowly(request: Any, show: Any) -> Any:
            for word in words:
                show(Token(word))
            await gate()
            return reply("".join(words))

        lost: list[Notice] = []

        def loses_the_first(notice: Notice) -> bool:
            if not lost and isinstance(notice, LiveShown):
                lost.append(notice)
                return True
            return False

        async with processes(Streams(slowly)) as engines:
            engines.web_store.loses = loses_the_first
            there, here = await both_handles(engines)
            right = Watcher(here)
            await right.until("snapshot")
            going = asyncio.ensure_future(there.send("Hi."))
            await gate.arrived.wait()
            await until(lambda: texts(right.updates) == "".join(words))
            gate.opened.set()
            await going
            await right.stop()

            assert lost

    async def test_one_who_waits_gets_the_turn(self, processes: OpenProcesses) -> None:
        """Without a look at the store of its own: one look a second is for all who wait."""
        gate = Gate()
        async with processes(FunctionLlm(answers_after(gate, "At last."))) as engines:
            there, here = await both_handles(engines)
            going = asyncio.ensure_future(there.send("Hi."))
            await gate.arrived.wait()
            await until(lambda: here.state.type == "llm_requesting")
            waiting = [asyncio.ensure_future(here.wait()) for _ in range(3)]
            await asyncio.sleep(0)
            gate.opened.set()

            assert {turn.reply for turn in await asyncio.gather(*waiting, going)} == {"At last."}

    async def test_a_deletion_ends_what_is_watched_and_waited_for(self, processes: OpenProcesses) -> None:
        """As one in the same process does."""
        gate = Gate()
        async with processes(FunctionLlm(answers_after(gate, "Never."))) as engines:
            there, here = await both_handles(engines)
            going = asyncio.ensure_future(there.send("Hi."))
            right = Watcher(here)
            await until(lambda: here.state.type == "llm_requesting")
            waiting = asyncio.ensure_future(here.wait())
            await asyncio.sleep(0)
            await engines.worker.delete(there.id)

            with pytest.raises(UnknownConversation):
                await waiting
            await right.collecting
            with pytest.raises(UnknownConversation):
                await engines.web.get(here.id)
            await asyncio.gather(going, return_exceptions=True)

    async def test_a_deletion_is_heard_while_the_conversation_catches_up(self, processes: OpenProcesses) -> None:
        """Who watches its tree learns it, too."""
        async with processes() as engines:
            there, here = await both_handles(engines)
            right, tree = Watcher(here), TreeWatcher(engines.web)
            await right.until("snapshot")
            await tree.until("tree_snapshot")
            engines.lose(ConversationGone)
            await engines.worker.delete(there.id)
            engines.hear(StepStored(here.id, 10**6), ConversationGone(here.id))

            await tree.until("conversation_deleted")
            await right.collecting
            await tree.stop()

    async def test_one_that_was_created_again_is_not_ended(self, processes: OpenProcesses) -> None:
        """The notice of the deletion may come late."""
        async with processes() as engines:
            engines.lose(ConversationGone)
            await engines.worker.create(conversation_id="c")
            await engines.worker.delete("c")
            again = await engines.web.create(conversation_id="c")
            right = Watcher(again)
            engines.hear(ConversationGone("c"))
            await engines.web.refresh("c")

            assert (await again.send("Hi.")).reply == "Here."
            await right.until("turn_ended")
            await right.stop()


class TestAProcessThatPerformsNothing:
    """It takes requests; the worker carries out what they ask for."""

    async def test_a_message_is_answered(self, processes: OpenProcesses) -> None:
        """Whoever sent it gets the turn, with what was said in it."""
        async with processes() as engines:
            here = await engines.web.create()
            turns = [await here.send(text) for text in ("One.", "Two.")]

            assert [(turn.number, turn.reply) for turn in turns] == [(1, "Here."), (2, "Here.")]
            assert (await here.replay()).divergence is None

    async def test_the_updates_of_a_turn_are_streamed(self, processes: OpenProcesses) -> None:
        """From the message until the turn ends, with the whole text as tokens or as a message."""

        async def answer(request: Any, show: Any) -> Any:
            for text in ("A ", "table", "."):
                show(Token(text))
            return reply("A table.")

        async with processes(Streams(answer)) as engines:
            here = await engines.web.create()
            updates = [update async for update in here.stream("Hi.")]

            said = [update.text for update in updates if update.type == "message"]
            assert said == ["Hi.", "A table."]
            assert updates[-1].type == "turn_ended"
            assert "A table.".startswith(texts(updates))

    async def test_a_question_is_answered_and_a_turn_cancelled(self, processes: OpenProcesses) -> None:
        """The worker hears of both."""
        gate = Gate()

        async def asks(request: Any) -> Any:
            if not any(message["role"] == "tool" for message in request.messages):
                return call("ask_user_question", questions=[QUESTION])
            await gate()
            return reply("Never.")

        async with processes(FunctionLlm(asks), tools=["ask_user_question"]) as engines:
            here = await engines.web.create()
            asked = await here.send("Hi.")
            assert asked.status == "awaiting_user"
            going = asyncio.ensure_future(here.answer({QUESTION["question"]: "6:30 PM"}))
            await gate.arrived.wait()
            assert not (await here.cancel()).no_op

            assert (await going).status == "cancelled"

    @pytest.mark.parametrize("kind", ["text", "speech"])
    async def test_an_answer_that_is_stopped_here_is_kept(
        self, processes: OpenProcesses, kind: Literal["text", "speech"]
    ) -> None:
        """What the model of the worker had written by then, as text or by tool. Who watches here has seen it, and who
        joins in the middle, too."""

        async def endless(request: Any, show: Any) -> Any:
            for piece in ("It ra", "ins. ", "It "):
                show(Token(piece, kind))
            await asyncio.Event().wait()

        def seen(watcher: Watcher) -> str:
            return "".join(one.text for one in watcher.updates if isinstance(one, TokenUpdate) and one.kind == kind)

        async with processes(Streams(endless), tools=["talk"]) as engines:
            here = await engines.web.create()
            first = Watcher(here)
            going = asyncio.ensure_future(here.send("Hi."))
            await until(lambda: seen(first) == "It rains. It ")
            snapshot = await anext(here.updates())
            assert isinstance(snapshot, SnapshotUpdate) and snapshot.streaming is not None
            assert not (await here.cancel()).no_op
            turn, message = await going, (await here.transcript())[-1]
            await first.until("turn_ended")
            await first.stop()

            assert getattr(snapshot.streaming, kind) == seen(first) == "It rains. It "
            assert (turn.status, turn.final_content, turn.deliveries) == ("cancelled", "It rains. It ", ())
            assert (message.text, message.stopped, message.spoken) == ("It rains. It ", "cancelled", kind == "speech")
            assert (await here.replay()).divergence is None

    async def test_a_deletion_stops_what_is_under_way(self, processes: OpenProcesses) -> None:
        """The worker lets go, and calls the model no more; whoever waits learns that the conversation is gone."""
        gate = Gate()
        async with processes(FunctionLlm(answers_after(gate, "Never."))) as engines:
            here = await engines.web.create()
            going = asyncio.ensure_future(here.send("Hi."))
            await gate.arrived.wait()
            await engines.web.delete(here.id)

            with pytest.raises(UnknownConversation):
                await going
            await until(lambda: engines.worker.custody_counts.held == 0)
            assert here.id not in engines.worker.waiting
            with pytest.raises(UnknownConversation):
                await engines.worker.get(here.id)

    async def test_sub_agents_are_found(self, processes: OpenProcesses) -> None:
        """They are stored by the worker."""

        def answer(request: Any) -> Any:
            is_child = any("Count" in str(message) for message in request.messages)
            done = any(message["role"] == "tool" for message in request.messages)
            if is_child or done:
                return reply("Done.")
            return call("spawn_agents", tasks=["Count."])

        async with processes(FunctionLlm(answer), tools=["spawn_agents"]) as engines:
            here = await engines.web.create()
            turn = await here.send("Delegate.")
            (child,) = await here.children()

            assert turn.reply == "Done."
            assert (await (await engines.web.get(child.id)).transcript())[-1].text == "Done."


class TestRequests:
    """A caller goes from one process to another, which has not heard of the newest steps yet."""

    async def test_a_handle_shows_what_is_stored(self, processes: OpenProcesses) -> None:
        """Whoever has seen a step in one process sees it in the other."""
        async with processes() as engines:
            engines.lose(StepStored)
            there, here = await both_handles(engines)
            await there.send("Hi.")

            assert (await engines.web.get(here.id)).state == there.state
            assert [message.text for message in await here.transcript()] == ["Hi.", "Here."]

    async def test_a_deleted_conversation_is_unknown(self, processes: OpenProcesses) -> None:
        """Although it is in memory here."""
        async with processes() as engines:
            engines.lose(ConversationGone)
            there, here = await both_handles(engines)
            await engines.worker.delete(there.id)

            with pytest.raises(UnknownConversation):
                await engines.web.get(here.id)

    async def test_an_answer_is_taken_to_a_question_that_was_asked_elsewhere(self, processes: OpenProcesses) -> None:
        """It would be refused by what is known here."""
        asks = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])
        async with processes(asks, tools=["ask_user_question"]) as engines:
            engines.lose(StepStored, NoticesMissed)
            there, here = await both_handles(engines)
            asked = await there.send("Hi.")
            assert asked.status == "awaiting_user"
            assert here.state.type == "idle"

            assert (await here.answer({QUESTION["question"]: "6:30 PM"}, call_id=asked.call_id)).reply == "Booked."

    async def test_a_cancel_finds_the_turn_that_began_elsewhere(self, processes: OpenProcesses) -> None:
        """It would do nothing by what is known here."""
        gate = Gate()
        async with processes(FunctionLlm(answers_after(gate, "Never."))) as engines:
            engines.lose(StepStored)
            there, here = await both_handles(engines)
            going = asyncio.ensure_future(there.send("Hi."))
            await gate.arrived.wait()
            cancelled = await here.cancel()

            assert not cancelled.no_op
            assert (await going).status == "cancelled"


class TestLostNotices:
    """Nothing that is stored depends on a notice."""

    async def test_a_watcher_misses_nothing_when_all_notices_are_lost(self, processes: OpenProcesses) -> None:
        """What is watched is looked at."""
        async with processes() as engines:
            engines.lose(StepStored, LiveShown, ConversationGone)
            there, here = await both_handles(engines)
            left, right = await both_watched(there, here)
            await there.send("Hi.")

            await until_alike(left, right, turns=1)

    async def test_one_look_is_for_all_conversations(self, processes: OpenProcesses) -> None:
        """However many are waited for."""
        gate = Gate()
        async with processes(FunctionLlm(answers_after(gate, "At last."))) as engines:
            engines.lose(StepStored)
            handles = [await both_handles(engines) for _ in range(20)]
            going = [asyncio.ensure_future(there.send("Hi.")) for there, _ in handles]
            await until(lambda: all(there.state.type == "llm_requesting" for there, _ in handles))
            watchers = [Watcher(here) for _, here in handles]
            await asyncio.gather(*(one.until("snapshot") for one in watchers))
            await until(lambda: 20 in engines.web_store.looks)
            gate.opened.set()
            await asyncio.gather(*going, *(one.until("turn_ended") for one in watchers))
            await asyncio.gather(*(one.stop() for one in watchers))

            assert len(engines.web_store.looks) < len(handles)

    async def test_when_notices_were_missed_all_that_is_in_memory_is_looked_at(self, processes: OpenProcesses) -> None:
        """Also what nobody watches: whoever asks for it next gets it as it is."""
        async with processes() as engines:
            engines.lose(StepStored)
            there, here = await both_handles(engines)
            await there.send("Hi.")
            assert here.state.book.turn == 0

            engines.hear(NoticesMissed())
            await until(lambda: here.state == there.state)

    async def test_what_nobody_looks_at_is_read_when_it_is_asked_for(self, processes: OpenProcesses) -> None:
        """It is in memory for a while longer, but its steps are not followed one by one."""
        async with processes() as engines:
            there, here = await both_handles(engines)
            del here
            gc.collect()
            heard: list[Notice] = []
            engines.web_store.loses = heard.append  # which loses none
            for text in ("One.", "Two.", "Three."):
                await there.send(text)
            await until(lambda: StepStored(there.id, there.state.book.seq) in heard)
            await asyncio.sleep(0.1)
            assert engines.web_store.catch_ups == 0

            here = await engines.web.get(there.id)
            assert here.state == there.state

    async def test_doubled_late_and_invented_notices_change_nothing(self, processes: OpenProcesses) -> None:
        """Anybody who may use the database may notify."""
        async with processes() as engines:
            there, here = await both_handles(engines)
            right = Watcher(here)
            await right.until("snapshot")
            await there.send("Hi.")
            for notice in (
                StepStored(here.id, 1),
                StepStored(here.id, 10**15),
                StepStored("nobody", 3),
                LiveShown(here.id, 1, "token", {"text": "late", "kind": "text"}),
                LiveShown(here.id, 10**9, "token", {"text": "early", "kind": "text"}),
                LiveShown(here.id, 1, "delivered", {"nonsense": 1}),
                LiveShown(here.id, 1, "invented", {}),
                ConversationGone("nobody"),
            ):
                engines.hear(notice)
            await there.send("Again.")
            await right.until("turn_ended", 2)
            await right.stop()

            assert not {"late", "early"} & set(texts(right.updates).split())
            assert [one[0] for one in stored(right.updates)] == sorted(
                {one[0] for one in stored(right.updates)}, key=parse_id
            )

    async def test_a_step_that_is_stored_while_the_conversation_is_read_is_followed(
        self, processes: OpenProcesses
    ) -> None:
        """It may have been read before the step."""
        async with processes() as engines:
            there = await engines.worker.create()
            getting = [asyncio.ensure_future(engines.web.get(there.id)) for _ in range(2)]
            await there.send("Hi.")
            here, _ = await asyncio.gather(*getting)

            await until(lambda: here.state == there.state)


class TestTrees:
    """Somebody watches all conversations of an owner, in a process that has none of them in memory."""

    async def test_what_others_begin_and_move_is_shown(self, processes: OpenProcesses) -> None:
        """With the same updates as in the process that stores them."""
        async with processes() as engines:
            left, right = TreeWatcher(engines.worker), TreeWatcher(engines.web)
            await left.until("tree_snapshot")
            await right.until("tree_snapshot")
            first, second = [await engines.worker.create(owner="anna") for _ in range(2)]
            for conversation in (first, second, first):
                await conversation.send("Hi.")
            await right.until("turn_ended", 3)
            await left.until("turn_ended", 3)
            await engines.worker.delete(second.id)
            await right.until("conversation_deleted")
            await asyncio.gather(left.stop(), right.stop())

            for conversation in (first, second):
                assert right.stored(conversation.id) == left.stored(conversation.id)

    async def test_what_was_listed_goes_on_where_the_list_ended(self, processes: OpenProcesses) -> None:
        """What the list shows already is not shown again."""
        async with processes() as engines:
            there = await engines.worker.create()
            await there.send("Before.")
            right = TreeWatcher(engines.web)
            await right.until("tree_snapshot")
            await there.send("After.")
            await right.until("turn_ended")
            await right.stop()

            said = [one.update.text for one in right.updates if one.update.type == "message"]
            assert said == ["After.", "Here."]

    async def test_what_nobody_watches_is_not_shown(self, processes: OpenProcesses) -> None:
        """Conversations of other owners."""
        async with processes() as engines:
            right = TreeWatcher(engines.web, owner="anna")
            await right.until("tree_snapshot")
            there = await engines.worker.create(owner="berta")
            for _ in range(3):
                await there.send("Hi.")
            seen = await engines.worker.create(owner="anna")
            await seen.send("Hi.")
            await right.until("turn_ended")
            await right.stop()

            assert {one.conversation_id for one in right.updates} == {None, seen.id}

    async def test_nothing_is_missed_when_all_notices_are_lost(self, processes: OpenProcesses) -> None:
        """The newest of the list are looked at."""
        async with processes() as engines:
            engines.lose(StepStored, ConversationGone)
            left, right = TreeWatcher(engines.worker), TreeWatcher(engines.web)
            await left.until("tree_snapshot")
            await right.until("tree_snapshot")
            there = await engines.worker.create()
            await there.send("Hi.")
            await right.until("turn_ended")
            await left.until("turn_ended")
            await engines.worker.delete(there.id)
            engines.hear(NoticesMissed())
            await right.until("conversation_deleted")
            await asyncio.gather(left.stop(), right.stop())

            assert right.stored(there.id) == left.stored(there.id)

    async def test_when_very_many_move_at_once_there_is_a_new_list(self, processes: OpenProcesses) -> None:
        """To read them one by one would cost more."""
        async with processes() as engines:
            right = TreeWatcher(engines.web)
            await right.until("tree_snapshot")
            engines.hear(*(StepStored(f"unknown-{number}", 1) for number in range(MOST_UNREAD + 1)))
            await right.until("tree_snapshot", 2)
            there = await engines.worker.create()
            await there.send("Hi.")
            await right.until("turn_ended")
            await right.stop()

    async def test_a_conversation_that_was_copied_elsewhere_is_shown(self, processes: OpenProcesses) -> None:
        """Whether it is heard of or found; also what happens in it then."""
        async with processes() as engines:
            there = await engines.worker.create()
            await there.send("Hi.")
            right = TreeWatcher(engines.web)
            await right.until("tree_snapshot")
            copy = await there.fork()
            await copy.send("Again.")
            await right.until("turn_ended")
            await right.stop()

            known = {one.conversation_id for one in right.updates if one.conversation_id is not None}
            assert known == {copy.id}

    async def test_tokens_are_shown(self, processes: OpenProcesses) -> None:
        """Also of a conversation that was not in memory before its turn."""
        gate = Gate()

        async def slowly(request: Any, show: Any) -> Any:
            await asyncio.sleep(0.05)
            show(Token("A table."))
            await gate()
            return reply("A table.")

        async with processes(Streams(slowly)) as engines:
            right = TreeWatcher(engines.web)
            await right.until("tree_snapshot")
            there = await engines.worker.create()
            going = asyncio.ensure_future(there.send("Hi."))
            await right.until("token")
            gate.opened.set()
            await going
            await right.stop()


def texts(updates: list[Update]) -> str:
    """The text of all tokens."""
    return "".join(one.text for one in updates if isinstance(one, TokenUpdate))


class Streams:
    """A model that shows its answer while it writes it."""

    name = "streams"

    def __init__(self, answer: Callable[[Any, Callable[[str], None]], Any]) -> None:
        self._answer = answer

    async def complete(self, request: Any, show: Any) -> Any:
        """Answer."""
        return await self._answer(request, show)


class TreeWatcher:
    """Collects the updates of a tree while a test runs."""

    def __init__(self, engine: Engine, owner: str | None = None) -> None:
        self.updates: list[TreeUpdate] = []
        self._source = engine.updates(owner=owner)
        self._collecting = asyncio.ensure_future(self._collect())

    async def _collect(self) -> None:
        async for update in self._source:
            self.updates.append(update)

    async def until(self, kind: str, count: int = 1) -> None:
        """Wait for the `count`-th update of this type."""
        await until(lambda: [one.update.type for one in self.updates].count(kind) >= count)

    async def stop(self) -> None:
        """Watch no longer."""
        self._collecting.cancel()
        await asyncio.wait([self._collecting])

    def stored(self, conversation_id: str) -> list[Any]:
        """The stored updates of a conversation, as JSON."""
        live = ("token", "tool_progress", "delivered")
        of_one = (one for one in self.updates if one.conversation_id == conversation_id)
        return [one.data for one in of_one if one.update.type not in (*live, "conversation_deleted")]
