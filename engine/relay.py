"""What the other processes that share a store do, as the conversations of this engine show it.

    StepStored        the loop of the conversation catches up
    LiveShown         whoever watches the conversation sees the token
    ConversationGone  its loop ends, as if it had been deleted here
    NoticesMissed     one look at the store finds what has moved

The store is what counts, and a notice only says that a look at it is worth while. So notices may be lost, doubled or
late: a loop that is told of a step reads all that it has not followed. What people wait for or watch is looked at every
second besides, all of it by one question, because a process may die between a step and its notice.

Only conversations are followed that somebody looks at: by a handle, or because this process looks after them. Of
others that are in memory it is noted that they are behind, and they are read when somebody asks for them; a worker has
many of those that other workers look after by now. While somebody watches a whole tree, those of its owner are read
when they move.

A conversation is followed by one task, however many notices of it come meanwhile, and many conversations at a time.
Live updates wait for the step that they belong to, and are dropped if there are many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, cast, get_args

from ..effects.context import LiveKind
from ..persistence.ports import ConversationGone, LiveShown, Notice, NoticesMissed, SharedStore, StepStored
from ..persistence.summaries import ConversationFilter
from ..states.errors import InvalidInput, TurnwiseError
from .loop import Loop
from .registry import ConversationRegistry
from .watching import TreeFeed

if TYPE_CHECKING:
    from ..persistence.ports import Store

logger: logging.Logger = logging.getLogger("turnwise.engine")

LOOK = 1.0
"""Seconds between two looks at what is waited for or watched: as long as a person does not mind."""

SHORTEST_GAP = 0.1
"""Seconds between two looks at least."""

LOOKED_AT_ONCE = 1_000
"""How many conversations one question to the store names. With more, looks are further apart."""

MOST_SHOWN = 5_000
"""How many conversations of a tree are looked at when notices were missed. In a larger one, only those are found that
have moved, and not those that were deleted meanwhile."""

AT_ONCE = 8
"""How many conversations catch up at a time: a store has about as many connections."""

MOST_UNREAD = 1_000
"""How many conversations that are not in memory may wait to be read for a tree. With more, a new list costs less."""

MOST_KEPT = 256
"""How many conversations that go on are kept in memory for those who watch trees."""

MOST_LIVE = 256
"""How many live updates wait for their conversation to catch up."""

PAGE, PAGES = 50, 20
"""How many conversations one look at a list reads at once, and how often it goes on as long as some have moved."""

MOST_OWNERS = 10_000
"""Of how many conversations the owner is remembered, so that one that nobody watches is read once."""

_KINDS = frozenset(get_args(LiveKind))


@dataclass(slots=True)
class _Following:
    """A conversation that catches up: to which step at least, and what is shown behind that."""

    seq: int = 0
    is_gone: bool = False
    live: list[LiveShown] = field(default_factory=list)


class Relay:
    """Follows what the other processes do. `drop` ends what this engine has of a conversation that was deleted."""

    def __init__(
        self,
        store: SharedStore,
        conversations: Store,
        registry: ConversationRegistry,
        tree: TreeFeed,
        drop: Callable[[str], Awaitable[None]],
    ) -> None:
        """`store` and `conversations` are two sides of one store."""
        self._store = store
        self._conversations = conversations
        self._registry = registry
        self._tree = tree
        self._drop = drop
        self._following: dict[str, _Following] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_missed = asyncio.Event()
        self._owners: dict[str, str | None] = {}
        self._kept: dict[str, Loop] = {}
        self._is_stopped = False

    def open(self) -> None:
        """Begin to follow. Does not wait."""
        self._begin(self._listen())
        self._begin(self._keep_looking())

    async def stop(self) -> None:
        """Follow nothing more."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def refresh(self, loop: Loop) -> None:
        """Have a loop follow what the other processes have stored by now. Raises `UnknownConversation`, `StoreError`
        and, while the store takes nothing, `Refused`."""
        if await self._store.find_moved({loop.conversation_id: loop.projection.seq}):
            await loop.catch_up()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_stopped:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("What other processes do cannot be followed.", exc_info=error)

    # --- notices

    async def _listen(self) -> None:
        while True:
            try:
                async with aclosing(self._store.notices()) as notices:
                    async for notice in notices:
                        self._take(notice)
            except TurnwiseError as error:
                logger.warning("Notices of other processes cannot be heard: %s", error)
            except Exception:  # of a store of the application
                logger.exception("Notices of other processes cannot be heard.")
            await asyncio.sleep(LOOK)

    def _take(self, notice: Notice) -> None:
        match notice:
            case StepStored(conversation_id, seq):
                self._note_step(conversation_id, seq)
            case LiveShown():
                self._note_live(notice)
            case ConversationGone(conversation_id):
                self._follow(conversation_id).is_gone = True
            case NoticesMissed():
                self._is_missed.set()

    def _note_step(self, conversation_id: str, seq: int) -> None:
        if conversation_id in self._following or self._is_of_interest(conversation_id, seq):
            following = self._follow(conversation_id)
            following.seq = max(following.seq, seq)

    def _is_of_interest(self, conversation_id: str, seq: int) -> bool:
        """Whether this step is to be read here, as far as is known."""
        if (loop := self._registry.find_in_memory(conversation_id)) is not None and loop.projection.seq < seq:
            if loop.is_of_interest:
                return True
            loop.note_announced(seq)
        if self._registry.is_loading(conversation_id):
            return True  # it may have been read before this step
        if not self._tree.is_watched or self._tree.known.get(conversation_id, 0) >= seq:
            return False
        if conversation_id in self._owners and not self._tree.concerns(self._owners[conversation_id]):
            return False
        if loop is None and len(self._following) >= MOST_UNREAD:
            self._tree.begin_again()
            return False
        return True

    def _note_live(self, shown: LiveShown) -> None:
        following = self._following.get(shown.conversation_id)
        loop = self._registry.find_in_memory(shown.conversation_id)
        if following is None and loop is not None and shown.effect_id >= loop.state.book.next_effect:
            self._note_step(shown.conversation_id, loop.projection.seq + 1)  # which was not heard of yet
            following = self._following.get(shown.conversation_id)
        if following is not None:
            if len(following.live) < MOST_LIVE:
                following.live.append(shown)
        elif loop is not None:
            _show(loop, (shown,))

    # --- one conversation

    def _follow(self, conversation_id: str) -> _Following:
        """Have a conversation catch up, unless it does already."""
        following = self._following.get(conversation_id)
        if following is None:
            following = self._following[conversation_id] = _Following()
            self._begin(self._catch_up(conversation_id, following))
        return following

    async def _catch_up(self, conversation_id: str, following: _Following) -> None:
        try:
            async with self._at_once:
                loop = await self._catch_up_loop(conversation_id, following)
        except TurnwiseError as error:
            logger.debug("The conversation %s cannot be followed now: %s", conversation_id, error)
            if self._registry.find_in_memory(conversation_id) is not None:  # the store takes nothing
                asyncio.get_running_loop().call_later(LOOK, self._is_missed.set)
            loop = None
        finally:
            del self._following[conversation_id]
        if following.is_gone:  # which was heard while it caught up
            self._follow(conversation_id).is_gone = True
        elif loop is not None:
            _show(loop, following.live)

    async def _catch_up_loop(self, conversation_id: str, following: _Following) -> Loop | None:
        """Have the loop of this conversation follow what was noted by now, and what is noted meanwhile; load it for
        those who watch a tree. Returns it, or None if nobody needs it."""
        if following.is_gone:
            following.is_gone = False
            await self._follow_deletion(conversation_id)
        reached = 0
        loop = self._registry.find_in_memory(conversation_id)
        while reached < following.seq:
            reached = following.seq
            if (loop := await self._loop_of(conversation_id)) is None:
                return None
            await loop.handled()  # a step of its own may be the one that was noted
            if loop.projection.seq < reached or self._lacks(loop, reached):
                await loop.catch_up()
        if loop is not None:
            self._keep_while_moving(loop)
        return loop

    def _keep_while_moving(self, loop: Loop) -> None:
        """Keep a conversation in memory that goes on while somebody watches its tree: its next steps cost little
        then."""
        if self._tree.is_watched and loop.state.in_flight():
            self._kept[loop.conversation_id] = loop
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        else:
            self._kept.pop(loop.conversation_id, None)

    async def _loop_of(self, conversation_id: str) -> Loop | None:
        registry = self._registry
        is_needed = registry.find_in_memory(conversation_id) is not None or registry.is_loading(conversation_id)
        if not (is_needed or self._tree.is_watched):
            return None
        loop = await registry.get_loop(conversation_id)
        if len(self._owners) >= MOST_OWNERS:
            self._owners.clear()
        self._owners[conversation_id] = owner = loop.projection.context.owner
        return loop if is_needed or self._tree.concerns(owner) else None

    def _lacks(self, loop: Loop, seq: int) -> bool:
        """Whether somebody who watches the tree of a conversation has not seen this step of it."""
        tree, owner = self._tree, loop.projection.context.owner
        return tree.is_watched and tree.concerns(owner) and tree.known.get(loop.conversation_id, 0) < seq

    async def _follow_deletion(self, conversation_id: str) -> None:
        """End what there is of a conversation, unless a new one has its id by now: then the old loop learns it from the
        log."""
        self._owners.pop(conversation_id, None)
        async with self._registry.family(conversation_id):
            if not (await self._store.find_moved({conversation_id: 0})).get(conversation_id):
                await self._drop(conversation_id)
                return
        if (loop := self._registry.find_in_memory(conversation_id)) is not None:
            await loop.catch_up()

    # --- looking

    async def _keep_looking(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK - SHORTEST_GAP):
                    await self._is_missed.wait()
            is_missed = self._is_missed.is_set()
            self._is_missed.clear()
            known = self._known(everything=is_missed)
            try:
                await self._look(known)
                if self._tree.is_watched:
                    await self._look_at_list()
                else:
                    self._kept.clear()
            except Exception as error:  # a store of the application may raise anything
                logger.debug("The store cannot be looked at now: %s", error)
                if is_missed:
                    self._is_missed.set()
                await asyncio.sleep(LOOK)
            await asyncio.sleep(max(SHORTEST_GAP, len(known) // LOOKED_AT_ONCE * LOOK))

    def _known(self, *, everything: bool) -> dict[str, int]:
        """Return the newest steps of the conversations that are looked at: of those that somebody waits for or watches,
        or of `everything` that is in memory or shown in a tree."""
        loops = self._registry.loops() if everything else self._registry.followed()
        known = {loop.conversation_id: loop.projection.seq for loop in loops}
        shown = self._tree.known if everything and len(self._tree.known) <= MOST_SHOWN else {}
        return {**shown, **known}

    async def _look(self, known: Mapping[str, int]) -> None:
        """Find out which of these conversations are at another step than is `known`, and have them followed."""
        for part in _parts(known.items(), LOOKED_AT_ONCE):
            for conversation_id, seq in (await self._store.find_moved(dict(part))).items():
                if seq:
                    self._note_step(conversation_id, seq)
                else:
                    self._follow(conversation_id).is_gone = True

    async def _look_at_list(self) -> None:
        """Find the conversations that have begun or moved, for those who watch a tree: they are the first of the list.
        If there are very many, everybody who watches begins again."""
        before: str | None = None
        for _ in range(PAGES):
            page = await self._conversations.list(ConversationFilter(limit=PAGE, before=before))
            behind = [summary for summary in page if self._tree.lacks(summary)]
            for summary in behind:
                self._owners[summary.id] = summary.owner
                self._note_step(summary.id, summary.seq)
            if not behind or len(page) < PAGE:
                return
            before = page[-1].cursor
        self._tree.begin_again()


def _show(loop: Loop, live: Iterable[LiveShown]) -> None:
    """Show live updates to those who watch a conversation. What is none, in this version, is passed over."""
    for shown in live:
        if shown.kind in _KINDS:
            with suppress(InvalidInput):
                loop.show_live(shown.effect_id, cast("LiveKind", shown.kind), shown.data, shown.place)


def _parts(items: Iterable[tuple[str, int]], size: int) -> Iterable[list[tuple[str, int]]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
