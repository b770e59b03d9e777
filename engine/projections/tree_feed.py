"""The newest updates of all conversations of an engine, for those who watch a tree of agents.

Nothing is kept while nobody watches. A watcher begins with a list of the conversations, and goes on with what their
loops publish; one that falls behind the oldest update kept begins again with a new list. Each conversation in the list
has the number of its newest step, by which what the list shows already is told from what is new.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ...states.errors import EngineClosed, TurnwiseError
from .kept_updates import KeptUpdates
from .projection import ConversationProjection
from .updates.live import TokenUpdate
from .updates.tree import (
    AnyTreeUpdate,
    ConversationDeletedUpdate,
    ConversationOpenedUpdate,
    TreeSnapshotUpdate,
    TreeUpdate,
)
from .updates.update import Update

if TYPE_CHECKING:
    from ...persistence.summaries import Summary

CAPACITY = 4096
"""How many updates of all conversations are kept, live ones included: those of some dozen agents that stream."""


class StreamingConversation(NamedTuple):
    """A conversation whose model writes an answer, and the text so far as one token of each kind."""

    conversation_id: str
    owner: str | None
    tokens: Iterable[TokenUpdate]


class _Published(NamedTuple):
    conversation_id: str
    owner: str | None
    update: AnyTreeUpdate


ListConversations = Callable[[str | None], Awaitable[Sequence["Summary"]]]
"""Returns all stored conversations of an owner, or of everybody for None."""

ListStreaming = Callable[[], Iterable[StreamingConversation]]
"""Returns the conversations whose models write answers at this moment."""


class TreeFeed:
    """What loops publish to those who watch trees."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._kept = KeptUpdates[_Published](capacity)

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches, so that updates must be known."""
        return self._kept.is_watched

    def follow(self, conversation_id: str, owner: str | None, updates: Sequence[Update] | None) -> None:
        """Show the updates of a step. None if nobody here knows them: then every watcher begins again."""
        if updates is None:
            self.begin_again()
        elif self.is_watched and updates:
            self._kept.keep(_Published(conversation_id, owner, update) for update in updates)

    def begin_again(self) -> None:
        """Give every watcher a new snapshot, because conversations have changed in a way that no update shows."""
        if self.is_watched:
            self._kept.skip()

    def open(self, summary: Summary) -> None:
        """Show that a conversation has begun."""
        if self.is_watched:
            self._kept.keep((_Published(summary.id, summary.owner, ConversationOpenedUpdate(summary)),))

    def delete(self, conversation_id: str) -> None:
        """Show that a conversation was deleted. Its owner need not be known: who has not seen it passes it over."""
        if self.is_watched:
            self._kept.keep((_Published(conversation_id, None, ConversationDeletedUpdate()),))

    def close(self) -> None:
        """Nothing more will come: the watchers end once they have read everything."""
        self._kept.close()

    async def prepare(self, projection: ConversationProjection) -> None:
        """Read the contents of a conversation before its next step, so that the updates of the step are known. If they
        cannot be read, the watchers begin again behind the step."""
        if self.is_watched and not projection.is_read:
            with suppress(TurnwiseError):
                await projection.read()

    async def updates(
        self, owner: str | None, listed: ListConversations, streaming: ListStreaming
    ) -> AsyncGenerator[TreeUpdate, None]:
        """Yield a snapshot of the conversations of this owner (None: of everybody), then their updates, until the feed
        is closed. Raises what `listed` raises."""
        with self._kept.reading():
            while not self._kept.has_ended_at(self._kept.end):
                async for update in self._from_snapshot(_Tree(owner), listed, streaming):
                    yield update

    async def _from_snapshot(
        self, tree: _Tree, listed: ListConversations, streaming: ListStreaming
    ) -> AsyncGenerator[TreeUpdate, None]:
        """Yield a snapshot and what follows it, until this watcher has fallen behind or the feed is closed."""
        position = self._kept.end
        try:
            summaries = await listed(tree.owner)
        except EngineClosed:
            return
        yield tree.snapshot(summaries)
        missed = self._kept.since(position)
        if missed is None:
            return
        position = self._kept.end
        # The text that is streamed now includes the tokens that were published while the list was read.
        stored = [one for one in missed if not isinstance(one.update, TokenUpdate)]
        for update in (*tree.new(stored), *tree.streamed(streaming())):
            yield update
        while (published := self._kept.since(position)) is not None:
            position = self._kept.end
            for update in tree.new(published):
                yield update
            if self._kept.has_ended_at(position):
                return
            await self._kept.beyond(position)


class _Tree:
    """The conversations that one watcher knows, each with the step up to which it was shown."""

    def __init__(self, owner: str | None) -> None:
        self.owner = owner
        self._shown: dict[str, int] = {}

    def snapshot(self, summaries: Sequence[Summary]) -> TreeUpdate:
        self._shown = {summary.id: summary.seq for summary in summaries}
        return TreeUpdate(None, TreeSnapshotUpdate(tuple(summaries)))

    def new(self, published: Iterable[_Published]) -> Iterator[TreeUpdate]:
        """Yield what concerns this tree and was not shown."""
        for conversation_id, owner, update in published:
            if self._is_new(conversation_id, owner, update):
                yield TreeUpdate(conversation_id, update)

    def _is_new(self, conversation_id: str, owner: str | None, update: AnyTreeUpdate) -> bool:
        match update:
            case ConversationDeletedUpdate():
                return self._shown.pop(conversation_id, None) is not None
            case ConversationOpenedUpdate(conversation=summary):
                return self._concerns(owner) and self._shown.setdefault(conversation_id, 0) < summary.seq
            case TreeSnapshotUpdate():
                return False
            case _ if update.position is not None:
                return self._concerns(owner) and update.position[0] > self._shown.get(conversation_id, 0)
            case _:
                return self._concerns(owner)

    def streamed(self, streaming: Iterable[StreamingConversation]) -> tuple[TreeUpdate, ...]:
        return tuple(
            TreeUpdate(conversation_id, token)
            for conversation_id, owner, tokens in streaming
            if self._concerns(owner)
            for token in tokens
        )

    def _concerns(self, owner: str | None) -> bool:
        return self.owner is None or owner == self.owner
