"""The ports of a store: what an engine, and the maintenance of a database, need from it.

`SqliteStore` implements them, and `PostgresStore`, which several processes share. A store of another kind is tested by
`turnwise.testing.store_contract`, which turns these docstrings into tests. The errors are those of
`persistence.errors`, and `UnknownConversation`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..states.context import Context
from ..states.events import Event, Opened
from ..states.states import AnyState
from ..states.step import Step
from ..states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from .records import ConversationRecord, KeptFile, Repair, StorageFault, StoredEntry, Undelivered
from .summaries import EVERYTHING, ConversationFilter, Summary


class Log(Protocol):
    """The log of one conversation, open at its end.

    An engine calls it from a task of its own, in which timeouts work.
    """

    @property
    def seq(self) -> int:
        """The number of the newest step that this log knows to be stored."""
        ...

    @property
    def chain(self) -> bytes:
        """The link of that step, as `StoredEntry.chain` has it. The keys by which the outside recognises effects are
        made from it, so two logs that differ anywhere before must not have the same."""
        ...

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step and its deliveries in one transaction. The step is durable when this returns.

        `targets` are the deliveries: the id of the effect, and the name of a channel or the id of an agent, which may
        be any text. Each stays in the outbox until it is acknowledged. A delivery that is given twice is one delivery.

        Raises `StoreConflict` if the log has moved on (the step does not follow the newest one), if the conversation
        was deleted, or if a request or an answer with the same id is in the log already; and `StorageFailed` if the
        step could not be stored. Nothing has changed then, and the same step may be appended again: if this log's
        failed attempt did store it after all, the second call finds it and succeeds. An equal step that another log
        has stored is a conflict, so that only one of two writers performs its effects.

        A caller that is cancelled stops waiting; the step is stored all the same.
        """
        ...

    async def request(self, event_id: str) -> StoredEntry | None:
        """Return the step that took the request with this id, or None. The cost does not grow with the log.

        Raises `UnknownConversation` if the conversation was deleted: whether it took the request is not known then.
        """
        ...

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """Return the steps that others have stored behind `seq`, and move on to the newest of them: what to do after a
        `StoreConflict`.

        Raises `UnknownConversation` if the conversation was deleted, and `Damaged` if these steps do not follow the
        one at `seq`.
        """
        ...

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Remove a delivery that has arrived from the outbox. Returns at once; it is stored soon, at the latest when
        the store is closed. Without effect if there is no such delivery, or if the conversation was deleted."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that a delivery has failed `attempts` times and when the next attempt is due. Stored like
        `acknowledge`, and without effect where that has none.

        In a store that several processes share, another custody of the conversation may have begun than the newest one
        that this process has had. Then only what `begin` has counted is counted from 0 again, if this log has called it
        for this delivery: the process has not died in that attempt."""
        ...

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at a delivery which an earlier process has left: it is the `begun`-th such
        attempt in a row. If the process dies in it, this is what the next one reads; `postpone` counts from 0 again.

        Returns when it is stored, behind all that was noted before. Without effect where `acknowledge` has none.
        Raises `StorageFailed`, and `CustodyLost` where the custody of this process is over."""
        ...


@dataclass(frozen=True)
class LoadedConversation:
    """What a conversation needs for its next step: its log, open at the end, the state that it rests in, and its
    context. The steps so far are read with `Store.entries`."""

    log: Log
    state: AnyState
    context: Context


class Files(Protocol):
    """The files of all conversations, each stored once under the SHA-256 digest of its bytes, in hexadecimal digits.

    A conversation may refer only to files that are kept for it. A file is kept from `Files.keep` on, which comes before
    the step that refers to it, until the conversation is deleted; a file that is kept for no conversation any more is
    deleted with the last one. A copy that a store makes, or a record that it is given, keeps what its steps refer to.
    """

    async def keep(self, conversation_id: str | None, sha256: str, data: bytes) -> str | None:
        """Store a file, unless it is stored already, and keep it for this conversation. Durable when this returns.

        Without a conversation the file is only stored, for a conversation that is stored next; `doctor` removes it if
        none is. Returns a mark for `take_back`, which `new_mark` makes, if the file was not kept for the conversation
        before, else None. Raises `UnknownConversation` and `StorageFailed`."""
        ...

    async def take_back(self, conversation_id: str, sha256: str, mark: str) -> None:
        """Keep a file no longer, because no step refers to it: the request that brought it was refused. `mark` is what
        `keep` has returned. Without effect if the file was kept for this conversation again since then."""
        ...

    async def read(
        self, conversation_id: str | None, sha256: str, start: int = 0, end: int | None = None
    ) -> bytes | None:
        """Return the bytes of a file from `start` up to `end`, or to its end; None if no such file is kept for this
        conversation, or, without one, if none is stored. The cost grows with what is returned, up to a constant. Raises
        `StorageFailed`."""
        ...

    async def of(self, conversation_id: str) -> tuple[KeptFile, ...]:
        """Return the files that are kept for this conversation, in the order in which they were stored. Raises
        `UnknownConversation`."""
        ...


