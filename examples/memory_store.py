"""A store of your own: conversations in the memory of this process, with public names only.

A store implements the port `turnwise.persistence.Store`, and its logs implement `Log`. This one is complete: it passes
`turnwise.testing.store_contract`, an engine runs over it, and what it holds can be forked, replayed, exported, imported
and examined. It keeps the rows that `encode` makes, in dictionaries; a store for a server would put them in tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import mul

from turnwise import Engine
from turnwise.persistence import (
    EVERYTHING,
    GENESIS,
    MAX_RECENT,
    ConversationFilter,
    ConversationRecord,
    Details,
    EventRow,
    HeadRow,
    KeptFile,
    LoadedConversation,
    OutboxRow,
    StoreConflict,
    StoredEntry,
    StoreError,
    Summary,
    Undelivered,
    UnknownConversation,
    decode,
    decode_state,
    encode,
    files_in,
    from_microseconds,
    holds,
    keywords_of,
    new_mark,
    read_steps,
    summary_of,
    to_microseconds,
    unit_vector,
    words_of,
)
from turnwise.states import (
    Branches,
    Context,
    Event,
    FoundText,
    LogEntry,
    MemoryQuery,
    MemoryScope,
    Opened,
    Step,
    VectorQuery,
)
from turnwise.states.dialogue import said_texts
from turnwise.testing import ScriptedLlm, reply


@dataclass(eq=False)
class StoredConversation:
    """The rows of one conversation, and what makes it fast to go on and to list it: its context, its details, and where
    each request stands."""

    record: ConversationRecord
    """All but the steps and the outbox, which follow here because they change."""
    steps: list[EventRow] = field(default_factory=list)
    outbox: dict[tuple[str, int], OutboxRow] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    details: Details = field(default_factory=Details)
    requests: dict[str, int] = field(default_factory=dict)
    answers: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, record: ConversationRecord) -> StoredConversation:
        """Index the rows of a record."""
        # This store keeps no sums of deliveries, so the doctor is not to compare those of another one.
        record = record._replace(outbox_checksum=None, origin_checksum=None)
        conversation = cls(record, outbox={(row.target, row.effect_id): row for row in record.outbox})
        for row in record.steps:
            conversation.add(row, decode(row).event)
        return conversation

    def add(self, row: EventRow, event: Event) -> None:
        """Add a step."""
        self.steps.append(row)
        self.context = self.context.after(event)
        self.details = self.details.after(event)
        if row.event_id is not None:
            self.requests[row.event_id] = row.seq
        if row.effect_id is not None:
            self.answers.add(row.effect_id)

    @property
    def head(self) -> HeadRow:
        """Where the conversation stands."""
        return self.record.head

    @property
    def summary(self) -> Summary:
        """What a list shows of the conversation."""
        return summary_of(self.record, self.details)

    @property
    def waits(self) -> bool:
        """Whether it waits for work, for a timer or for a delivery."""
        return self.head.waits or self.head.next_timer is not None or bool(self.outbox)

    def read(self, after: int, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Decode and verify the steps behind `after`."""
        start = min(max(after, 0), len(self.steps))
        return read_steps(self.steps[start:up_to], start, self.steps[start - 1].chain if start else GENESIS)

    def deliveries(self) -> tuple[OutboxRow, ...]:
        """The outbox, for each target in the order of the steps."""
        return tuple(sorted(self.outbox.values(), key=lambda row: (row.target, row.seq, row.effect_id)))


