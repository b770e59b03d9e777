"""Watchers of a conversation: each gets every update once, and sees what is durable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from turnwise import (
    Conversation,
    ConversationDeletedUpdate,
    ConversationOpenedUpdate,
    Engine,
    EngineClosed,
    InvalidInput,
    MessageUpdate,
    SnapshotUpdate,
    StoreError,
    TokenUpdate,
    ToolProgressUpdate,
    TreeSnapshotUpdate,
    TreeUpdate,
    Update,
)
from turnwise.engine.projection import ConversationProjection
from turnwise.engine.updates import StateChangeUpdate, StateView
from turnwise.engine.watching import Feed, StreamingConversation, TreeFeed, Watcher, updates_of_turn
from turnwise.persistence import Summary
from turnwise.states import (
    AgentMessage,
    Context,
    Idle,
    LogEntry,
    Opened,
    QuestionOption,
    UserMessage,
    UserQuestion,
    begin,
    pending,
    transition,
)
from turnwise.testing import FunctionLlm
from turnwise.testing.doubles import NOON, ScriptedLlm, reply

from ..support.databases import BOTH_STORES, Database

pytestmark = BOTH_STORES

# --- A watcher gets every update once, whatever happens while it reads the log: of one turn, which updates belong to it
# and where it stops, and of all conversations (`Engine.updates`), for those who show a tree of agents.


AT = datetime(2026, 6, 1, 12, tzinfo=UTC)


def echo(request: Any) -> str:
    """Answer with the number of messages."""
    return f"{len(request.messages)}."


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    """Yield an engine over the database."""
    async with Engine.open(database, model=FunctionLlm(echo)) as engine:
        yield engine


async def say_hello_three_times(conversation: Conversation) -> None:
    """Say it in one turn after the other."""
    for number in range(3):
        await conversation.send(f"hello {number}")


async def take(updates: AsyncGenerator[TreeUpdate, None], count: int) -> list[TreeUpdate]:
    """Return the next few updates."""
    return [await anext(updates) for _ in range(count)]


async def until_idle(updates: AsyncGenerator[TreeUpdate, None], conversation_id: str) -> list[TreeUpdate]:
    """Return the updates up to the end of the next turn of a conversation."""
    found = []
    async for one in updates:
        found.append(one)
        if one.conversation_id == conversation_id and one.update.type == "turn_ended":
            break
    return found


def shown(updates: Sequence[TreeUpdate], conversation_id: str) -> list[Any]:
    """Return the stored updates of a conversation."""
    return [one.update for one in updates if one.conversation_id == conversation_id and not is_live(one)]


def is_live(one: TreeUpdate) -> bool:
    """Whether an update has no position."""
    return isinstance(one.update, TokenUpdate | ToolProgressUpdate)


def summary(id_: str = "c", seq: int = 3, owner: str | None = None) -> Summary:
    """A conversation in a list."""
    return Summary(id=id_, state="idle", busy=False, updated_at=AT, owner=owner, seq=seq)


def message(seq: int, number: int = 1) -> MessageUpdate:
    """An update of a step."""
    return MessageUpdate((seq, number), role="user", text=f"{seq}.{number}", turn=1)


def token(text: str, *, from_start: bool = False) -> TokenUpdate:
    """A piece of an answer."""
    return TokenUpdate(text, "text", 1, 7, 1, from_start)


class World:
    """A feed, and the list that its watchers are given. While the list is read, `during` happens."""

    def __init__(self, capacity: int = 100) -> None:
        self.feed = TreeFeed(capacity)
        self.listed: list[Summary] = [summary()]
        self.lists = 0
        self.streamed: tuple[TokenUpdate, ...] = ()

    def during(self) -> None:
        """Nothing, unless a test says otherwise."""

    async def read(self, owner: str | None) -> Sequence[Summary]:
        """Return the list as it was when reading began."""
        self.lists += 1
        found = list(self.listed)
        await asyncio.sleep(0)
        self.during()
        return found

    def watch(self, owner: str | None = None) -> AsyncGenerator[TreeUpdate, None]:
        """Watch the feed."""
        return self.feed.updates(owner, self.read, lambda: [StreamingConversation("c", None, self.streamed)])


QUESTION = UserQuestion(
    question="When?",
    header="Time",
    options=(QuestionOption(label="6:30 PM", description="early"), QuestionOption(label="8:15 PM", description="late")),
)


class UnderWay:
    """A conversation whose model has `streamed` these pieces. Each read of its log streams another one."""

    def __init__(self, capacity: int = 100) -> None:
        opened = Opened(event_id="opened", at=NOON)
        message = UserMessage(event_id="m1", at=NOON, text="Hi")
        first, context = begin(opened), Context().after(opened)
        step = transition(first.state, message, context)
        self._log = [LogEntry.of(opened, first), LogEntry.of(message, step)]
        (self._request,) = pending(step.state)
        self._feed = Feed(capacity)
        self._projection = ConversationProjection(step.state, context, self.read)
        self.streamed: list[str] = []

    def watcher(self, after: str | None = None) -> Watcher:
        """A watcher that begins now."""
        return Watcher(self._projection, self._feed, self.read, after)

    async def read(self, after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
        """Read the log, while the model goes on."""
        self.stream()
        return self._log[after:up_to]

    def stream(self) -> None:
        """The model writes the next piece."""
        self.streamed.append(f"{len(self.streamed)} ")
        self._feed.publish(TokenUpdate(self.streamed[-1], "text", turn=1, request=self._request, attempt=1))


def with_update(shown: str, update: Update) -> str:
    """The streamed text behind this update."""
    match update:
        case SnapshotUpdate(streaming=streaming):
            return "" if streaming is None else streaming.text
        case TokenUpdate(text=text, from_start=from_start):
            return text if from_start else shown + text
        case _:
            return shown


async def collect(updates: AsyncIterable[Update], taken: list[Update]) -> None:
    """Take all updates, to the end of the conversation."""
    async for update in updates:
        taken.append(update)


async def until(condition: Callable[[], bool]) -> None:
    """Let everything else run until the condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


