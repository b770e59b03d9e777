"""Numbers for the groups of conversations that are searched together.

All conversations of an owner are one group, and a conversation without an owner is a group by itself. The number stands
with every text and in every word of the index, so that a search reads nothing of other groups. Two owners whose numbers
were equal would still not see each other's texts: a search compares the owners, too.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from typing import NamedTuple

from ....states.values.acts import MemoryScope

_OWNERS = 1 << 47
"""The numbers below are those of owners. Chosen so that SQLite stores any of them in six bytes."""


class Group(NamedTuple):
    """What a scope stands for in this database: the number of the group; the owner, or None; the key of the one
    conversation that may be searched, or None for all of the group; and, as far as it is stored, the key of the
    conversation whose turns from `turn` on are left out."""

    number: int
    owner: str | None
    only: int | None
    current: int | None
    turn: int


def number_of(owner: str | None, key: int) -> int:
    """Return the number of the group of a conversation. `Pure.`"""
    if owner is None:
        return _OWNERS + key
    return int.from_bytes(blake2b(owner.encode(), digest_size=8).digest()) % _OWNERS


def group_of(driver: sqlite3.Connection, scope: MemoryScope) -> Group | None:
    """Return the group of a scope; None if nothing can be found in it."""
    row = driver.execute("SELECT key, owner FROM conversations WHERE id = ?", (scope.conversation_id,)).fetchone()
    key, owner = (None, None) if row is None else row
    if scope.owner is not None:
        return Group(number_of(scope.owner, 0), scope.owner, None, key, scope.turn)
    return None if key is None else Group(number_of(owner, key), owner, key, key, scope.turn)


def keys_of(driver: sqlite3.Connection, scope: MemoryScope) -> set[int]:
    """Return the keys of the conversations of a scope."""
    if scope.owner is None:
        found = driver.execute("SELECT key FROM conversations WHERE id = ?", (scope.conversation_id,))
    else:
        found = driver.execute("SELECT key FROM conversations WHERE owner = ?", (scope.owner,))
    return {key for (key,) in found}
