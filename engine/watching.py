"""Watchers of conversations, each at its own pace: what they read from the log, and what they find in a feed.

The newest of what is published is kept, for any number of readers. A reader has a position and no queue of its own, so
a slow one neither blocks others nor costs memory. One that falls behind the oldest item kept learns so, and finds out
in another way what it missed: a watcher of a conversation from the log, a watcher of a tree by a new list. While nobody
watches nothing is kept, so a watcher that resumes from before that time reads the log, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Generic, NamedTuple, TypeVar

from ..persistence.summaries import Details, Summary, summary_in_state
from ..states.context import Context
from ..states.errors import EngineClosed, InvalidInput, Refused, StoreError, TurnwiseError
from ..states.events import Opened
from ..states.machine import begin
from ..states.states import State, pending
from ..states.step import LogEntry
from .projection import ConversationProjection, ReadEntries
from .updates import (
    AnyTreeUpdate,
    ConversationDeletedUpdate,
    ConversationOpenedUpdate,
    MessageUpdate,
    Position,
    SnapshotUpdate,
    StateChangeUpdate,
    StreamedText,
    TokenUpdate,
    TreeSnapshotUpdate,
    TreeUpdate,
    TurnEndedUpdate,
    Update,
    parse_id,
    snapshot,
    updates_of_log,
)


class Watcher:
    """One reader of updates: its position in the feed, and the last stored update that it was given.

    The feed has everything from the position on, and the text that was streamed before it. So the position is moved
    only together with reading that text, without an await in between: then no token is missed or shown twice.
    """

    def __init__(
        self,
        projection: ConversationProjection,
        feed: Feed,
        read_entries: ReadEntries,
        after: str | None = None,
        caught_up: Callable[[int], object] | None = None,
    ) -> None:
        """`after` is the id of the update after which the watcher begins; None gives it a snapshot instead. `caught_up`
        is called with the number of the newest step whenever the reader has taken the updates of all steps and asks for
        more. Raises `InvalidInput` for what is no id."""
        self._projection = projection
        self._feed = feed
        self._read_entries = read_entries
        self._after = None if after is None else parse_id(after)
        self._caught_up = caught_up
        self._position = feed.end
        self._made_at = projection.seq
        self._last: Position = self._after or (0, 0)

    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over a snapshot, or all updates after the one that the watcher begins after; then over the
        new ones. Each comes once, in order."""
        return self._read(self._begin)

    def updates_from_now(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates since the watcher was made, without a snapshot. The contents of the
        projection must have been read before. Within a `Feed.reading` context the log need not be read."""
        self._last = (self._made_at + 1, 0)
        return self._read(self._next)

    async def _read(self, read: Callable[[], Awaitable[tuple[Update, ...]]]) -> AsyncGenerator[Update, None]:
        with self._feed.reading():
            while True:
                try:
                    updates = await read()
                except StoreError:
                    if self._feed.closed:  # the database is closed with the engine
                        return
                    raise
                for update in updates:
                    yield update
                while self._feed.end <= self._position:
                    if self._caught_up is not None:
                        self._caught_up(self._projection.seq)
                    if self._feed.closed:
                        return
                    await self._feed.changed()  # also by a step that has no updates
                read = self._next

    async def _begin(self) -> tuple[Update, ...]:
        if self._after is not None:
            await self._check_known(self._after)
        # From here on the updates of every step are known, and come by the feed.
        await self._projection.read_contents()
        return self._new(await self._missed() if self._after is not None else (await self._snapshot(),))

    async def _check_known(self, seen: Position) -> None:
        """Raise `InvalidInput` for an update that does not exist yet, in the store either, to which another engine may
        write: a watcher after it would miss the updates before it."""
        is_known = seen <= (self._projection.seq + 1, 0)  # the id of a snapshot of the current state
        if not is_known and not await self._read_entries(seen[0] - 1, seen[0]):
            raise InvalidInput(f"This conversation has had no update {seen[0]}.{seen[1]} yet.")

    async def _next(self) -> tuple[Update, ...]:
        kept = self._feed.since(self._position)
        if kept is None:
            return self._new(await self._missed())
        self._position = self._feed.end
        return self._new(kept)

    def _new(self, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Return the updates after the last one given. Live ones belong to the stored one that follows them."""
        known = (n for n, update in enumerate(updates) if update.position is not None and update.position <= self._last)
        shown = tuple(updates[max(known, default=-1) + 1 :])
        self._last = max((update.position for update in shown if update.position is not None), default=self._last)
        return shown

    async def _missed(self) -> tuple[Update, ...]:
        """Return all updates of the log, and the text that was streamed since, as one token of each kind. What the log
        and the feed both have is shown once."""
        self._position, seq = self._feed.end, self._projection.seq
        streamed = tuple(self._feed.streamed.tokens())
        entries = await self._read_entries()
        try:
            updates = tuple(updates_of_log(entries))
        except Refused:
            # Another version of the state machine wrote the log, as a replay reports; the current state is known.
            return (await self._snapshot(),)
        before = [update for update in updates if update.position is not None and update.position[0] <= seq]
        return (*before, *streamed, *updates[len(before) :])

    async def _snapshot(self) -> Update:
        projection = self._projection
        await projection.read_contents()
        self._position = self._feed.end
        streaming = self._feed.streamed.so_far
        return snapshot(projection.state, projection.transcript, projection.context.policy, streaming)


T = TypeVar("T")


class KeptUpdates(Generic[T]):
    """Items, numbered from 0 in the order of publication, of which the newest `capacity` are kept.

    What holds them is made when something is published, and what wakes readers when somebody waits: an engine has one
    of these for each conversation in memory, and most of these rest.
    """

    __slots__ = ("_capacity", "_changed", "_end", "_kept", "_readers", "closed", "is_watched")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: deque[T] | None = None
        self._end = 0
        self._changed: asyncio.Event | None = None
        self._readers = 0
        self.is_watched: bool = False
        """Whether somebody reads."""
        self.closed: bool = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context that lasts while somebody reads. The last reader that leaves lets go of the items."""
        self._readers += 1
        self.is_watched = True
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self.is_watched = False
                self.forget()

    @property
    def end(self) -> int:
        """The number that the next item will have."""
        return self._end

    def keep(self, items: Iterable[T]) -> None:
        """Publish these items."""
        if self._kept is None:
            self._kept = deque(maxlen=self._capacity)
        for item in items:
            self._kept.append(item)
            self._end += 1
        self._wake()

    def skip(self) -> None:
        """Note that something has happened which nobody here knows: every reader learns that it fell behind."""
        self._kept = None
        self._end += 1
        self._wake()

    def forget(self) -> None:
        """Let go of all items. A reader that has not read them learns that it fell behind."""
        self._kept = None

    def end_updates(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._wake()

    def since(self, position: int) -> tuple[T, ...] | None:
        """Return the items from this number on, or None if some of them are not kept."""
        kept = self._kept or ()
        oldest = self._end - len(kept)
        if position < oldest:
            return None
        return tuple(kept[index] for index in range(position - oldest, len(kept)))

    def has_ended_at(self, position: int) -> bool:
        """Whether there is no item with this number, and never will be."""
        return self.closed and self._end <= position

    async def beyond(self, position: int) -> None:
        """Return when there is an item with this number, or nothing more will come."""
        while self._end <= position and not self.closed:
            await self.changed()

    async def changed(self) -> None:
        """Return when the next item is published or skipped, or nothing more will come."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()


_FEED_CAPACITY = 1024
"""How many updates are kept, live ones included: several long streamed answers."""


class Feed(KeptUpdates[Update]):
    """The updates of one conversation.

    `streamed` is the text of the tokens among them that belong to the model request under way. It always includes the
    newest one, so a watcher that begins at `end` shows it and misses nothing.
    """

    __slots__ = ("streamed",)

    def __init__(self, capacity: int = _FEED_CAPACITY) -> None:
        super().__init__(capacity)
        self.streamed: StreamedText = StreamedText()

    def publish(self, *updates: Update) -> None:
        """Show updates to whoever watches."""
        for update in updates:
            if isinstance(update, TokenUpdate):
                self.streamed.add(update)
        if self.is_watched:
            self.keep(updates)
        else:
            self.skip()

    def forget_at_rest(self) -> None:
        """Nothing is under way: let go of the updates unless somebody watches. Whoever asks for them later reads them
        from the log."""
        if not self.is_watched:
            self.forget()

    def follow(self, updates: Sequence[Update] | None, state: State) -> None:
        """Show the updates of a step that was stored, and that led to this state. None if nobody here knows the
        updates: whoever watches reads them from the log."""
        if self.streamed.has_text:
            self.streamed.keep_only(pending(state))
        if updates is None:
            self.skip()
        else:
            self.publish(*updates)


async def updates_of_turn(
    updates: AsyncGenerator[Update, None], message_id: str, stopped: Callable[[], Awaitable[object]]
) -> AsyncGenerator[Update, None]:
    """Yield those of `updates` that belong to the turn which takes this message, and close `updates`.

    If they end before the turn stops, or begin anew with a snapshot because some cannot be shown, `stopped` is awaited:
    it returns when the turn has stopped, or raises why it never will.

    They begin with the message that the turn took, and end where the turn ends, or waits for a person for the first
    time after that message.
    """
    turn: int | None = None
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, SnapshotUpdate):
                break
            if turn is None and isinstance(update, MessageUpdate) and update.message_id == message_id:
                turn = update.turn
            if turn is None or _turn_of(update) != turn:
                continue
            yield update
            if _stops(update):
                return
    await stopped()