class TestAWatcherOfATree:
    """What it is given."""

    async def test_begins_with_the_conversations_as_they_are(self, engine: Engine) -> None:
        """With their roles, and whom they belong to."""
        foreground = await engine.create(owner="anna", title="Dinner")
        agent = await engine.create(role="background", works_for=foreground)
        await foreground.send("A table for two")

        async with aclosing(engine.updates()) as updates:
            (first,) = await take(updates, 1)

        assert first.conversation_id is None
        assert isinstance(first.update, TreeSnapshotUpdate)
        assert first.update.conversations == await engine.list()
        assert [(one.id, one.role, one.works_for) for one in first.update.conversations] == [
            (foreground.id, "foreground", None),
            (agent.id, "background", foreground.id),
        ]

    async def test_is_shown_what_the_watchers_of_each_conversation_are_shown(self, engine: Engine) -> None:
        """In their order, also where conversations move at the same time."""
        first, second = await engine.create(), await engine.create()
        async with aclosing(engine.updates()) as updates:
            await take(updates, 1)
            await asyncio.gather(*map(say_hello_three_times, (first, second)))
            found = [*await take(updates, 1)]
            while sum(one.update.type == "turn_ended" for one in found) < 6:
                found += await take(updates, 1)

        for conversation in (first, second):
            alone = conversation.updates(after="1.1")
            of_tree = shown(found, conversation.id)
            assert of_tree == [await anext(alone) for _ in of_tree]
            await alone.aclose()

    async def test_is_shown_new_conversations_and_the_end_of_deleted_ones(self, engine: Engine) -> None:
        """A copy begins a new snapshot."""
        async with aclosing(engine.updates()) as updates:
            await take(updates, 1)
            conversation = await engine.create(title="Dinner", owner="anna")
            await conversation.send("hello")
            await engine.delete(conversation.id)
            found = [*await until_idle(updates, conversation.id), *await take(updates, 1)]
            other = await engine.create()
            copy = await other.fork()
            while not isinstance(found[-1].update, TreeSnapshotUpdate):
                found += await take(updates, 1)

        opened = found[0].update
        assert isinstance(opened, ConversationOpenedUpdate)
        assert (opened.conversation.title, opened.conversation.owner, opened.conversation.seq) == ("Dinner", "anna", 1)
        assert [one for one in shown(found, conversation.id) if isinstance(one, MessageUpdate)]
        assert shown(found, conversation.id)[-1] == ConversationDeletedUpdate()
        assert {one.id for one in found[-1].update.conversations} == {other.id, copy.id}

    async def test_of_an_owner_is_shown_nothing_of_others(self, engine: Engine) -> None:
        """Neither in the snapshot nor later, and no conversation without an owner."""
        annas = await engine.create(owner="anna")
        others = [await engine.create(owner="bert"), await engine.create()]
        async with aclosing(engine.updates(owner="anna")) as updates:
            found = await take(updates, 1)
            for conversation in (*others, await engine.create(owner="bert"), annas):
                await conversation.send("hello")
            await engine.delete(others[0].id)
            await annas.send("again")
            found += [*await until_idle(updates, annas.id), *await until_idle(updates, annas.id)]

        assert {one.conversation_id for one in found} == {None, annas.id}
        assert [one.id for one in found[0].update.conversations] == [annas.id]

    async def test_knows_the_first_step_of_a_conversation_that_was_not_in_memory(self, database: Database) -> None:
        """Its log is read before the step."""
        async with Engine.open(database, model=FunctionLlm(echo)) as engine:
            conversation_id = (await engine.create()).id
        async with Engine.open(database, model=FunctionLlm(echo)) as engine, aclosing(engine.updates()) as updates:
            await take(updates, 1)
            mail = AgentMessage(event_id="mail", at=AT, origin="agent", text="Noted.", silent=True)
            await (await engine.get(conversation_id)).dispatch(mail)
            await (await engine.get(conversation_id)).send("hello")
            found = await until_idle(updates, conversation_id)

        texts = [one.text for one in shown(found, conversation_id) if isinstance(one, MessageUpdate)]
        assert texts[:2] == ["Noted.", "hello"] and len(texts) == 3

    async def test_has_updates_as_json(self, engine: Engine) -> None:
        """Each names its conversation."""
        async with aclosing(engine.updates()) as updates:
            await take(updates, 1)
            conversation = await engine.create(title="Dinner")
            await conversation.send("hello")
            await engine.delete(conversation.id)
            found = [*await until_idle(updates, conversation.id), *await take(updates, 1)]
            written = [json.loads(json.dumps(one.data)) for one in found]

        assert {one["conversation_id"] for one in written} == {conversation.id}
        assert written[0]["data"]["conversation"]["title"] == "Dinner"
        assert (written[0]["type"], written[-1]["type"]) == ("conversation_opened", "conversation_deleted")