class FileStore(Protocol):
    """Where the bytes of files are, if they are not in the database: a folder, or the object storage of a cloud.

    Each file has a name of up to 100 lower-case letters, digits and `.`, which is never given twice, and what is stored
    under it never changes. Methods raise `StorageFailed` where the storage fails.
    """

    async def write(self, name: str, data: bytes) -> None:
        """Store a file under a new name. It is durable as a whole when this returns; if it fails, nobody asks for it
        again."""
        ...

    async def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` up to `end`. Raises `StorageFailed` if there is no such file."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a file. Without effect if there is none of this name."""
        ...

    async def names(self) -> tuple[str, ...]:
        """Return the names of all files."""
        ...


class Store(Protocol):
    """All conversations of one storage. Whoever opened it must `close` it."""

    @property
    def files(self) -> Files:
        """The files that these conversations refer to."""
        ...

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        """Store a new conversation with its first step. It belongs to the `owner` of the event. Raises `StoreConflict`
        if the id is taken.

        A sub-agent is stored only if the `parent` of the event is. Raises `UnknownConversation` if that one was deleted
        in the meantime.
        """
        ...

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Return the conversation as it was left. The cost does not grow with the log.

        Raises `UnknownConversation`, and `Damaged` if what is read here is not what was stored. Damage further back in
        the log is found by `entries`.
        """
        ...

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Return the steps that follow the step `after`, in order, up to and including the step `up_to` or the newest.
        Whoever follows a log asks for the steps after the last one seen.

        Raises `UnknownConversation`, and `Damaged` if one of these steps is missing or is not what was stored.
        """
        ...

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation and everything that belongs to it. Raises `UnknownConversation`."""
        ...

    # --- many conversations

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> tuple[Summary, ...]:
        """Return summaries, the conversation that moved last first.

        What is selected by follows from the log as `Details` says, apart from the state.

        A page may begin at `Summary.cursor` of a conversation, a place that stays although that one is deleted or moves
        (`place_of` reads it); conversations that moved at the very same moment may be listed twice then. It may also
        begin behind the id of a conversation. If that one has moved in the meantime, the page begins at its new place,
        so some conversations are listed twice; if it is not stored, `UnknownConversation` is raised. Another one that
        moves between two pages comes before them, and is not on those that follow.
        """
        ...

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """Return the ids of up to `limit` conversations that have a scheduled wake-up, each with its moment, which is
        `book.wake` of its state; the earliest first. The cost does not grow with the number of conversations, so an
        engine can ask for the next few after each wake-up."""
        ...

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Return the ids of up to `limit` conversations that wait for work, for a timer or for a delivery, and that
        this store has not returned here before, or that were released since. The one whose timer is due first comes
        first. Empty when there are no more.

        A store does not know which conversations an engine began after its last claim. So an engine that is opened over
        a store while another engine runs turns over it would take these over, too: open engines that share a store
        before they work, or have `claim` return each of them its own share."""
        ...

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Let these conversations be claimed again: whoever claimed them does not drive them any more. Ids that are
        not claimed are passed over."""
        ...

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Return the deliveries of these conversations that are not acknowledged; for each conversation and target in
        the order in which they were appended."""
        ...

    # --- raw records, for maintenance

    async def ids(self, prefix: str = "") -> tuple[str, ...]:
        """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
        ...

    async def read_record(self, conversation_id: str) -> ConversationRecord:
        """Return the rows of a conversation as they are stored, damaged or not. Raises `UnknownConversation`."""
        ...

    async def write_records(self, records: Iterable[ConversationRecord]) -> None:
        """Store conversations with all their steps, all of them or none. Raises `StoreConflict` if an id is taken."""
        ...

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Store `record`, which was made from the conversation `source_id`, unless that one has been deleted in the
        meantime. Raises `UnknownConversation` and `StoreConflict`."""
        ...

    async def close(self) -> None:
        """Finish what was handed in, and release the storage. A second call does nothing; every other method raises
        `StoreError` afterwards."""
        ...


@runtime_checkable
class RepairableStorage(Protocol):
    """What a store may offer besides, if its storage can be damaged and repaired. The doctor asks for it."""

    async def examine_storage(self) -> tuple[StorageFault, ...]:
        """Return what is wrong with the storage as a whole, apart from the conversations in it."""
        ...

    async def repair(self, repairs: Iterable[Repair]) -> None:
        """Make these repairs, all of them or none. Raises `StorageFailed`."""
        ...


@runtime_checkable
class DamageableStorage(Protocol):
    """What a store may offer besides, if damage of its storage can hide conversations. Whatever goes through all
    conversations asks for it, so that damage of one stops nobody else."""

    async def survey(self) -> tuple[tuple[str, ...], tuple[StorageFault, ...]]:
        """Return the ids of all conversations that can be found, in the order in which they were created, and what is
        wrong with those that are listed and cannot be found, or whose id is not certain. Reads as much as it can."""
        ...


async def find_all(store: Store) -> tuple[tuple[str, ...], tuple[StorageFault, ...]]:
    """Return the ids of all conversations that can be found, in the order in which they were created, and what is wrong
    with the others. Raises `StorageFailed` if the store cannot be read at all."""
    return await store.survey() if isinstance(store, DamageableStorage) else (await store.ids(), ())


@runtime_checkable
class SearchableStore(Protocol):
    """What a store may offer besides, so that what was said can be found again. An engine needs it for the rules
    `recall` and `Recent`.

    The texts that may be found are those of `states.projections.said_texts`. A step counts from the moment at which
    `append` has returned, so whatever index a store has follows the log. Nothing outside the scope is ever returned: of
    a scope with an owner, what conversations of another owner hold; of a scope without one, what other conversations
    hold; what this conversation holds from the scope's turn on; and what was said in a turn that is not on the branch
    of its conversation that is under way, as `Branches.shows` tells. A conversation that is not stored has no texts.
    Moments must have a time zone. A text that a fork has in common with its original is returned once.

    The methods raise `StorageFailed` and `StoreError` like all others.
    """

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold at least one of the keywords, the best ones first, at most `query.limit`.

        Keywords are plain text: no character has a special meaning, and what holds neither letters nor digits finds
        nothing. Case and accents do not count. A keyword of several words finds the texts that hold all of them, and a
        word finds words that begin with it. Scripts without spaces between words are searched character by character.
        Of very many or very long keywords only the beginning counts. The cost grows with the number of the owner's
        texts that hold a keyword, up to a bound, and not with what else is stored.
        """
        ...

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first; those of one moment in the order in which
        they were stored. If there are too many, the newest of them are returned. The cost grows with what is returned.
        """
        ...

    # --- vectors: what makes them is the application's

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return up to `limit` texts that have no vector in this space, the newest first, each with a number for
        `keep_vectors`. A space is the name of what makes the vectors. No other text ever has the same number."""
        ...

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store the vectors of these texts, in place of those that they have in this space. A text that was deleted in
        the meantime is passed over. They are deleted with the conversation.

        Raises `InvalidInput` if a vector is empty, or holds anything but finite numbers; nothing is stored then.
        """
        ...

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts whose vectors are nearest, the nearest first. Vectors of another number of dimensions are
        passed over.

        The cost may grow with the number of the owner's vectors. Raises `InvalidInput` like `keep_vectors`.
        """
        ...


# --- stores that several processes share


@dataclass(frozen=True)
class Taken:
    """The custody that a process has of one conversation.

    `fence` grows with each custody of the conversation, and `holder` names this one; no other custody has the same
    name. `seq` is the newest step. `was_left` says that an earlier holder has not let go of it: its process died or
    stands still, and what it had begun is to be reported. `has_deliveries` says that there is something in the outbox.
    """

    conversation_id: str
    fence: int
    holder: str
    seq: int
    was_left: bool
    has_deliveries: bool


class Untried(NamedTuple):
    """An effect in the outbox that was not sent to this target yet, not even once."""

    conversation_id: str
    effect_id: int
    target: str


@dataclass(frozen=True)
class StepStored:
    """Another process has stored the step `seq` of a conversation."""

    conversation_id: str
    seq: int


@dataclass(frozen=True)
class ConversationGone:
    """Another process has deleted a conversation."""

    conversation_id: str


@dataclass(frozen=True)
class LiveShown:
    """Another process has shown a live update of a conversation, such as a token; see `EffectContext.progress`.

    The text of a token stands at the `place` in the whole text that is streamed of its kind. So one who missed a token
    shows none of those behind it, until the text is sent from its beginning once more."""

    conversation_id: str
    effect_id: int
    kind: str
    data: Mapping[str, Any]
    place: int = 0


@dataclass(frozen=True)
class NoticesMissed:
    """Notices may have been missed, because the connection was lost: whoever follows conversations reads what was
    stored in the meantime."""


Notice = StepStored | ConversationGone | LiveShown | NoticesMissed
"""What a process hears of the others."""


class Jobs(Protocol):
    """Finds a process that looks after a conversation which has work: what an existing job engine must do.

    The log decides what is done; a job only says that somebody must drive a conversation. So a job too many finds
    nothing to do, and one may be lost only with the transaction that it belongs to.
    """

    async def call(self, conversation_id: str) -> None:
        """Have some process look after the conversation, soon. Without effect while such a job waits already. Raises
        `StorageFailed`."""
        ...

    async def serve(self, look_after: Callable[[str], Awaitable[None]], *, slots: int, lease: float) -> None:
        """Call `look_after` with the id of each conversation that has work, of at most `slots` at once and never of one
        conversation twice at a time in all processes, until this is cancelled. Then wait until those that were begun
        have returned, which the caller sees to.

        A process whose heart has not beaten for `lease` seconds counts as dead, and what it looked after is called for
        again. Goes on by itself when the database was away. Raises `StoreError` for what will not pass.
        """
        ...


@dataclass(frozen=True)
class JobsHealth:
    """How the jobs of a database fare: `waiting` and `running` ones, and for how many seconds the first that waits has
    waited. `stalled` ones run on workers that are dead, and are about to be called for again. `workers` are alive."""

    waiting: int
    running: int
    stalled: int
    workers: int
    longest_wait: float | None


@runtime_checkable
class ObservableJobs(Protocol):
    """What `Jobs` may offer besides, for those who watch them."""

    async def health(self, *, lease: float) -> JobsHealth:
        """How the jobs fare. A worker whose heart has not beaten for `lease` seconds counts as dead. Raises
        `StoreError`."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """What a store offers besides, if several processes share it. Its `claim` returns nothing: jobs say what waits.

    Any process may append to any log. The store calls for a process that looks after a conversation in the transaction
    of each step which begins work there, unless the process that stores it has the custody; and at the moment at which
    a timer, a scheduled wake-up or a delivery is due, or up to three seconds before.
    """

    @property
    def jobs(self) -> Jobs:
        """What finds a process for the conversations that have work."""
        ...

    async def take(self, conversation_id: str, holder: str) -> Taken | None:
        """Take the custody of a conversation, whoever has it; None if there is no such conversation. May be called
        again with the same `holder` when it has failed.

        Until `let_go`, appends of this store to its log are compared with the fence, and raise `CustodyLost` once
        another custody has begun. Raises `StorageFailed`.
        """
        ...

    async def let_go(self, taken: Taken, *, at_rest: bool) -> None:
        """Give the custody up. If the conversation is `at_rest`, nothing was left in the middle, and the next custody
        does not find it `was_left`; what is left in its outbox is called for when its next attempt is due, unless that
        is so soon that it would be called for at once: then this process cannot send it. Otherwise it is called for at
        once. Without effect on the conversation if another custody has begun. Raises `StorageFailed`, and may be called
        again then; appends are not compared any more in any case."""
        ...

    async def confirm(self, taken: Taken) -> bool:
        """Whether this is still the custody of the conversation. Raises `StorageFailed`."""
        ...

    async def find_moved(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """Return the newest step of those of these conversations that are not at the step which is `known` of them; 0
        for one that is not stored any more. One look at the store, however many they are: what finds the steps of which
        no notice was heard. Raises `StorageFailed`."""
        ...

    async def untried(self) -> Set[Untried]:
        """Return what is in the outboxes of all conversations that some process is about to try for the first time: it
        looks after the conversation, or a job says that one must. What waits behind an effect that was tried in vain
        counts as tried. Receipts of this store so far are stored before. Raises `StorageFailed`."""
        ...

    def show(self, shown: LiveShown) -> None:
        """Tell the other processes of a live update. Returns at once. They may not hear of it; it is not stored."""
        ...

    def notices(self) -> AsyncGenerator[Notice, None]:
        """Listen to what other processes store, delete and show, until the iterator is closed. The first notice is
        `NoticesMissed`, once it listens. What this store has done itself is not heard. Goes on by itself when the
        connection was lost; while it cannot listen, `NoticesMissed` comes every second.

        A step is visible to whoever hears of it. That a notice is heard is not promised: a process may die between a
        step and its notice, so whoever must not miss a step looks with `find_moved` now and then."""
        ...
