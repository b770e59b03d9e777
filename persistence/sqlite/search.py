"""Finds what was said, by keywords, by meaning or by the moment, with the full-text index of SQLite.

The index holds words, and no texts: a row of `texts` refers to the text in the step that brought it, by the number of
that step and a path in its JSON. Only a text that stands in no step as it was said is written out. FTS5 removes a row
from an index without texts if it is told which words the row had. So the words are computed from the text again; a
checksum shows whether it is still the same text. If it is not, because the file is damaged, the entire index is
dropped, and is built again when it is needed.

An expression that searches the index consists of words only, each with the number of its group before it
(`sql.texts`), so no keyword can break it.

Each function works within the transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Literal, NamedTuple
from zlib import crc32

from ...states.dialogue import SaidText
from ...states.errors import StoreError
from ...states.events import AgentMessage, Event, LlmResponse, LlmStopped, ToolComplete, UserMessage
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery, with_indexes
from ..codec import from_microseconds, to_microseconds
from ..sql.texts import ALWAYS, IS_SHOWN, MAX_FOUND, Group, Window, group_of, scoped
from ..vectors import BATCH, nearest_of
from ..words import MAX_RECENT, Phrase, keywords_of, words_of

NAME = "text_index_2"
"""The name of the index. The number is that of the rules by which texts are chosen and split into words; an index with
another number is dropped."""

TEXT = """coalesce(texts.text, (
    SELECT CASE WHEN json_valid(payload) THEN json_extract(payload, texts.path) END
    FROM events WHERE events.conversation = texts.conversation AND events.seq = texts.source
))"""
"""The SQL of the text of a row of `texts`. NULL if damage has made the step unreadable."""

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT)
"""The codes of errors by which FTS5 reports damage: rows that it cannot read, and rows that it meant to be the first to
write."""

_PARTS = 4
"""How many tables FTS5 keeps an index without texts in."""

_CREATE = f"CREATE VIRTUAL TABLE {NAME} USING fts5(words, content='', tokenize='ascii')"
_INDEXES = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE text!_index!_%' ESCAPE '!'"
_COLUMNS = "conversation, seq, part, scope, at, turn, by_user, source, path, text, checksum"
_ADD_TEXT = f"INSERT INTO texts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KNOWN = f"SELECT id, {_COLUMNS} FROM texts WHERE conversation = ? AND seq BETWEEN ? AND ?"
_ADD_WORDS = f"INSERT INTO {NAME} (rowid, words) VALUES (?, ?)"
_REMOVE_WORDS = f"INSERT INTO {NAME} ({NAME}, rowid, words) VALUES ('delete', ?, ?)"
_INDEXED = f"""
SELECT id, scope, {TEXT}, checksum FROM texts JOIN text_positions USING (conversation)
WHERE texts.conversation = ? AND texts.seq <= text_positions.seq
"""
_SOME = f"""
SELECT id, scope, {TEXT}, checksum, texts.seq <= coalesce(text_positions.seq, 0)
FROM texts LEFT JOIN text_positions USING (conversation) WHERE texts.conversation = ? LIMIT ?
"""
_MERGED = 2
"""The least number of rows that FTS5 changes when it merges something."""
_POSITIONED = "SELECT key FROM conversations JOIN text_positions ON conversation = key WHERE id = ?"


class Source(NamedTuple):
    """Where a text stands: in the JSON of the event of the step `seq`, at `path`."""

    seq: int
    path: str


class TextRow(NamedTuple):
    """A text on its way into the index: its conversation, the number of that one's group, the step that adds it, and
    its position among the texts of this step."""

    conversation: int
    scope: int
    seq: int
    part: int
    said: SaidText
    source: Source | None

    @property
    def columns(self) -> tuple[object, ...]:
        """The row of `texts`, without its number."""
        said = self.said
        reference = (None, None, said.text) if self.source is None else (*self.source, None)
        moment = (to_microseconds(said.at), said.turn, int(said.role == "user"))
        return (self.conversation, self.seq, self.part, self.scope, *moment, *reference, _checksum_of(said.text))


class KnownRow(NamedTuple):
    """A row of `texts`: its number, and the rest."""

    number: int
    columns: tuple[object, ...]


class TextChanged(Exception):
    """A text is not the one that was indexed, so the index cannot forget its words."""


def exists(driver: sqlite3.Connection) -> bool:
    """Whether there is an index of these rules."""
    return (NAME,) in driver.execute(_INDEXES).fetchall()


def is_torn(driver: sqlite3.Connection, error: sqlite3.Error) -> bool:
    """Whether an error comes from an index that is damaged, or of which a part is missing."""
    code = getattr(error, "sqlite_errorcode", 0)  # a driver other than CPython's may not tell
    parts = driver.execute("SELECT count(*) FROM sqlite_master WHERE name GLOB ?", (f"{NAME}_*",)).fetchone()[0]
    return code & 0xFF in _DAMAGE or not exists(driver) or parts < _PARTS


def prepare(driver: sqlite3.Connection) -> None:
    """Create the index if there is none, and drop one that was made by other rules. Raises `StoreError` if this SQLite
    has no full-text search."""
    if exists(driver):
        return
    drop(driver)
    try:
        driver.execute(_CREATE)
    except sqlite3.OperationalError as error:
        if "no such module" not in str(error):
            raise
        raise StoreError("What was said cannot be searched: this SQLite was built without FTS5.") from error


def drop(driver: sqlite3.Connection) -> None:
    """Forget all words, and what was indexed. The rows of `texts` and their vectors stay, and are used again, apart
    from those that belong to no conversation."""
    for (name,) in driver.execute(_INDEXES).fetchall():
        try:
            driver.execute(f"DROP TABLE {name}")
        except sqlite3.DatabaseError:
            _drop_torn(driver, name)
    driver.execute("DELETE FROM text_positions")
    driver.execute("DELETE FROM hidden_turns")
    driver.execute("DELETE FROM texts WHERE conversation NOT IN (SELECT key FROM conversations)")


def _drop_torn(driver: sqlite3.Connection, name: str) -> None:
    """Remove an index that FTS5 cannot open, because parts of it are missing: its tables one by one, then its name."""
    for (part,) in driver.execute("SELECT name FROM sqlite_master WHERE name GLOB ?", (f"{name}_*",)).fetchall():
        driver.execute(f"DROP TABLE {part}")
    driver.execute("PRAGMA writable_schema = ON")
    driver.execute("DELETE FROM sqlite_master WHERE name = ?", (name,))
    driver.execute("PRAGMA writable_schema = RESET")


def known_rows(driver: sqlite3.Connection, key: int, first: int, last: int) -> dict[tuple[int, int], KnownRow]:
    """Return the texts of a conversation that are stored for these steps, by step and part."""
    rows = driver.execute(_KNOWN, (key, first, last))
    return {(seq, part): KnownRow(number, (key, seq, part, *rest)) for number, key, seq, part, *rest in rows}


def add(driver: sqlite3.Connection, rows: Iterable[TextRow], known: dict[tuple[int, int], KnownRow]) -> None:
    """Add texts. `known` are the rows of `texts` that stand there already, by step and part; those that are used again
    are removed from it."""
    for row in rows:
        stored = known.get((row.seq, row.part))
        if stored is not None and stored.columns == row.columns:
            number = stored.number
            del known[row.seq, row.part]
        else:
            number = driver.execute(_ADD_TEXT, row.columns).lastrowid or 0
        driver.execute(_ADD_WORDS, (number, indexed_words(row.scope, row.said.text)))


def remove(driver: sqlite3.Connection, conversation_id: str) -> bool:
    """Forget the words of a conversation, so that no trace of them is left in the index. This takes as long as reading
    the index. Returns False if that was not possible and the entire index was dropped instead. The caller has the texts
    indexed again.
    """
    found = driver.execute(_POSITIONED, (conversation_id,)).fetchone()
    if found is None:
        return True
    try:
        for row in driver.execute(_INDEXED, found).fetchall():
            _remove_words(driver, *row)
        # Until they are merged, FTS5 only notes beside the words of older rows that these are gone.
        driver.execute(f"INSERT INTO {NAME} ({NAME}) VALUES ('optimize')")
        forget_position(driver, found[0])
    except (TextChanged, sqlite3.DatabaseError):
        drop(driver)
        return False
    return True


def remove_some(driver: sqlite3.Connection, key: int, limit: int) -> bool:
    """Forget up to `limit` texts of a conversation, and their words. Returns whether there may be more. The words are
    left in the index, noted as gone, until it is merged. Raises `TextChanged` and the driver's errors if the index
    cannot forget them."""
    rows = driver.execute(_SOME, (key, limit)).fetchall()
    has_index = exists(driver)
    for number, scope, text, checksum, is_indexed in rows:
        if is_indexed and has_index:
            _remove_words(driver, number, scope, text, checksum)
        driver.execute("DELETE FROM texts WHERE id = ?", (number,))
    if not rows:
        forget_position(driver, key)
    return bool(rows)


def forget_position(driver: sqlite3.Connection, key: int) -> None:
    """Note that nothing is indexed of a conversation."""
    for table in ("text_positions", "hidden_turns"):
        driver.execute(f"DELETE FROM {table} WHERE conversation = ?", (key,))


def _remove_words(driver: sqlite3.Connection, number: int, scope: int, text: object, checksum: int) -> None:
    if type(text) is not str or _checksum_of(text) != checksum:
        raise TextChanged
    driver.execute(_REMOVE_WORDS, (number, indexed_words(scope, text)))


def merge_some(driver: sqlite3.Connection, pages: int) -> bool:
    """Merge about so many pages of the index; a negative number begins to merge all of its parts into one. Returns
    whether there is more to merge, as FTS5 tells it: by the number of rows that it has changed."""
    before = driver.total_changes
    driver.execute(f"INSERT INTO {NAME} ({NAME}, rank) VALUES ('merge', ?)", (pages,))
    return driver.total_changes - before >= _MERGED


def _checksum_of(text: str) -> int:
    """Return a number by which a changed text is recognised. `Pure.`"""
    return crc32(text.encode(errors="surrogateescape"))


def source_of(said: SaidText, event: Event | None) -> Source | None:
    """Return where a text stands in the log; None if it must be written out. `event` is the one that `said.source`
    refers to. `Pure.`"""
    if said.source is None or event is None or "\0" in said.text:  # SQLite reads JSON up to the character NUL only
        return None
    match event:
        case UserMessage() | AgentMessage():
            return Source(said.source.seq, "$.text")
        case LlmResponse() | LlmStopped() if said.source.index == 0:
            return Source(said.source.seq, "$.content")
        case ToolComplete(result=result):
            acts = {index: number for number, (_, index) in enumerate(with_indexes(result.acts))}
            number = acts.get(said.source.index)
            is_speech = number is not None and result.acts[number].type == "speech"
            return Source(said.source.seq, f"$.result.acts[{number}].text") if is_speech else None
        case _:
            return None


_MAX_RANKED = 3000
"""How many of the texts that hold a keyword are ranked: the newest, for each keyword. Chosen so that a word that almost
every text holds costs some milliseconds, and does not crowd out a rare one."""

_IN_GROUP = f"""texts.scope = :number AND (:only IS NULL OR texts.conversation = :only)
AND (texts.conversation IS NOT :current OR texts.turn < :turn) AND {IS_SHOWN}"""
"""The condition that a text is in the scope. `_TEXT` compares the owner itself, too."""

_HITS = f"SELECT {NAME}.rowid AS id, bm25({NAME}) AS score FROM {NAME}"
_WITHIN = f"""CROSS JOIN texts ON texts.id = {NAME}.rowid AND {_IN_GROUP} AND texts.at BETWEEN :since AND :until"""
_NEWEST = f"ORDER BY {NAME}.rowid DESC LIMIT {_MAX_RANKED}"
_RECENT = f"""
SELECT id FROM texts WHERE {_IN_GROUP} AND texts.at >= :since ORDER BY texts.at DESC, texts.id DESC LIMIT {MAX_RECENT}
"""
_TEXT = f"""
SELECT conversations.id, texts.turn, texts.at, texts.by_user, {TEXT}
FROM texts JOIN conversations ON key = texts.conversation
WHERE texts.id = :id AND {_IN_GROUP} AND conversations.owner IS :owner
"""
"""Texts are read one by one, until there are enough, since to read one takes longer than to rank it."""


def search(driver: sqlite3.Connection, query: MemoryQuery) -> tuple[FoundText, ...]:
    """Return the texts that hold keywords of the query, the best ones first."""
    group = group_of(driver, query.scope)
    if group is None or not exists(driver):
        return ()
    wanted = {f"keyword{number}": found for number, found in enumerate(expressions(group.number, query.keywords))}
    if not wanted:
        return ()
    window = Window.of(query.since, query.until)
    given = {**group._asdict(), **window._asdict(), **wanted}
    rows = driver.execute(_ranking(wanted, window), given)
    return texts_of(driver, group, (number for (number,) in rows), query.limit)


def _ranking(keywords: Iterable[str], window: Window) -> str:
    """Return the statement that ranks what holds the keywords in these parameters. The rank of a text is the sum of its
    ranks for each of them, as FTS5 itself would compute it."""
    within = "" if window == ALWAYS else _WITHIN
    hits = (f"SELECT * FROM ({_HITS} {within} WHERE {NAME} MATCH :{each} {_NEWEST})" for each in keywords)
    return f"SELECT id FROM ({' UNION ALL '.join(hits)}) GROUP BY id ORDER BY sum(score), id DESC"


def recent(driver: sqlite3.Connection, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
    """Return the texts that were said at `since` or later, oldest first."""
    group = group_of(driver, scope)
    if group is None:
        return ()
    rows = driver.execute(_RECENT, {**group._asdict(), "since": to_microseconds(since)}).fetchall()
    return texts_of(driver, group, (number for (number,) in reversed(rows)), MAX_RECENT)


def texts_of(driver: sqlite3.Connection, group: Group, numbers: Iterable[int], limit: int) -> tuple[FoundText, ...]:
    """Return the texts with these numbers, in their order, until there are enough.

    A text that a fork has in common with its original is returned once. One that is not in the group, or that damage
    has made unreadable, is passed over.
    """
    found: dict[tuple[int, bool, str], FoundText] = {}
    most, given = min(limit, MAX_FOUND), group._asdict()
    for number in numbers if most > 0 else ():
        row = driver.execute(_TEXT, {**given, "id": number}).fetchone()
        if row is None or type(row[-1]) is not str:
            continue
        conversation_id, turn, at, by_user, text = row
        role: Literal["user", "assistant"] = "user" if by_user else "assistant"
        found.setdefault((at, by_user, text), FoundText(conversation_id, turn, from_microseconds(at), role, text))
        if len(found) >= most:
            break
    return tuple(found.values())


_WITHOUT = f"""
SELECT texts.id, {TEXT} FROM texts JOIN conversations ON key = texts.conversation
WHERE {_IN_GROUP} AND conversations.owner IS :owner
AND NOT EXISTS (SELECT 1 FROM text_vectors WHERE text_vectors.text = texts.id AND space = :space)
ORDER BY texts.at DESC, texts.id DESC
"""
_KEEP = """
INSERT INTO text_vectors (text, space, vector) SELECT id, ?, ? FROM texts WHERE id = ?
ON CONFLICT (text, space) DO UPDATE SET vector = excluded.vector
"""
_VECTORS = f"""
SELECT texts.id, vector FROM texts CROSS JOIN text_vectors ON text_vectors.text = texts.id AND space = :space
WHERE {_IN_GROUP} AND texts.at BETWEEN :since AND :until AND length(vector) = :size
"""


def without(driver: sqlite3.Connection, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
    """Return texts that have no vector in this space, the newest first, each with its number."""
    group = group_of(driver, scope)
    if group is None or limit <= 0:
        return ()
    rows = driver.execute(_WITHOUT, {**group._asdict(), "space": space})
    return tuple(islice(((number, text) for number, text in rows if type(text) is str), limit))


def keep(driver: sqlite3.Connection, space: str, vectors: Mapping[int, bytes]) -> None:
    """Store vectors, which are `encoded`, of those texts that are still there."""
    driver.executemany(_KEEP, [(space, vector, number) for number, vector in vectors.items()])


def nearest(driver: sqlite3.Connection, query: VectorQuery, vector: bytes) -> tuple[FoundText, ...]:
    """Return the texts whose vectors have the smallest angle to that of the query, which is `vector`, as `encoded`
    writes it; the nearest first."""
    group = group_of(driver, query.scope)
    if group is None or query.limit <= 0:
        return ()
    window = Window.of(query.since, query.until)
    given = {**group._asdict(), **window._asdict(), "space": query.space, "size": len(vector)}
    rows, most = driver.execute(_VECTORS, given), min(query.limit, MAX_FOUND)
    batches = iter(lambda: rows.fetchmany(BATCH), [])
    return texts_of(driver, group, nearest_of(vector, batches, 2 * most), most)  # forks have texts in common


def indexed_words(scope: int, text: str) -> str:
    """Return what the index holds of a text. `Pure.`"""
    return " ".join(scoped(scope, words_of(text)))


def expressions(scope: int, keywords: Iterable[str]) -> tuple[str, ...]:
    """Return an expression for each keyword that holds a word: it finds the texts that hold the keyword. `Pure.`"""
    return tuple(" AND ".join(_phrase(scope, phrase) for phrase in keyword) for keyword in keywords_of(keywords))


def _phrase(scope: int, phrase: Phrase) -> str:
    """Return the expression for a phrase. A word that shares more of its letters with the keyword ranks higher, because
    it is found by more alternatives."""
    if not phrase.beginnings:
        return _quoted(scope, phrase.words)
    found = (f"{_quoted(scope, (*phrase.words[:-1], beginning))}*" for beginning in phrase.beginnings)
    return f"({' OR '.join(found)})"


def _quoted(scope: int, words: Iterable[str]) -> str:
    return f'"{" ".join(scoped(scope, words))}"'
