"""A watcher gets every update once, whatever happens while it reads the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from turnwise import Engine, InvalidInput, SnapshotUpdate, TokenUpdate, Update
from turnwise.engine.projection import ConversationProjection
from turnwise.engine.watching import Feed, Watcher
from turnwise.states import Context, LogEntry, Opened, UserMessage, begin, pending, transition
from turnwise.testing.doubles import NOON, ScriptedLlm, reply


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
    async def test_that_is_malformed_is_refused_by_the_call(self, database: Path, after: str) -> None:
        """The caller learns it before it begins to read."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput):
                conversation.updates(after)


class TestTheIterator:
    """What `Conversation.updates` returns."""

    async def test_can_be_closed_before_it_begins_and_in_the_middle(self, database: Path) -> None:
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


def with_update(shown: str, update: Update) -> str:
    """The streamed text behind this update."""
    match update:
        case SnapshotUpdate(streaming=streaming):
            return "" if streaming is None else streaming.text
        case TokenUpdate(text=text, from_start=from_start):
            return text if from_start else shown + text
        case _:
            return shown


class TestCatchingUp:
    """`Conversation.updates(caught_up=…)`."""

    async def test_is_told_after_the_updates_of_each_step_also_of_one_that_has_none(self, database: Path) -> None:
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

    async def test_a_step_that_the_call_itself_makes_is_told_too(self) -> None:
        """In a database in memory a request is stored at once, before the reader waits for the next change."""
        taken: list[Update] = []
        told: list[int] = []
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            def rename(seq: int) -> None:
                told.append(seq)
                if len(told) == 1:
                    with pytest.raises(StopIteration):
                        conversation.set_title("Greetings").send(None)

            reading = asyncio.create_task(collect(conversation.updates(caught_up=rename), taken))
            await until(lambda: len(told) == 2)
            await conversation.close()
            await reading

        assert told[1] == told[0] + 1


async def collect(updates: AsyncIterable[Update], taken: list[Update]) -> None:
    """Take all updates, to the end of the conversation."""
    async for update in updates:
        taken.append(update)


async def until(condition: Callable[[], bool]) -> None:
    """Let everything else run until the condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)
