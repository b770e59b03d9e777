"""Makes the index follow the logs, without a share in any commit of a step.

The index is built when it is first asked for: a database whose texts nobody searches has none, and pays nothing. From
then on it follows: the writer notes which conversations have moved, and its thread indexes them in its idle moments. A
search first has the conversations of its own scope indexed, so it finds what was stored before it began.

Each piece of work is one short transaction, so a step never waits long behind it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from sqlalchemy import Connection

from ....states.values.acts import MemoryScope
from ..file import transaction
from ..file.transaction import driver_of
from . import text_index
from .indexing import Budget, index_conversation
from .scopes import keys_of

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
            if text_index.is_torn(driver, error):
                with transaction.writing(driver):
                    text_index.drop(driver)
                self.forget()
            raise

    def _follow(self, connection: Connection, scope: MemoryScope | None) -> bool:
        if self.is_current:
            return False
        with transaction.writing(driver_of(connection)):
            behind = self._find_all(connection) if self._behind is None else self._behind
            wanted = behind if scope is None else behind & keys_of(driver_of(connection), scope)
            finished, more = _index(connection, wanted)
        self._behind = behind - finished
        return more

    def _find_all(self, connection: Connection) -> set[int]:
        driver = driver_of(connection)
        text_index.prepare(driver)
        return {key for (key,) in driver.execute(_BEHIND)}


def _index(connection: Connection, keys: set[int]) -> tuple[set[int], bool]:
    """Index conversations until the budget of a transaction is spent. Returns those that are finished, and whether
    there is more to do."""
    budget, finished = Budget(BATCH.steps, BATCH.characters), set[int]()
    for key in sorted(keys):
        if budget.is_spent:
            break
        if index_conversation(connection, key, budget):
            finished.add(key)
    return finished, finished != keys