def _turn_of(update: Update) -> int:
    return update.state.turn if isinstance(update, SnapshotUpdate | StateChangeUpdate) else update.turn


def _stops(update: Update) -> bool:
    """Whether the turn of this update ends with it, or waits for a person."""
    if isinstance(update, StateChangeUpdate):
        return update.state.waits_for_person
    return isinstance(update, TurnEndedUpdate)


class StreamingConversation(NamedTuple):
    """A conversation whose model writes an answer, and the text so far as one token of each kind."""

    conversation_id: str
    owner: str | None
    tokens: Iterable[TokenUpdate]


_TREE_FEED_CAPACITY = 4096
"""How many updates of all conversations are kept, live ones included: those of some dozen agents that stream."""

_ListConversations = Callable[[str | None], Awaitable[Sequence[Summary]]]
"""Returns all stored conversations of an owner, or of everybody for None."""

_ListStreaming = Callable[[], Iterable[StreamingConversation]]
"""Returns the conversations whose models write answers at this moment."""


_LONGEST_GAP = 1024
"""How many updates of one conversation are shown at once. If more were missed, a new list costs less."""


class TreeFeed(KeptUpdates["_Published"]):
    """What loops publish to those who watch trees.

    A watcher begins with a list of the conversations, and goes on with what their loops publish; one that falls behind
    the oldest update kept begins again with a new list. Each conversation in the list has the number of its newest
    step, by which what the list shows already is told from what is new.

    Another process may move a conversation that has no loop here. So the step up to which each conversation was listed
    or shown is known while somebody watches, and what is missing is shown before the next step of its loop.
    """

    def __init__(self, capacity: int = _TREE_FEED_CAPACITY) -> None:
        super().__init__(capacity)
        self._owners: Counter[str | None] = Counter()
        """Whose conversations are watched; None stands for everybody's."""
        self._known: dict[str, int] = {}
        """The step up to which every watcher has been shown a conversation, by its id."""

    def concerns(self, owner: str | None) -> bool:
        """Whether somebody watches the conversations of this owner."""
        return owner in self._owners or None in self._owners

    @property
    def known(self) -> Mapping[str, int]:
        """The conversations that were listed or shown, each with the step up to which it was."""
        return self._known

    def lacks(self, summary: Summary) -> bool:
        """Whether somebody who watches has not been shown the newest step of this conversation."""
        return self.concerns(summary.owner) and self._known.get(summary.id, 0) < summary.seq

    def follow(self, conversation_id: str, owner: str | None, updates: Sequence[Update] | None, seq: int) -> None:
        """Show the updates of the step `seq`. None if nobody here knows them: then every watcher begins again."""
        if self.is_watched:
            self._known[conversation_id] = seq
        if updates is None:
            self.begin_again()
        else:
            self.show(conversation_id, owner, updates)

    def show(self, conversation_id: str, owner: str | None, updates: Sequence[Update]) -> None:
        """Show updates of a conversation."""
        if self.is_watched and updates:
            self.keep(_Published(conversation_id, owner, update) for update in updates)

    def begin_again(self) -> None:
        """Give every watcher a new snapshot, because conversations have changed in a way that no update shows."""
        if self.is_watched:
            self.skip()

    def open(self, summary: Summary) -> None:
        """Show that a conversation has begun."""
        if self.is_watched:
            self._known[summary.id] = summary.seq
            self.keep((_Published(summary.id, summary.owner, ConversationOpenedUpdate(summary)),))

    def delete(self, conversation_id: str) -> None:
        """Show that a conversation was deleted. Its owner need not be known: who has not seen it passes it over."""
        if self.is_watched:
            self._known.pop(conversation_id, None)
            self.keep((_Published(conversation_id, None, ConversationDeletedUpdate()),))

    async def prepare(self, conversation_id: str, projection: ConversationProjection) -> None:
        """Read the contents of a conversation before its next step, so that the updates of the step are known, and show
        the steps that were not shown here. If they cannot be read, the watchers begin again behind the step."""
        if not (self.is_watched and self.concerns(projection.context.owner)):
            return
        with suppress(TurnwiseError):
            await projection.read_contents()
            if self._known.get(conversation_id, 0) < projection.seq:
                self._show_missing(conversation_id, await projection.read_entries(0, projection.seq))

    def _show_missing(self, conversation_id: str, entries: Sequence[LogEntry]) -> None:
        """Show what is missing of this log. Raises `Refused` if another version of the state machine wrote it."""
        known, seq = self._known.get(conversation_id, 0), entries[-1].seq
        updates = [one for one in updates_of_log(entries) if one.position is not None and one.position[0] > known]
        opened = entries[0].event
        if not known and isinstance(opened, Opened):
            self.open(summary_in_state(conversation_id, begin(opened).state, opened.at, Details().after(opened)))
        owner = Context().after(opened).owner
        self.follow(conversation_id, owner, None if len(updates) > _LONGEST_GAP else updates, seq)

    @contextmanager
    def _watching(self, owner: str | None) -> Iterator[None]:
        """Return a context that lasts while somebody watches the conversations of this owner, or of everybody."""
        self._owners[owner] += 1
        try:
            with self.reading():
                yield
        finally:
            self._owners -= Counter((owner,))  # which drops an owner of whom nobody is left
            if not self.is_watched:
                self._known.clear()

    async def updates(
        self, owner: str | None, listed: _ListConversations, streaming: _ListStreaming
    ) -> AsyncGenerator[TreeUpdate, None]:
        """Yield a snapshot of the conversations of this owner (None: of everybody), then their updates, until the feed
        is closed. Raises what `listed` raises."""
        with self._watching(owner):
            while not self.has_ended_at(self.end):
                async for update in self._from_snapshot(_Tree(owner), listed, streaming):
                    yield update

    async def _from_snapshot(
        self, tree: _Tree, listed: _ListConversations, streaming: _ListStreaming
    ) -> AsyncGenerator[TreeUpdate, None]:
        """Yield a snapshot and what follows it, until this watcher has fallen behind or the feed is closed."""
        position = self.end
        try:
            summaries = await listed(tree.owner)
        except EngineClosed:
            return
        for summary in summaries:
            self._known.setdefault(summary.id, summary.seq)
        yield tree.snapshot(summaries)
        missed = self.since(position)
        if missed is None:
            return
        position = self.end
        # The text that is streamed now includes the tokens that were published while the list was read.
        stored = [one for one in missed if not isinstance(one.update, TokenUpdate)]
        for update in (*tree.new(stored), *tree.streamed(streaming())):
            yield update
        while (published := self.since(position)) is not None:
            position = self.end
            for update in tree.new(published):
                yield update
            if self.has_ended_at(position):
                return
            await self.beyond(position)


