"""What a commit may wait for: in the writing thread for another program and a checkpoint, inline for nothing but the
disk.

SQLite makes a checkpoint within the commit that finds the write-ahead log long, which takes as long as dozens of
commits. It also waits up to the busy timeout for a lock. Both are switched off while steps are committed inline, and
on again when the thread writes. They are switched only when that changes, because each switch costs as much as a
statement of a step.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from ...records.codec import EncodedStep

LONGEST_LOG = 1000
"""The pages that inline commits may add to the write-ahead log before the thread makes a checkpoint. Chosen as long as
SQLite's own limit."""

PAGE_SIZE = 4096
"""The size of a page, in bytes: the default of SQLite."""

PAGES_OF_A_STEP = 5
"""The pages that a step writes besides those that are filled with texts: the head row, the row of the step, and their
indexes."""


class CommitMode:
    """How the connection that writes is set, and how much inline commits have added to the write-ahead log. The
    connection waits at first. A database in memory has nothing to wait for and no log."""

    __slots__ = ("_busy_timeout", "_has_log", "_pages")

    def __init__(self, *, has_log: bool) -> None:
        self._has_log = has_log
        self._busy_timeout: int | None = None
        """In milliseconds, what is to be set when the thread writes again; None if it is set."""
        self._pages = 0

    @property
    def is_for_thread(self) -> bool:
        """Whether the connection is set for the writing thread."""
        return self._busy_timeout is None

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether inline commits have made the log so long that the thread should make a checkpoint."""
        return self._pages >= LONGEST_LOG

    def set_inline(self, driver: sqlite3.Connection) -> None:
        """Set the connection for an inline commit."""
        if self._has_log and self._busy_timeout is None:
            (self._busy_timeout,) = driver.execute("PRAGMA busy_timeout").fetchone()
            driver.execute("PRAGMA busy_timeout = 0")
            driver.execute("PRAGMA wal_autocheckpoint = 0")

    def set_for_thread(self, driver: sqlite3.Connection) -> None:
        """Set the connection for the writing thread."""
        with suppress(sqlite3.Error):  # what is committed then is as safe, and the next time tries again
            driver.execute(f"PRAGMA wal_autocheckpoint = {LONGEST_LOG}")
            driver.execute(f"PRAGMA busy_timeout = {self._busy_timeout}")
            self._busy_timeout = None

    def count(self, step: EncodedStep) -> None:
        """Note that a step was committed inline. An estimate of its pages is enough."""
        if self._has_log:
            self._pages += PAGES_OF_A_STEP + step.size // PAGE_SIZE

    def checkpoint(self, driver: sqlite3.Connection) -> None:
        """Copy the write-ahead log into the file, so that it is written from its beginning again."""
        self._pages = 0
        driver.execute("PRAGMA wal_checkpoint(PASSIVE)")