class MemoryLog:
    """The log of one conversation, open at its end."""

    def __init__(self, store: MemoryStore, conversation_id: str, conversation: StoredConversation) -> None:
        self._store = store
        self._id = conversation_id
        self._conversation = conversation
        self._seq = len(conversation.steps)

    @property
    def seq(self) -> int:
        """The number of the newest step that this log knows to be stored."""
        return self._seq

    @property
    def chain(self) -> bytes:
        """The link of that step."""
        return self._conversation.steps[self._seq - 1].chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step and its deliveries. Nothing in between is awaited, so that no other step can interfere."""
        self._store.check_open()
        conversation = self._conversation
        if not self._store.holds(self._id, conversation):
            raise StoreConflict("The conversation was deleted.")
        if not step.state.book.seq == self._seq + 1 == len(conversation.steps) + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        row, head = encode(event, step, conversation.head.chain)
        if row.event_id in conversation.requests or row.effect_id in conversation.answers:
            raise StoreConflict("The request, or the answer to the effect, is already in the log.")
        conversation.add(row, event)
        conversation.record = conversation.record._replace(head=head)
        for effect_id, target in targets:
            conversation.outbox[target, effect_id] = OutboxRow(target, effect_id, row.seq)
        self._store.texts.add(self._id, conversation.record.owner, decode(row))
        self._seq = row.seq

    def _check_stored(self) -> None:
        """Raise `UnknownConversation` if the conversation was deleted; another one may have its id since."""
        self._store.check_open()
        if not self._store.holds(self._id, self._conversation):
            raise UnknownConversation(self._id)

    async def request(self, event_id: str) -> StoredEntry | None:
        """Return the step that took the request with this id, or None."""
        self._check_stored()
        seq = self._conversation.requests.get(event_id)
        return None if seq is None else self._conversation.read(seq - 1, seq)[0]

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """Return the steps that others have stored behind `seq`, and move on to the newest of them."""
        self._check_stored()
        missed = self._conversation.read(self._seq)
        self._seq = len(self._conversation.steps)
        return missed

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Remove a delivery that has arrived from the outbox."""
        self._store.check_open()
        self._conversation.outbox.pop((target, effect_id), None)

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that a delivery has failed, and when the next attempt is due."""
        self._store.check_open()
        row = self._conversation.outbox.get((target, effect_id))
        if row is not None:
            postponed = row._replace(attempts=attempts, next_attempt=to_microseconds(next_attempt), begun=0)
            self._conversation.outbox[target, effect_id] = postponed

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at a delivery which an earlier process has left, the `begun`-th in a row."""
        self._store.check_open()
        row = self._conversation.outbox.get((target, effect_id))
        if row is not None:
            self._conversation.outbox[target, effect_id] = row._replace(begun=begun)


@dataclass(eq=False)
class ListedText:
    """A text, its number, its words, and its vectors by their spaces."""

    number: int
    owner: str | None
    found: FoundText
    words: list[str]
    vectors: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def is_in(self, scope: MemoryScope) -> bool:
        """Whether the text may be found."""
        is_own = self.found.conversation_id == scope.conversation_id
        if is_own and self.found.turn >= scope.turn:
            return False
        return is_own if scope.owner is None else self.owner == scope.owner

    def is_within(self, since: datetime | None, until: datetime | None) -> bool:
        """Whether the text was said between these moments."""
        return (since is None or self.found.at >= since) and (until is None or self.found.at <= until)


@dataclass(eq=False)
class ReadLog:
    """What of a log says which texts its next step adds."""

    context: Context = field(default_factory=Context)
    events: dict[int, Event] = field(default_factory=dict)
    branches: Branches = field(default_factory=Branches)


