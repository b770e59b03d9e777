"""The SQL of what a list shows of conversations: titles, metadata and roles.

These rows follow from the log. They are written together with the steps that change them, and with no others.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from ....states.events import DetailsChanged, UserMessage
from ...records.metadata import metadata_columns
from ...records.rows import DetailsRow
from ...records.titles import given_title, message_title
from .schema import details, metadata_entries
from .statements import prepared

DetailsEvent: TypeAlias = UserMessage | DetailsChanged
"""An event that changes the details of a conversation."""

_TEXTS = ("title", "first_message", "metadata", "role", "parent", "works_for")
_OF_CONVERSATION = details.c.conversation == bindparam("head_key")
_READ = prepared(select(*(details.c[name] for name in _TEXTS)).where(_OF_CONVERSATION), "head_key")
_FIRST_MESSAGE = prepared(select(details.c.first_message).where(_OF_CONVERSATION), "head_key")
_READ_ENTRIES = prepared(
    select(metadata_entries.c.entry)
    .where(metadata_entries.c.conversation == bindparam("head_key"))
    .order_by(metadata_entries.c.entry),
    "head_key",
)
_ADD = prepared(insert(details), "conversation", *_TEXTS)
_ADD_ENTRY = prepared(insert(metadata_entries), "entry", "conversation")
_REMOVE = prepared(delete(details).where(_OF_CONVERSATION), "head_key")
_REMOVE_ENTRIES = prepared(
    delete(metadata_entries).where(metadata_entries.c.conversation == bindparam("head_key")), "head_key"
)


def _set(column: str, *, once: bool = False) -> str:
    """Return the statement that sets a column, where it already has a value or, with `once`, only where it has none."""
    row = upsert(details).values({"conversation": bindparam("conversation"), column: bindparam(column)})
    where = details.c[column].is_(None) if once else None
    change = row.on_conflict_do_update(
        index_elements=[details.c.conversation], set_={column: row.excluded[column]}, where=where
    )
    return prepared(change, "conversation", column)


_SET_FIRST_MESSAGE = _set("first_message", once=True)
_SET_TITLE = _set("title")
_SET_METADATA = _set("metadata")


def read(driver: sqlite3.Connection, key: int) -> DetailsRow:
    """Return what is stored of the details of a conversation, damaged or not."""
    title, first_message, text, *agent = driver.execute(_READ, (key,)).fetchone() or (None,) * len(_TEXTS)
    entries = tuple(entry for (entry,) in driver.execute(_READ_ENTRIES, (key,)))
    return DetailsRow(title, first_message, text, entries, *agent)


def is_titled(driver: sqlite3.Connection, key: int) -> bool:
    """Whether a message of a user has given the conversation a title."""
    row = driver.execute(_FIRST_MESSAGE, (key,)).fetchone()
    return row is not None and row[0] is not None


def add(driver: sqlite3.Connection, key: int, row: DetailsRow) -> None:
    """Store the details of a conversation that has none so far."""
    if row != DetailsRow():
        driver.execute(_ADD, (key, *(getattr(row, column) for column in _TEXTS)))
        _add_entries(driver, key, row.entries)


def replace(driver: sqlite3.Connection, key: int, row: DetailsRow) -> None:
    """Store the details of a conversation in place of those that are stored."""
    driver.execute(_REMOVE, (key,))
    driver.execute(_REMOVE_ENTRIES, (key,))
    add(driver, key, row)


def change(driver: sqlite3.Connection, key: int, event: DetailsEvent) -> None:
    """Store what this event changes. A title that a message gives stays once it is stored."""
    if isinstance(event, UserMessage):
        driver.execute(_SET_FIRST_MESSAGE, (key, message_title(event.text, len(event.images))))
        return
    if event.title is not None:
        driver.execute(_SET_TITLE, (key, given_title(event.title)))
    if event.metadata is not None:
        text, entries = metadata_columns(event.metadata)
        driver.execute(_SET_METADATA, (key, text))
        driver.execute(_REMOVE_ENTRIES, (key,))
        _add_entries(driver, key, entries)


def _add_entries(driver: sqlite3.Connection, key: int, entries: tuple[bytes, ...]) -> None:
    driver.executemany(_ADD_ENTRY, [(entry, key) for entry in entries])