class TestTheEnd:
    """When nothing more comes."""

    async def test_comes_when_the_engine_is_closed(self, database: Database) -> None:
        """What was stored until then is shown."""
        engine = await Engine.open(database, model=FunctionLlm(echo))
        conversation = await engine.create()
        updates = engine.updates()
        await take(updates, 1)
        await conversation.send("hello")
        await engine.close()

        found = [one async for one in updates]

        assert "turn_ended" in [one.update.type for one in found]
        with pytest.raises(EngineClosed):
            engine.updates()

    async def test_comes_for_one_who_waits(self, engine: Engine) -> None:
        """Nobody is left waiting."""
        updates = engine.updates()
        await take(updates, 1)
        waiting = asyncio.ensure_future(anext(updates, None))
        await asyncio.sleep(0)
        await engine.close()

        assert await waiting is None

    @pytest.mark.parametrize("owner", [7, "\ud800"])
    async def test_is_at_once_for_what_is_no_owner(self, owner: Any, engine: Engine) -> None:
        """One sentence."""
        with pytest.raises(InvalidInput):
            engine.updates(owner=owner)

    def test_comes_in_a_program_without_an_event_loop(self, database: Database) -> None:
        """A blocking engine has a plain iterator."""
        with Engine.open_blocking(database, model=FunctionLlm(echo)) as engine:
            updates = engine.updates(owner="anna")
            first = next(updates)
            conversation = engine.create(owner="anna")
            opened = next(updates)
            updates.close()

        assert isinstance(first.update, TreeSnapshotUpdate)
        assert opened == TreeUpdate(conversation.id, opened.update)


