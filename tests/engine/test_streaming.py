"""A client that shows an answer while it is written shows exactly that, whenever it begins to watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
    LlmFailure,
    ModelAnswer,
    Policy,
    Retry,
    Settings,
    SnapshotUpdate,
    StateChangeUpdate,
    Token,
    TokenUpdate,
)
from turnwise.engine.updates import StreamedText, Streaming

from ..support.documented_screen import Screen, new_screen
from ..support.engine_scenarios import Gate, Watcher, until

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
    """The client of docs/host.md, which begins, or begins again, at any point."""

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

    async def test_is_told_by_the_state_and_by_the_tokens(self, database: Path) -> None:
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

    async def test_leaves_nothing_of_the_text_before(self, database: Path) -> None:
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

    async def test_leaves_no_text_on_the_screen(self, database: Path) -> None:
        """The client that shows the first piece discards it."""
        gate = Gate()
        async with Engine.open(database, model=Writes([["Good mor", "ning."]], lambda _: gate())) as engine:
            conversation = await engine.create()
            client = Client(new_screen())
            client.begin(conversation)
            await conversation.send("Hello", wait=False)
            await until(lambda: client.shows(["Hello"], "Good mor"))
            await conversation.cancel()
            await until(lambda: client.shows(["Hello"], ""))
            await client.stop()


class TestAWatcherThatBeginsInTheMiddle:
    """What it gets, besides what it would get at any time."""

    @pytest.fixture
    async def writing(self, database: Path) -> Any:
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


class TestWhatModelsShow:
    """Models may show anything."""

    async def test_half_a_character_is_replaced(self, database: Path) -> None:
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

    async def test_what_is_no_text_fails_the_request(self, database: Path) -> None:
        """The turn fails with one sentence, and whoever watches is shown no such token."""
        pieces: Any = [[5]]
        async with Engine.open(database, model=Writes(pieces, lambda _: asyncio.sleep(0))) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hello")

        assert turn.status == "failed"
        assert turn.failure
