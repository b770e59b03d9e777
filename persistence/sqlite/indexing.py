"""Makes the index of what was said follow the logs, without a share in any commit of a step.

The index is built when it is first asked for: a database whose texts nobody searches has none, and pays nothing. From
then on it follows: the writer notes which conversations have moved, and its thread indexes them in its idle moments. A
search first has the conversations of its own scope indexed, so it finds what was stored before it began. Each piece of
work is one short transaction, so a step never waits long behind it.

How far the index has followed a log stands beside it, in `text_positions`, and is written in the same transaction. A
conversation whose row is deleted takes its position with it, so another one under the same key begins anew. The doctor
compares the index with the logs that it follows.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator

from sqlalchemy import Connection

from ...states.values.acts import MemoryScope
from ..records import EventRow, RebuildIndex, StorageFault
from ..sql import queries
from ..sql.texts import Budget, LogPart, hides_as_the_log, keys_of, number_of
from . import file, search
from .file import driver_of, roll_back
from .search import NAME, TEXT, TextRow, indexed_words, source_of

_STANDS = """
SELECT conversations.seq, owner, coalesce(text_positions.seq, 0)
FROM conversations LEFT JOIN text_positions ON conversation = key WHERE key = ?
"""
_MOVE = "INSERT INTO text_positions (conversation, seq) VALUES (?, ?) ON CONFLICT DO UPDATE SET seq = excluded.seq"


def _index_conversation(connection: Connection, key: int, budget: Budget) -> bool:
    """Index the next steps of a conversation. Returns whether the index has now reached the end of the log."""
    driver = driver_of(connection)
    found = driver.execute(_STANDS, (key,)).fetchone()
    if found is None or found[2] >= found[0]:
        return True
    head, owner, position = found
    log = LogPart(driver, key, position)
    rows = log.read(budget)
    last = rows[-1].seq if rows and budget.is_spent else head
    is_end = bool(last >= head)
    known = search.known_rows(driver, key, position + 1, queries.LARGEST if is_end else last)
    search.add(driver, _rows(log, rows, key, number_of(owner, key)), known)
    driver.executemany("DELETE FROM texts WHERE id = ?", [(row.number,) for row in known.values()])
    log.hide(rows)
    driver.execute(_MOVE, (key, last))
    return is_end


def _texts_of_log(connection: Connection, key: int, owner: str | None, position: int) -> Iterator[TextRow]:
    """The texts of a conversation up to the step `position`, as its log says today."""
    log = LogPart(driver_of(connection), key, 0)
    return _rows(log, queries.steps(driver_of(connection), key, 1, position), key, number_of(owner, key))


def _rows(log: LogPart, steps: Iterable[EventRow], key: int, scope: int) -> Iterator[TextRow]:
    """The texts that these steps of a log add, each with the place where it stands."""
    for seq, part, said in log.texts(steps):
        event = None if said.source is None else log.event(said.source.seq)
        yield TextRow(key, scope, seq, part, said, source_of(said, event))


_POSITIONS = """
SELECT key, owner, text_positions.seq FROM conversations JOIN text_positions ON conversation = key
"""
_TEXTS = f"SELECT id, {TEXT} FROM texts WHERE conversation = ?"
_INDEXED = f"SELECT id, scope, {TEXT} FROM texts WHERE conversation = ? AND seq <= ?"
_VOCABULARY = "text_index_vocabulary"
_OPEN_VOCABULARY = f"CREATE VIRTUAL TABLE temp.{_VOCABULARY} USING fts5vocab(main, {NAME}, 'instance')"

_MASK = 2**64 - 1

MISSING = "The index of what was said is missing."
_UNREADABLE = "The index of what was said cannot be read."
_DIFFERENT = "The index of what was said does not agree with the logs."


def faults(connection: Connection) -> tuple[StorageFault, ...]:
    """Return what is wrong with the index: at most one sentence, since it can only be built again entirely."""
    driver = driver_of(connection)
    positions = driver.execute(_POSITIONS).fetchall()
    if not positions:
        return ()
    if not search.exists(driver):
        return (StorageFault(MISSING, RebuildIndex()),)
    try:
        agrees = all(_rows_agree(connection, *position) for position in positions) and _words_agree(driver, positions)
    except sqlite3.DatabaseError:
        roll_back(driver)  # FTS5 refuses to commit behind such an error, although nothing was written
        return (StorageFault(_UNREADABLE, RebuildIndex()),)
    return () if agrees else (StorageFault(_DIFFERENT, RebuildIndex()),)


def _rows_agree(connection: Connection, key: int, owner: str | None, position: int) -> bool:
    """Whether the rows of `texts` of a conversation follow from its log, and refer to the right texts."""
    driver = driver_of(connection)
    known = search.known_rows(driver, key, 1, position)
    texts = dict(driver.execute(_TEXTS, (key,)))

    def is_stored(row: TextRow) -> bool:
        stored = known.pop((row.seq, row.part), None)
        return stored is not None and stored.columns == row.columns and texts[stored.number] == row.said.text

    are_stored = all(is_stored(row) for row in _texts_of_log(connection, key, owner, position)) and not known
    return are_stored and hides_as_the_log(driver, key, position)


def _words_agree(driver: sqlite3.Connection, positions: list[tuple[int, str | None, int]]) -> bool:
    """Whether the index holds each word of each text at its offset, and nothing else."""
    expected: dict[int, int] = {}
    for key, _, position in positions:
        for number, scope, text in driver.execute(_INDEXED, (key, position)):
            words = enumerate(indexed_words(scope, text).split())
            expected[number] = sum(hash((word, offset)) for offset, word in words) & _MASK
    found: dict[int, int] = {}
    for word, number, offset in _instances(driver):
        found[number] = (found.get(number, 0) + hash((word, offset))) & _MASK
    return {number: words for number, words in expected.items() if words} == found


def _instances(driver: sqlite3.Connection) -> Iterator[tuple[str, int, int]]:
    """Each word of the index, with the number of its text and its offset in it."""
    driver.execute(_OPEN_VOCABULARY)
    try:
        yield from driver.execute(f'SELECT term, doc, "offset" FROM temp.{_VOCABULARY}')
    finally:
        driver.execute(f"DROP TABLE temp.{_VOCABULARY}")


IDLE = 0.5
"""Seconds without work after which the writing thread indexes what has moved. Chosen so that no turn that is under way
waits for it."""

BATCH = Budget(steps=400, characters=200_000)
"""What one transaction reads. Chosen so that it takes about 20 ms."""

_BEHIND = """
SELECT key FROM conversations LEFT JOIN text_positions ON conversation = key
WHERE conversations.seq > coalesce(text_positions.seq, 0)
"""


class Follower:
    """Which conversations are ahead of the index. Only the holder of the writer's lock uses it, apart from
    `is_current`."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._behind: set[int] | None = None
        """The keys of conversations that have moved; None as long as nobody has searched."""
        self._due = 0.0

    def __bool__(self) -> bool:
        """Whether there is something to index in an idle moment."""
        return bool(self._behind)

    @property
    def is_current(self) -> bool:
        """Whether all steps are indexed whose callers know that they are stored. Any thread may ask."""
        return self._behind is not None and not self._behind

    @property
    def remaining(self) -> float:
        """Seconds until the moment counts as idle; zero or less if it does."""
        return self._due - self._monotonic()

    def postpone(self) -> None:
        """Note that the thread has other work."""
        if self._behind:
            self._due = self._monotonic() + IDLE

    def note(self, key: int) -> None:
        """Note that a conversation may have moved."""
        if self._behind is not None:
            self._behind.add(key)

    def forget(self) -> None:
        """Note that the index was dropped: whoever searches next has it built again."""
        self._behind = None

    def follow(self, connection: Connection, scope: MemoryScope | None = None) -> bool:
        """Index some steps in a transaction of its own: of the conversations of a scope, or of all. Returns whether
        there are more. Raises what the driver raises; then the index is as it was, unless it was damaged: such an index
        is dropped, and whoever searches next has it built again."""
        try:
            return self._follow(connection, scope)
        except sqlite3.DatabaseError as error:
            driver = driver_of(connection)
            if search.is_torn(driver, error):
                with file.writing(driver):
                    search.drop(driver)
                self.forget()
            raise

    def _follow(self, connection: Connection, scope: MemoryScope | None) -> bool:
        if self.is_current:
            return False
        with file.writing(driver_of(connection)):
            behind = self._find_all(connection) if self._behind is None else self._behind
            wanted = behind if scope is None else behind & keys_of(driver_of(connection), scope)
            finished, more = _index(connection, wanted)
        self._behind = behind - finished
        return more

    def _find_all(self, connection: Connection) -> set[int]:
        driver = driver_of(connection)
        search.prepare(driver)
        return {key for (key,) in driver.execute(_BEHIND)}


def _index(connection: Connection, keys: set[int]) -> tuple[set[int], bool]:
    """Index conversations until the budget of a transaction is spent. Returns those that are finished, and whether
    there is more to do."""
    budget, finished = Budget(BATCH.steps, BATCH.characters), set[int]()
    for key in sorted(keys):
        if budget.is_spent:
            break
        if _index_conversation(connection, key, budget):
            finished.add(key)
    return finished, finished != keys