class _Published(NamedTuple):
    conversation_id: str
    owner: str | None
    update: AnyTreeUpdate


class _Tree:
    """The conversations that one watcher knows, each with the step up to which it was shown."""

    def __init__(self, owner: str | None) -> None:
        self.owner = owner
        self._shown: dict[str, Position] = {}
        """The newest stored update that was shown of each conversation, or the place behind its newest step."""

    def snapshot(self, summaries: Sequence[Summary]) -> TreeUpdate:
        self._shown = {summary.id: (summary.seq + 1, 0) for summary in summaries}
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
                behind = (summary.seq + 1, 0)
                return self._concerns(owner) and self._shown.setdefault(conversation_id, behind) is behind
            case TreeSnapshotUpdate():
                return False
            case _ if update.position is not None:
                return self._concerns(owner) and self._is_next(conversation_id, update.position)
            case _:
                return self._concerns(owner)

    def _is_next(self, conversation_id: str, position: Position) -> bool:
        """Whether this update was not shown. What a loop publishes, and what was missing, may be the same."""
        is_next = position > self._shown.get(conversation_id, (0, 0))
        if is_next:
            self._shown[conversation_id] = position
        return is_next

    def streamed(self, streaming: Iterable[StreamingConversation]) -> tuple[TreeUpdate, ...]:
        return tuple(
            TreeUpdate(conversation_id, token)
            for conversation_id, owner, tokens in streaming
            if self._concerns(owner)
            for token in tokens
        )

    def _concerns(self, owner: str | None) -> bool:
        return self.owner is None or owner == self.owner
