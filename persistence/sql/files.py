"""The SQL by which files are stored beside the logs, once each, and found again.

Each function works within the transaction of its caller. A file is kept for a conversation before a step refers to it,
and is deleted in the transaction in which the last conversation that it is kept for is. So no log refers to a file that
is gone, in whatever order processes that share the database do both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, delete, exists, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from ...states.errors import UnknownConversation
from ..errors import StoreConflict
from ..records import KeptFile
from .schema import conversations, file_parts, file_uses, files
from .statements import Driver, prepared

PART = 256 * 2**10
"""The bytes of a part of a file. Chosen so that reading some bytes is cheap, and so that a part is deleted quickly."""


class FileRow(NamedTuple):
    """A stored file: its key, its size in bytes, and its place in the file store, None if its parts are here."""

    key: int
    size: int
    place: str | None


_FIND = prepared(
    select(files.c.key, files.c.size, files.c.place).where(files.c.sha256 == bindparam("digest")), "digest"
)
_FIND_USED = prepared(
    select(files.c.key, files.c.size, files.c.place)
    .join(file_uses, file_uses.c.file == files.c.key)
    .join(conversations, conversations.c.key == file_uses.c.conversation)
    .where(files.c.sha256 == bindparam("digest"), conversations.c.id == bindparam("conversation_id")),
    *("digest", "conversation_id"),
)
_ADD = prepared(
    upsert(files)
    .values({name: bindparam(name) for name in ("sha256", "size", "place")})
    .on_conflict_do_nothing(index_elements=[files.c.sha256]),
    *("sha256", "size", "place"),
)
_ADD_PART = prepared(insert(file_parts), "file", "part", "data")
_PARTS = prepared(
    select(file_parts.c.data)
    .where(
        file_parts.c.file == bindparam("its_file"),
        file_parts.c.part >= bindparam("first"),
        file_parts.c.part <= bindparam("last"),
    )
    .order_by(file_parts.c.part),
    *("its_file", "first", "last"),
)
_CONVERSATION = prepared(
    select(conversations.c.key).where(conversations.c.id == bindparam("conversation_id")), "conversation_id"
)
_USE = upsert(file_uses).values({name: bindparam(name) for name in ("conversation", "file", "mark")})
_ADD_USE = prepared(
    _USE.on_conflict_do_update(
        index_elements=[file_uses.c.conversation, file_uses.c.file], set_={"mark": _USE.excluded.mark}
    ),
    *("conversation", "file", "mark"),
)
_OF_USE = (file_uses.c.conversation == bindparam("its_conversation"), file_uses.c.file == bindparam("its_file"))
_FIND_USE = prepared(select(file_uses.c.mark).where(*_OF_USE), "its_conversation", "its_file")
_REMOVE_USE = prepared(
    delete(file_uses).where(*_OF_USE, file_uses.c.mark == bindparam("its_mark")),
    *("its_conversation", "its_file", "its_mark"),
)
_USED = prepared(
    select(files.c.key, files.c.sha256, files.c.size, file_uses.c.mark)
    .join(file_uses, file_uses.c.file == files.c.key)
    .where(file_uses.c.conversation == bindparam("its_conversation"))
    .order_by(files.c.key),
    "its_conversation",
)
_IS_USED = exists().where(file_uses.c.file == files.c.key)
_BY_KEY = 'WHERE files."key" = %s'
_LOCK = prepared(
    select(files.c.key).where(files.c.key == bindparam("its_key")),
    "its_key",
    in_postgresql={_BY_KEY: f"{_BY_KEY} FOR UPDATE"},
)
"""Has those wait who keep the file for a conversation. In SQLite one transaction at a time writes."""

_UNUSED_PLACE = prepared(select(files.c.place).where(files.c.key == bindparam("its_key"), ~_IS_USED), "its_key")
_REMOVE = prepared(delete(files).where(files.c.key == bindparam("its_key"), ~_IS_USED), "its_key")
_ALL_UNUSED = prepared(select(files.c.key).where(~_IS_USED).order_by(files.c.key))


_PLACES = prepared(select(files.c.place).where(files.c.place.is_not(None)))


def places(driver: Driver) -> frozenset[str]:
    """Return the places of all files whose bytes are in the file store."""
    return frozenset(place for (place,) in driver.execute(_PLACES))


def find(driver: Driver, digest: str) -> FileRow | None:
    """Return the file with this digest, if it is stored."""
    row = driver.execute(_FIND, (digest,)).fetchone()
    return None if row is None else FileRow._make(row)


def find_used(driver: Driver, conversation_id: str, digest: str) -> FileRow | None:
    """Return the file with this digest, if it is kept for this conversation."""
    row = driver.execute(_FIND_USED, (digest, conversation_id)).fetchone()
    return None if row is None else FileRow._make(row)


def add(driver: Driver, digest: str, size: int, data: bytes | None, place: str | None) -> bool:
    """Store a file, unless it is stored already: its bytes, or the place where they are. Returns whether it was new."""
    if driver.execute(_ADD, (digest, size, place)).rowcount != 1:
        return False
    if data is not None:
        row = find(driver, digest)
        assert row is not None, "it was stored just now"
        driver.executemany(_ADD_PART, ((row.key, part, piece) for part, piece in enumerate(_pieces(data))))
    return True


def _pieces(data: bytes) -> Iterator[memoryview]:
    whole = memoryview(data)
    return (whole[start : start + PART] for start in range(0, len(data), PART))


def use(driver: Driver, conversation_id: str, digest: str, mark: str) -> bool:
    """Keep a stored file for this conversation, under this mark. Returns whether it was not kept for it before. Raises
    `UnknownConversation`, and `StoreConflict` if the file is not stored, or not any more."""
    key, row = _found(driver, conversation_id), find(driver, digest)
    if row is None:
        raise StoreConflict("The file is not stored any more.")
    is_new = driver.execute(_FIND_USE, (key, row.key)).fetchone() is None
    driver.execute(_ADD_USE, (key, row.key, mark))
    return is_new


def use_all(driver: Driver, key: int, digests: Iterable[str]) -> int:
    """Keep these files for the conversation with this key, which was stored just now, as far as they are stored.
    Returns how many are not."""
    wanted = dict.fromkeys(digests)
    rows = sorted(row for row in (find(driver, digest) for digest in wanted) if row is not None)
    driver.executemany(_ADD_USE, [(key, row.key, "") for row in rows])
    return len(wanted) - len(rows)


def take_back(driver: Driver, conversation_id: str, digest: str, mark: str) -> list[str]:
    """Keep a file no longer for a conversation, if it was kept under this mark the last time. Returns the places of
    what is not used any more."""
    found, row = driver.execute(_CONVERSATION, (conversation_id,)).fetchone(), find(driver, digest)
    if found is None or row is None or driver.execute(_REMOVE_USE, (found[0], row.key, mark)).rowcount != 1:
        return []
    return remove_unused(driver, [row.key])


def kept_for(driver: Driver, conversation_id: str) -> tuple[KeptFile, ...]:
    """Return the files that are kept for a conversation, in the order in which they were stored. Raises
    `UnknownConversation`."""
    rows = driver.execute(_USED, (_found(driver, conversation_id),))
    return tuple(KeptFile(*row[1:]) for row in rows)


def _found(driver: Driver, conversation_id: str) -> int:
    """Return the key of a conversation. Raises `UnknownConversation`."""
    found = driver.execute(_CONVERSATION, (conversation_id,)).fetchone()
    if found is None:
        raise UnknownConversation(conversation_id)
    return int(found[0])


def keys_of(driver: Driver, conversation: int) -> list[int]:
    """Return the keys of the files that are kept for the conversation with this key, in order."""
    return [row[0] for row in driver.execute(_USED, (conversation,))]


def remove_unused(driver: Driver, keys: Sequence[int]) -> list[str]:
    """Delete those of these files that are kept for no conversation, and return the places of their bytes in the file
    store. The keys are in order, so that two who delete wait for each other at most."""
    places: list[str] = []
    for key in keys:
        driver.execute(_LOCK, (key,)).fetchone()
        found = driver.execute(_UNUSED_PLACE, (key,)).fetchone()
        if found is None:
            continue
        driver.execute(_REMOVE, (key,))
        places += [found[0]] if found[0] is not None else []
    return places


def unused(driver: Driver) -> list[int]:
    """Return the keys of the files that are kept for no conversation."""
    return [key for (key,) in driver.execute(_ALL_UNUSED)]


def read(driver: Driver, row: FileRow, start: int, end: int) -> bytes:
    """Return the bytes of a file whose parts are in the database, from `start` up to `end`."""
    first = start // PART
    parts = driver.execute(_PARTS, (row.key, first, max(end - 1, start) // PART))
    joined = b"".join(bytes(data) for (data,) in parts)
    return joined[start - first * PART : end - first * PART]
