"""What the tests of a store share: how it is opened, a conversation to store step by step, and dialogues to search."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

import pytest

from ...persistence.codec import GENESIS, encode
from ...persistence.ports import SearchableStore, SharedStore
from ...persistence.records import ConversationRecord, EventRow, HeadRow
from ...states.context import Context
from ...states.effects import DeliverToUser
from ...states.events import Answer, Event, LlmResponse, Opened, Request, ToolComplete, UserMessage
from ...states.machine import begin, transition
from ...states.policy import Policy
from ...states.states import State, pending
from ...states.step import LogEntry, Step
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope
from ...states.values.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from ...persistence.ports import Log, Store

if TYPE_CHECKING:
    from ...persistence.ports import Store

    class SearchedStore(Store, SearchableStore, Protocol):
        """What these tests need: a store that is searchable, too."""


NOON = datetime(2025, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC)


class Story:
    """A conversation that goes through the machine, a second between two events. `steps` is what a store is given.

    Two stories that are built by the same calls have equal steps. `opened_with` are further fields of the first event.
    """

    def __init__(self, system: str = "You book tables.", at: datetime = NOON, **opened_with: Any) -> None:
        opened = Opened(event_id="opened", at=at, system=system, policy=Policy(), **opened_with)
        self.opening: tuple[Opened, Step] = opened, begin(opened)
        self.steps: list[tuple[Event, Step]] = [self.opening]
        self.context: Context = Context().after(opened)
        self._at = at

    @property
    def state(self) -> State:
        """The state after the newest step."""
        return self.steps[-1][1].state

    @property
    def newest(self) -> tuple[Event, Step]:
        """The newest step, as a store is given it."""
        return self.steps[-1]

    @property
    def log(self) -> list[LogEntry]:
        """The log that a store must return."""
        return [LogEntry.of(event, step) for event, step in self.steps]

    def say(self, text: str = "A table for two?") -> Story:
        """A user says something, and the model is asked."""
        return self.request(UserMessage, text=text)

    def answer(self, text: str = "Sakura has one.") -> Story:
        """The model answers, which ends the turn."""
        return self._answer(LlmResponse, content=text)

    def turn(self, text: str = "A table for two?") -> Story:
        """A whole turn: a message, a tool call, an answer."""
        call = ToolCall(call_id=f"call-{len(self.steps)}", name="find_table", raw_arguments='{"party": 2}')
        self.say(text)._answer(LlmResponse, tool_calls=(call,), finish_reason="tool_calls")
        self._answer(ToolComplete, result=ToolResult(text=f"Found for {text}"))
        return self.answer(f"About {text}: Sakura has one.")

    def request(self, kind: type[Request], /, **fields: Any) -> Story:
        """Take a request under a new id."""
        return self.take(kind(event_id=f"request-{len(self.steps)}", at=self._now(), **fields))

    def _answer(self, kind: type[Answer], **fields: Any) -> Story:
        return self.take(kind(effect_id=min(pending(self.state)), at=self._now(), **fields))

    def take(self, event: Event) -> Story:
        """Take an event, which the machine must neither refuse nor ignore."""
        step = transition(self.state, event, self.context)
        assert not step.ignored
        self.steps.append((event, step))
        self.context = self.context.after(event)
        return self

    def _now(self) -> datetime:
        return self._at + timedelta(seconds=len(self.steps))

    async def into(self, store: Store, conversation_id: str = "story") -> Log:
        """Store all steps."""
        log = await store.create(conversation_id, *self.opening)
        for event, step in self.steps[1:]:
            await log.append(event, step)
        return log


class OpenedStore:
    """What a subclass says about its store."""

    lasting: ClassVar[bool] = True
    """Whether a store that is opened again at the same place finds what was stored. Set it to False for memory."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """Return a context manager that opens the store and closes it at the end. Its data is below the folder `place`.

        Opened a second time at the same place, it is the same store again.
        """
        raise NotImplementedError

    def in_trouble(self, store: Store, place: Path) -> AbstractAsyncContextManager[None]:
        """Return a context manager while which the storage takes nothing: every `append` must fail with
        `StorageFailed`. Optional; without it that test is skipped."""
        pytest.skip("this store does not say how its storage fails")


Contract = TypeVar("Contract", bound="OpenedStore")


def on_a_store(test: Callable[[Contract, Store], Awaitable[None]]) -> Callable[[Contract, Path], None]:
    """Turn a test of an open store into one that pytest runs without a plugin."""

    def run(self: Contract, tmp_path: Path) -> None:
        async def on_one() -> None:
            async with self.opened(tmp_path) as store:
                await test(self, store)

        asyncio.run(on_one())

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run


def on_a_claiming_store(test: Callable[[Contract, Store], Awaitable[None]]) -> Callable[[Contract, Path], None]:
    """Turn a test of `claim` into one that pytest runs; it is skipped for a store that processes share."""

    async def run(self: Contract, store: Store) -> None:
        if isinstance(store, SharedStore):
            pytest.skip("this store claims nothing, because jobs say what waits")
        await test(self, store)

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return on_a_store(run)


def on_a_searchable_store(test: Callable[[T, SearchedStore], Awaitable[None]]) -> Callable[[T, Path], None]:
    """Turn a test of a store that can be searched into one that pytest runs; it is skipped for any other store."""

    async def run(self: T, store: Store) -> None:
        if not isinstance(store, SearchableStore):
            pytest.skip("this store cannot be searched")
        await test(self, cast("SearchedStore", store))

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return on_a_store(run)


T = TypeVar("T", bound=OpenedStore)


def deliveries_of(step: Step, *targets: str) -> tuple[tuple[int, str], ...]:
    """Return the deliveries of a step to these targets, as `append` takes them."""
    effects = [effect.effect_id for effect in step.effects if isinstance(effect, DeliverToUser)]
    return tuple((effect_id, target) for effect_id in effects for target in targets)


def plain(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the entries without what a store adds to them."""
    return [LogEntry(one.seq, one.event, one.effects, one.ended, one.turn) for one in entries]