class Texts:
    """What was said, for the port `SearchableStore`. Each search looks at every text."""

    def __init__(self) -> None:
        self._texts: dict[int, ListedText] = {}
        self._logs: dict[str, ReadLog] = {}
        self._count = 0

    def add(self, conversation_id: str, owner: str | None, entry: LogEntry) -> None:
        """List what a step adds. The steps of a conversation are added in order."""
        log = self._logs.setdefault(conversation_id, ReadLog())
        log.context = log.context.after(entry.event)
        for said in said_texts(entry, log.context, log.events.get):
            self._count += 1
            found = FoundText(conversation_id, said.turn, said.at, said.role, said.text)
            self._texts[self._count] = ListedText(self._count, owner, found, words_of(said.text))
        log.events[entry.seq] = entry.event
        log.branches = log.branches.followed_by(entry)

    def _is_in(self, text: ListedText, scope: MemoryScope) -> bool:
        """Whether the text may be found: it is in the scope, and not hidden in another branch."""
        return text.is_in(scope) and self._logs[text.found.conversation_id].branches.shows(text.found.turn)

    def remove(self, conversation_id: str) -> None:
        """Forget the texts of a conversation."""
        self._logs.pop(conversation_id, None)
        self._texts = {
            number: text for number, text in self._texts.items() if text.found.conversation_id != conversation_id
        }

    def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords of the query: those that hold most of them first, then the newest."""
        keywords = keywords_of(query.keywords)
        scored = [
            (sum(holds(text.words, keyword) for keyword in keywords), text)
            for text in self._texts.values()
            if self._is_in(text, query.scope) and text.is_within(query.since, query.until)
        ]
        hits = sorted(((score, text) for score, text in scored if score), key=lambda hit: (-hit[0], -hit[1].number))
        return _different((text for _, text in hits), query.limit)

    def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first."""
        texts = [text for text in self._texts.values() if self._is_in(text, scope) and text.is_within(since, None)]
        newest = sorted(texts, key=lambda text: (text.found.at, text.number))[-MAX_RECENT:]
        return _different(newest, MAX_RECENT)

    def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return texts that have no vector in this space, the newest first, each with its number."""
        texts = [text for text in self._texts.values() if self._is_in(text, scope) and space not in text.vectors]
        texts.sort(key=lambda text: (text.found.at, text.number), reverse=True)
        return tuple((text.number, text.found.text) for text in texts[: max(limit, 0)])

    def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep the vectors of these texts. Raises `InvalidInput`; then none is kept."""
        units = {number: unit_vector(vector) for number, vector in vectors.items()}
        for number in units.keys() & self._texts.keys():
            self._texts[number].vectors[space] = units[number]

    def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts whose vectors are nearest, the nearest first. Raises `InvalidInput`."""
        space, wanted = query.space, unit_vector(query.vector)
        texts = [
            text
            for text in self._texts.values()
            if self._is_in(text, query.scope)
            and text.is_within(query.since, query.until)
            and len(text.vectors.get(space, ())) == len(wanted)
        ]
        texts.sort(key=lambda text: sum(map(mul, text.vectors[space], wanted)), reverse=True)
        return _different(texts, query.limit)


def _different(texts: Iterable[ListedText], limit: int) -> tuple[FoundText, ...]:
    """Return the texts, those that a fork has in common with its original once."""
    found = {(text.found.at, text.found.role, text.found.text): text.found for text in reversed([*texts])}
    return tuple(islice(reversed(found.values()), max(0, min(limit, len(found)))))


class MemoryFiles:
    """The files to which conversations refer, for the port `Files`: their bytes in the order in which they were stored,
    and the marks under which each conversation keeps its own."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._data: dict[str, bytes] = {}
        self._marks: dict[str, dict[str, str]] = {}

    async def keep(self, conversation_id: str | None, sha256: str, data: bytes) -> str | None:
        """Store a file, unless it is stored already, and keep it for this conversation. Returns a mark if it is new
        there. Raises `UnknownConversation`."""
        self._store.check_open()
        if conversation_id is None:
            self._data.setdefault(sha256, data)
            return None
        self._store.found(conversation_id)
        self._data.setdefault(sha256, data)
        marks = self._marks.setdefault(conversation_id, {})
        is_new = sha256 not in marks
        marks[sha256] = mark = new_mark()
        return mark if is_new else None

    def keep_known(self, conversation_id: str, digests: Iterable[str]) -> None:
        """Keep those of these files that are stored for a conversation whose steps refer to them."""
        if known := {digest: "" for digest in digests if digest in self._data}:
            self._marks[conversation_id] = known

    async def take_back(self, conversation_id: str, sha256: str, mark: str) -> None:
        """Keep a file no longer, unless it was kept again since it got this mark."""
        self._store.check_open()
        marks = self._marks.get(conversation_id, {})
        if marks.get(sha256) == mark:
            del marks[sha256]
            self._drop_unused([sha256])

    async def read(
        self, conversation_id: str | None, sha256: str, start: int = 0, end: int | None = None
    ) -> bytes | None:
        """Return bytes of a file, if it is kept for this conversation or, without one, if it is stored."""
        self._store.check_open()
        if conversation_id is not None and sha256 not in self._marks.get(conversation_id, {}):
            return None
        data = self._data.get(sha256)
        return None if data is None else data[start:end]

    async def of(self, conversation_id: str) -> tuple[KeptFile, ...]:
        """Return the files that are kept for this conversation. Raises `UnknownConversation`."""
        self._store.found(conversation_id)
        marks = self._marks.get(conversation_id, {})
        kept = ((sha256, data) for sha256, data in self._data.items() if sha256 in marks)
        return tuple(KeptFile(sha256, len(data), marks[sha256]) for sha256, data in kept)

    def remove(self, conversation_id: str) -> None:
        """Keep nothing for a conversation any longer."""
        self._drop_unused(self._marks.pop(conversation_id, {}))

    def _drop_unused(self, digests: Iterable[str]) -> None:
        for digest in digests:
            if not any(digest in marks for marks in self._marks.values()):
                self._data.pop(digest, None)