class TestTheFeed:
    """What is kept for those who watch, and what is not."""

    async def test_keeps_nothing_while_nobody_watches(self) -> None:
        """Also when the last watcher has left."""
        world = World()
        world.feed.follow("c", None, (message(4),), 4)
        assert not world.feed.is_watched
        first, second = world.watch(), world.watch()
        await take(first, 1)
        await take(second, 1)
        world.feed.follow("c", None, (message(5),), 5)
        assert [one.update for one in await take(first, 1)] == [message(5)]

        await first.aclose()
        assert world.feed.is_watched
        await second.aclose()

        assert not world.feed.is_watched

    async def test_reads_no_log_while_nobody_watches(self) -> None:
        """A conversation whose contents are not in memory stays like that."""
        reads: list[int] = []

        async def read(after: int = 0, up_to: int | None = None) -> Sequence[Any]:
            reads.append(after)
            raise StoreError("The log cannot be read.")

        world = World()
        projection = ConversationProjection(Idle().replace(book=Idle().book.replace(seq=3)), Context(), read)
        await world.feed.prepare("c", projection)
        assert reads == []

        updates = world.watch()
        await take(updates, 1)
        await world.feed.prepare("c", projection)

        assert reads == [0]
        await updates.aclose()

    async def test_what_happens_while_the_list_is_read_is_shown_once(self) -> None:
        """Whether the list shows it already or not."""
        world = World()
        world.during = lambda: world.feed.follow("c", None, (message(3, 9), message(4), message(4, 2)), 4)  # type: ignore[method-assign]
        updates = world.watch()

        found = await take(updates, 3)
        world.feed.follow("c", None, (message(5),), 5)
        found += await take(updates, 1)

        assert [one.update for one in found[1:]] == [message(4), message(4, 2), message(5)]
        await updates.aclose()

    async def test_what_the_list_shows_before_it_is_published_is_not_shown_again(self) -> None:
        """A step is stored before its loop publishes it. The same holds for a new conversation."""
        world = World()
        world.listed = [summary(seq=5), summary("new", seq=1)]
        updates = world.watch()
        await take(updates, 1)
        world.feed.follow("c", None, (message(5),), 5)
        world.feed.open(summary("new", seq=1))
        world.feed.open(summary("newer", seq=1))
        world.feed.follow("c", None, (message(6),), 6)

        found = await take(updates, 2)

        assert [(one.conversation_id, one.update.type) for one in found] == [
            ("newer", "conversation_opened"),
            ("c", "message"),
        ]
        await updates.aclose()

    async def test_only_known_conversations_are_said_to_be_deleted(self) -> None:
        """And once; one that takes the id later is a new one."""
        world = World()
        updates = world.watch()
        await take(updates, 1)
        for conversation_id in ("c", "c", "unknown"):
            world.feed.delete(conversation_id)
        world.feed.open(summary("c", seq=1))
        world.feed.follow("c", None, (message(2),), 2)

        found = await take(updates, 3)

        assert [one.update.type for one in found] == ["conversation_deleted", "conversation_opened", "message"]
        await updates.aclose()

    async def test_one_who_does_not_read_begins_again(self) -> None:
        """However much was published, only the capacity is kept, and the next thing is a new list."""
        world = World(capacity=4)
        updates = world.watch()
        await take(updates, 1)
        world.listed = [summary(seq=103)]
        for seq in range(4, 104):
            world.feed.follow("c", None, (message(seq),), seq)

        (again,) = await take(updates, 1)
        world.feed.follow("c", None, (message(104),), 104)
        (after,) = await take(updates, 1)

        assert isinstance(again.update, TreeSnapshotUpdate)
        assert again.update.conversations == (summary(seq=103),)
        assert (after.update, world.lists) == (message(104), 2)
        await updates.aclose()

    async def test_one_who_falls_behind_while_the_list_is_read_reads_it_again(self) -> None:
        """Until nothing was missed."""
        world = World(capacity=4)
        bursts = [10, 10, 2]

        def publish() -> None:
            for _ in range(bursts.pop(0) if bursts else 0):
                world.listed = [summary(seq=world.listed[0].seq + 1)]
                world.feed.follow("c", None, (message(world.listed[0].seq),), world.listed[0].seq)

        world.during = publish  # type: ignore[method-assign]
        updates = world.watch()

        found = await take(updates, 5)

        assert [one.update.type for one in found] == [*["tree_snapshot"] * 3, "message", "message"]
        await updates.aclose()

    async def test_updates_that_nobody_knows_begin_a_new_snapshot(self) -> None:
        """The log of the conversation could not be read."""
        world = World()
        updates = world.watch()
        await take(updates, 1)
        world.feed.follow("c", None, None, 4)

        assert [one.update.type for one in await take(updates, 1)] == ["tree_snapshot"]
        await updates.aclose()

    async def test_the_text_that_is_being_written_is_shown_from_its_beginning(self) -> None:
        """With the tokens that came while the list was read, once; later ones follow."""
        world = World()
        world.streamed = (token("A table", from_start=True),)
        world.during = lambda: world.feed.show("c", None, (token("A "), token("table")))  # type: ignore[method-assign]
        updates = world.watch()
        found = await take(updates, 2)
        world.feed.show("c", None, (token(" for two"),))
        found += await take(updates, 1)

        assert [one.update for one in found[1:]] == [token("A table", from_start=True), token(" for two")]
        await updates.aclose()


