"""The full-text index of SQLite, and the texts that it refers to.

The index holds words, and no texts: a row of `texts` refers to the text in the step that brought it, by the number of
that step and a path in its JSON. Only a text that stands in no step as it was said is written out.

FTS5 removes a row from an index without texts if it is told which words the row had. So the words are computed from the
text again; a checksum shows whether it is still the same text. If it is not, because the file is damaged, the whole
index is dropped, and is built again when it is needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from ....states.errors import StoreError
from ....states.events import AgentMessage, Event, LlmResponse, ToolComplete, UserMessage
from ....states.projections.said_texts import SaidText
from ....states.values.acts import with_indexes
from .expressions import indexed_words

NAME = "text_index_1"
"""The name of the index. The number is that of the rules by which texts are chosen and split into words; an index with
another number is dropped."""

TEXT = """coalesce(texts.text, (
    SELECT CASE WHEN json_valid(payload) THEN json_extract(payload, texts.path) END
    FROM events WHERE events.conversation = texts.conversation AND events.seq = texts.source
))"""
"""The SQL of the text of a row of `texts`. NULL if damage has made the step unreadable."""

_CREATE = f"CREATE VIRTUAL TABLE {NAME} USING fts5(words, content='', tokenize='ascii')"
_INDEXES = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE text!_index!_%' ESCAPE '!'"
_ADD_TEXT = (
    "INSERT INTO texts (conversation, seq, part, scope, at, turn, by_user, source, path, text, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_WORDS = f"INSERT INTO {NAME} (rowid, words) VALUES (?, ?)"
_REMOVE_WORDS = f"INSERT INTO {NAME} ({NAME}, rowid, words) VALUES ('delete', ?, ?)"
_INDEXED = f"""
SELECT id, scope, {TEXT}, checksum FROM texts JOIN text_positions USING (conversation)
WHERE texts.conversation = ? AND texts.seq <= text_positions.seq
"""
_POSITIONED = "SELECT key FROM conversations JOIN text_positions ON conversation = key WHERE id = ?"


class Source(NamedTuple):
    """Where a text stands: in the JSON of the event of the step `seq`, at `path`."""

    seq: int
    path: str


class TextRow(NamedTuple):
    """A text on its way into the index: its conversation, the number of that one's group, the step that adds it, and
    its place among the texts of this step."""

    conversation: int
    scope: int
    seq: int
    part: int
    at: int
    said: SaidText
    source: Source | None


class TextChanged(Exception):
    """A text is not the one that was indexed, so the index cannot forget its words."""


def exists(driver: sqlite3.Connection) -> bool:
    """Whether there is an index of these rules."""
    return (NAME,) in driver.execute(_INDEXES).fetchall()


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
    """Forget all words, and what was indexed. The rows of `texts` and their vectors stay, and are used again."""
    for (name,) in driver.execute(_INDEXES).fetchall():
        driver.execute(f"DROP TABLE {name}")
    driver.execute("DELETE FROM text_positions")


def add(driver: sqlite3.Connection, rows: Iterable[TextRow], known: dict[tuple[int, int], tuple[int, int]]) -> None:
    """Add texts. `known` are the id and the checksum of the rows of `texts` that may stand there already, by step and
    part; the rows that are used again are removed from it."""
    for row in rows:
        text, checksum = row.said.text, checksum_of(row.said.text)
        number, stored = known.get((row.seq, row.part), (0, None))
        if stored == checksum:
            del known[row.seq, row.part]
        else:
            place = (None, None, text) if row.source is None else (*row.source, None)
            position = (row.conversation, row.seq, row.part, row.scope, row.at, row.said.turn, row.said.role == "user")
            number = driver.execute(_ADD_TEXT, (*position, *place, checksum)).lastrowid or 0
        driver.execute(_ADD_WORDS, (number, indexed_words(row.scope, text)))


def remove(driver: sqlite3.Connection, conversation_id: str) -> None:
    """Forget the words of a conversation that is about to be deleted, so that no trace of them is left in the index.
    This takes as long as reading the index."""
    found = driver.execute(_POSITIONED, (conversation_id,)).fetchone()
    if found is None or not exists(driver):
        return
    try:
        for number, scope, text, checksum in driver.execute(_INDEXED, found).fetchall():
            if type(text) is not str or checksum_of(text) != checksum:
                raise TextChanged
            driver.execute(_REMOVE_WORDS, (number, indexed_words(scope, text)))
        # Until they are merged, FTS5 only notes beside the words of older rows that these are gone.
        driver.execute(f"INSERT INTO {NAME} ({NAME}) VALUES ('optimize')")
    except (TextChanged, sqlite3.DatabaseError):
        drop(driver)


def checksum_of(text: str) -> int:
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
        case LlmResponse() if said.source.index == 0:
            return Source(said.source.seq, "$.content")
        case ToolComplete(result=result):
            places = {index: place for place, (_, index) in enumerate(with_indexes(result.acts))}
            place = places.get(said.source.index)
            is_speech = place is not None and result.acts[place].type == "speech"
            return Source(said.source.seq, f"$.result.acts[{place}].text") if is_speech else None
        case _:
            return None