class MemoryStore:
    """All conversations. They are gone when the process ends."""

    def __init__(self) -> None:
        self._conversations: dict[str, StoredConversation] = {}
        self.texts = Texts()
        self.files = MemoryFiles(self)
        self._claimed: set[str] = set()
        self._is_closed = False

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> MemoryLog:
        """Store a new conversation with its first step, a sub-agent only if its parent is stored."""
        if event.parent is not None:
            self.found(event.parent)
        row, head = encode(event, step, GENESIS)
        await self.write_records((ConversationRecord(conversation_id, row.at, head, (row,), event.owner),))
        return MemoryLog(self, conversation_id, self.found(conversation_id))

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Return the conversation as it was left."""
        conversation = self.found(conversation_id)
        log = MemoryLog(self, conversation_id, conversation)
        return LoadedConversation(log, decode_state(conversation.head), conversation.context)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Return the steps that follow the step `after`, up to and including `up_to` or the newest."""
        return self.found(conversation_id).read(after, up_to)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. Raises `UnknownConversation`."""
        del self._conversations[self.found(conversation_id).record.id]
        self.texts.remove(conversation_id)
        self.files.remove(conversation_id)

    # --- many conversations

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> tuple[Summary, ...]:
        """Return summaries, the conversation that moved last first."""
        self.check_open()
        newest = sorted(self._conversations.values(), key=lambda each: each.head.updated_at)[::-1]
        return wanted.page_of([each.summary for each in newest])

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """Return up to `limit` conversations with a scheduled wake-up, the earliest first."""
        self.check_open()
        summaries = (each.summary for each in self._conversations.values())
        wake_ups = [(each.id, each.wakes_at) for each in summaries if each.wakes_at is not None]
        return tuple(sorted(wake_ups, key=lambda wake_up: wake_up[1])[:limit])

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Return the ids of up to `limit` conversations that wait, each of them once."""
        self.check_open()
        waiting = [each for each in self._conversations.values() if each.waits and each.record.id not in self._claimed]
        waiting.sort(key=lambda each: (each.head.next_timer is None, each.head.next_timer, each.head.updated_at))
        claimed = tuple(each.record.id for each in waiting[:limit])
        self._claimed.update(claimed)
        return claimed

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Let these conversations be claimed again."""
        self.check_open()
        self._claimed.difference_update(conversation_ids)

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Return the deliveries of these conversations that are not acknowledged."""
        self.check_open()
        wanted = (self._conversations[each] for each in conversation_ids if each in self._conversations)
        return tuple(_undelivered(each.record.id, row) for each in wanted for row in each.deliveries())

    # --- texts

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords of the query, the best ones first."""
        return self.texts.search(query)

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first."""
        return self.texts.recent(scope, since)

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return texts that have no vector in this space, each with its number."""
        return self.texts.without_vectors(scope, space, limit)

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep the vectors of these texts."""
        self.texts.keep_vectors(space, vectors)

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts whose vectors are nearest, the nearest first."""
        return self.texts.nearest(query)

    # --- raw records

    async def ids(self, prefix: str = "") -> tuple[str, ...]:
        """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
        self.check_open()
        return tuple(each for each in self._conversations if each.startswith(prefix))

    async def read_record(self, conversation_id: str) -> ConversationRecord:
        """Return all rows of a conversation."""
        conversation = self.found(conversation_id)
        return conversation.record._replace(steps=tuple(conversation.steps), outbox=conversation.deliveries())

    async def write_records(self, records: Iterable[ConversationRecord]) -> None:
        """Store conversations, all of them or none. Raises `StoreConflict` if an id is taken."""
        self.check_open()
        new: dict[str, StoredConversation] = {}
        for record in records:
            if record.id in self._conversations or record.id in new:
                raise StoreConflict(f"There is already a conversation with the id {record.id}.")
            new[record.id] = StoredConversation.of(record)
        self._conversations.update(new)
        for conversation in new.values():
            self.files.keep_known(conversation.record.id, files_in(conversation.steps))
            for entry in conversation.read(0):
                self.texts.add(conversation.record.id, conversation.record.owner, entry)

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Store a conversation that was made from `source_id`, unless that one was deleted."""
        self.found(source_id)
        await self.write_records((record,))

    async def close(self) -> None:
        """Every other method raises `StoreError` from now on."""
        self._is_closed = True

    def check_open(self) -> None:
        """Raise `StoreError` once the store is closed."""
        if self._is_closed:
            raise StoreError("The store is closed.")

    def holds(self, conversation_id: str, conversation: StoredConversation) -> bool:
        """Whether this conversation is still stored under its id."""
        return self._conversations.get(conversation_id) is conversation

    def found(self, conversation_id: str) -> StoredConversation:
        """Return what is stored of a conversation. Raises `UnknownConversation`."""
        self.check_open()
        if conversation_id not in self._conversations:
            raise UnknownConversation(conversation_id)
        return self._conversations[conversation_id]


def _undelivered(conversation_id: str, row: OutboxRow) -> Undelivered:
    due = None if row.next_attempt is None else from_microseconds(row.next_attempt)
    return Undelivered(conversation_id, row.target, row.effect_id, row.seq, row.attempts, due, row.begun)


async def main() -> None:
    """Have a conversation that is stored in memory."""
    store = MemoryStore()
    async with Engine.open(store=store, model=ScriptedLlm([reply("For two, at 6:30 PM.")])) as engine:
        conversation = await engine.create(system="You book tables.")
        turn = await conversation.send("A table for two, tonight?")
        print(turn.reply)
    for summary in await store.list():
        record = await store.read_record(summary.id)
        print(f"In {summary.state} after {len(record.steps)} steps.")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