async def claims(store: Store, *expected: str) -> bool:
    """Whether the store claims exactly these conversations; nothing if processes share it."""
    return set(await store.claim(len(expected) + 10)) == (set() if isinstance(store, SharedStore) else set(expected))


async def log_of(store: Store, conversation_id: str = "story") -> list[LogEntry]:
    """Read the whole log, without what a store adds to its entries."""
    return plain(await store.entries(conversation_id))


async def found_request(log: Log, event_id: str) -> LogEntry | None:
    """Return the step that took the request with this id, without what a store adds to it."""
    entry = await log.request(event_id)
    return None if entry is None else plain([entry])[0]


async def undelivered_in(store: Store) -> list[tuple[str, str, int]]:
    """Return all deliveries that are not acknowledged: conversation, target and effect."""
    return [(one.conversation_id, one.target, one.effect_id) for one in await store.outbox(await store.ids())]


ANNA = MemoryScope("elsewhere", "anna", 0)
"""All conversations of this owner."""


async def found(
    store: SearchableStore,
    *keywords: str,
    scope: MemoryScope = ANNA,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
) -> list[str]:
    """Search, and return the texts."""
    return texts_of(await store.search(MemoryQuery(scope, keywords, since, until, limit)))


def texts_of(found: tuple[FoundText, ...]) -> list[str]:
    """Return the texts alone."""
    return [one.text for one in found]


async def dialogue(store: Store, name: str, *texts: str, at: datetime = NOON, **opened_with: Any) -> Story:
    """Store a conversation of turns with these messages, each of which is answered by a number; in one transaction,
    since they may be many."""
    story = Story(at=at, **{"owner": "anna", **opened_with})
    for number, text in enumerate(texts, start=1):
        story.say(text).answer(f"{number}.")
    encoded: list[tuple[EventRow, HeadRow]] = []
    for event, step in story.steps:
        encoded.append(encode(event, step, encoded[-1][0].chain if encoded else GENESIS))
    rows, head = tuple(row for row, _ in encoded), encoded[-1][1]
    await store.write_records([ConversationRecord(name, rows[0].at, head, rows, opened_with.get("owner", "anna"))])
    return story


SOON = NOON + timedelta(seconds=30, microseconds=7)

LATER = NOON + timedelta(days=1)
