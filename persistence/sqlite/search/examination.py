"""Compares the index with the logs that it follows, for the doctor."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from sqlalchemy import Connection

from ...records.storage import RebuildIndex, StorageFault
from ..file.transaction import driver_of, roll_back
from . import text_index
from .expressions import indexed_words
from .indexing import texts_of_log
from .text_index import NAME, TEXT, TextRow

_POSITIONS = """
SELECT key, owner, text_positions.seq FROM conversations JOIN text_positions ON conversation = key
"""
_TEXTS = f"SELECT id, {TEXT} FROM texts WHERE conversation = ?"
_INDEXED = f"SELECT id, scope, {TEXT} FROM texts WHERE conversation = ? AND seq <= ?"
_VOCABULARY = "text_index_vocabulary"
_OPEN_VOCABULARY = f"CREATE VIRTUAL TABLE temp.{_VOCABULARY} USING fts5vocab(main, {NAME}, 'instance')"

_MASK = 2**64 - 1

MISSING = "The index of what was said is missing."
UNREADABLE = "The index of what was said cannot be read."
DIFFERENT = "The index of what was said does not agree with the logs."


def faults(connection: Connection) -> tuple[StorageFault, ...]:
    """Return what is wrong with the index: at most one sentence, since it can only be built again entirely."""
    driver = driver_of(connection)
    positions = driver.execute(_POSITIONS).fetchall()
    if not positions:
        return ()
    if not text_index.exists(driver):
        return (StorageFault(MISSING, RebuildIndex()),)
    try:
        agrees = all(_rows_agree(connection, *position) for position in positions) and _words_agree(driver, positions)
    except sqlite3.DatabaseError:
        roll_back(driver)  # FTS5 refuses to commit behind such an error, although nothing was written
        return (StorageFault(UNREADABLE, RebuildIndex()),)
    return () if agrees else (StorageFault(DIFFERENT, RebuildIndex()),)


def _rows_agree(connection: Connection, key: int, owner: str | None, position: int) -> bool:
    """Whether the rows of `texts` of a conversation follow from its log, and refer to the right texts."""
    driver = driver_of(connection)
    known = text_index.known_rows(driver, key, 1, position)
    texts = dict(driver.execute(_TEXTS, (key,)))

    def is_stored(row: TextRow) -> bool:
        stored = known.pop((row.seq, row.part), None)
        return stored is not None and stored.columns == row.columns and texts[stored.number] == row.said.text

    return all(is_stored(row) for row in texts_of_log(connection, key, owner, position)) and not known


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