async def test_it_stops_where_a_sub_agent_asks_although_it_no_longer_asks() -> None:
    """A reader that comes late sees what one sees that comes in time."""
    message = MessageUpdate(position=(1, 1), role="user", text="Go on.", turn=1, message_id="m")
    asking = StateView(type="awaiting_sub_agents", turn=1, questions=(QUESTION,), call_id="3.call_1")
    stored: list[Update] = [
        message,
        StateChangeUpdate(position=(2, 1), state=asking),
        StateChangeUpdate(position=(3, 1), state=StateView(type="awaiting_sub_agents", turn=1)),
        StateChangeUpdate(position=(4, 1), state=StateView(type="idle", turn=1)),
    ]

    async def updates() -> AsyncGenerator[Update, None]:
        for update in stored:
            yield update

    async def never() -> None:
        raise AssertionError("the turn stops before its updates end")

    shown = [update async for update in updates_of_turn(updates(), "m", never)]

    assert shown == stored[:2]


class TestTokensThatComeWhileItReads:
    """They are in the text so far, or come after it, never both."""

    @pytest.mark.parametrize("after", [None, "0.0", "2.1"])
    async def test_are_shown_once(self, after: str | None) -> None:
        """Before, during and after each read of the log."""
        under_way, shown = UnderWay(), ""
        under_way.stream()
        watcher = under_way.watcher(after)
        under_way.stream()

        async with asyncio.timeout(20), aclosing(watcher.updates()) as updates:
            async for update in updates:
                shown = with_update(shown, update)
                if len(under_way.streamed) == 8:
                    break
                if shown == "".join(under_way.streamed):
                    under_way.stream()

        assert shown in ("0 1 2 3 4 5 6 ", "0 1 2 3 4 5 6 7 ")

    async def test_are_not_lost_by_a_watcher_that_fell_behind(self) -> None:
        """What the feed no longer keeps comes as one token from the start."""
        under_way = UnderWay(capacity=2)
        async with aclosing(under_way.watcher().updates()) as updates:
            await anext(updates)
            for _ in range(4):
                under_way.stream()
            caught_up = await anext(updates)

        assert isinstance(caught_up, TokenUpdate)
        assert (caught_up.text, caught_up.from_start) == ("0 1 2 3 4 ", True)


class TestTheIdToBeginAfter:
    """`Conversation.updates(after=…)`."""

    @pytest.mark.parametrize("after", ["yesterday", "", "1", "1.2.3", "-1.0", "9" * 5000 + ".1", "\uff11.\uff12"])
    async def test_that_is_malformed_is_refused_by_the_call(self, database: Database, after: str) -> None:
        """The caller learns it before it begins to read."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput):
                conversation.updates(after)


class TestTheIterator:
    """What `Conversation.updates` returns."""

    async def test_can_be_closed_before_it_begins_and_in_the_middle(self, database: Database) -> None:
        """It yields nothing more, and the conversation goes on."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            unread, updates = conversation.updates(), conversation.updates()
            await unread.aclose()
            first = await anext(updates)
            await updates.aclose()
            rest = [update async for update in unread] + [update async for update in updates]
            turn = await conversation.send("Hi")

        assert isinstance(first, SnapshotUpdate)
        assert (rest, turn.reply) == ([], "Hello.")


class TestCatchingUp:
    """`Conversation.updates(caught_up=…)`."""

    async def test_is_told_after_the_updates_of_each_step_also_of_one_that_has_none(self, database: Database) -> None:
        """The title of a conversation is no update; its reader is told of that step all the same."""
        taken: list[Update] = []
        told: list[tuple[int, int]] = []
        async with Engine.open(database, model=ScriptedLlm([reply("Hello!")])) as engine:
            conversation = await engine.create()
            updates = conversation.updates(caught_up=lambda seq: told.append((seq, len(taken))))
            reading = asyncio.create_task(collect(updates, taken))
            await conversation.send("Hi")
            await until(lambda: told[-1:] == [(conversation.state.book.seq, len(taken))])
            before = len(taken)
            await conversation.set_title("Greetings")
            await until(lambda: told[-1] == (conversation.state.book.seq, before))
            await conversation.close()
            await reading
            last = conversation.state.book.seq

        assert taken[before:] != []
        assert told[-1] == (last, len(taken))
        for seq, count in told:
            assert all(one.position is None or one.position[0] > seq for one in taken[count:])

    async def test_a_step_that_the_call_itself_asks_for_is_told_too(self) -> None:
        """The reader waits for the next change by then."""
        taken: list[Update] = []
        told: list[int] = []
        renaming: list[asyncio.Task[None]] = []
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            def rename(seq: int) -> None:
                told.append(seq)
                if len(told) == 1:
                    renaming.append(asyncio.create_task(conversation.set_title("Greetings")))

            reading = asyncio.create_task(collect(conversation.updates(caught_up=rename), taken))
            await until(lambda: len(told) == 2)
            await conversation.close()
            await reading

        assert told[1] == told[0] + 1


Watch = Callable[[Engine, Conversation], AsyncGenerator[Any, None]]

WATCHES: dict[str, Watch] = {
    "updates": lambda engine, conversation: conversation.updates(),
    "tree": lambda engine, conversation: engine.updates(),
    "stream": lambda engine, conversation: conversation.stream("Wait for the turn before", when_busy="queue"),
}


async def shown_until_closed(updates: AsyncGenerator[Any, None]) -> int:
    """Return how many updates there were, once they have ended."""
    return len([update async for update in updates])


class TestClosing:
    """`aclose` ends an iterator, whoever waits for its next update."""

    @pytest.fixture(params=WATCHES.values(), ids=list(WATCHES))
    async def updates(self, request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Any]:
        """Yield an iterator that has nothing more to show, since a turn waits for its model."""
        async with Engine.open(database, model=FunctionLlm(never)) as engine:
            conversation = await engine.create()
            await conversation.send("Hello", wait=False)
            yield request.param(engine, conversation)

    async def test_it_ends_the_iteration_of_another_task(self, updates: AsyncGenerator[Any, None]) -> None:
        """As if nothing more came; the task goes on behind its loop, and was not cancelled."""
        watching = asyncio.create_task(shown_until_closed(updates))
        await asyncio.sleep(0.05)

        await asyncio.gather(updates.aclose(), updates.aclose())

        await watching
        assert watching.cancelling() == 0
        assert [update async for update in updates] == []

    async def test_a_task_that_is_cancelled_meanwhile_is_cancelled(self, updates: AsyncGenerator[Any, None]) -> None:
        """Closing does not swallow what was not meant for it, nor a timeout around the iteration."""
        watching = asyncio.create_task(shown_until_closed(updates))
        await asyncio.sleep(0.05)
        watching.cancel()

        await updates.aclose()

        with pytest.raises(asyncio.CancelledError):
            await watching

    async def test_a_closed_iterator_leaves_a_cancel_to_its_task(self, updates: AsyncGenerator[Any, None]) -> None:
        """It ends only what it has cancelled itself."""
        watching = asyncio.create_task(shown_until_closed(updates))
        await asyncio.sleep(0.05)
        await updates.aclose()
        await watching
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)

        assert [update async for update in updates] == []
        assert task.cancelling() == 1
        task.uncancel()

    async def test_a_timeout_around_the_iteration_stays_one(self, updates: AsyncGenerator[Any, None]) -> None:
        """The iterator ends with it, and can be closed."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await shown_until_closed(updates)

        await updates.aclose()


async def never(request: Any) -> str:
    """Answer when it is too late."""
    await asyncio.Event().wait()
    return ""
