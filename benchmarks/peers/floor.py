"""The floor: the least that a program must do to keep four steps on a disk, with nothing but SQLite.

Each step is a transaction of its own with the row of the step and the new head of its conversation, in a write-ahead
log with `synchronous=FULL`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .measures import main
from .requests import REQUESTS
from .standard import MESSAGES, REPLIED, TEXTS
from .system import NotOffered, System


class Floor(System):
    """SQLite alone."""

    packages = ()
    stores = "four commits a turn, each with a row and the head of its conversation; WAL, synchronous=FULL"

    async def open(self, file: Path | None) -> None:
        """Open the file."""
        if file is None:
            raise NotOffered
        self.connection = sqlite3.connect(file, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        columns = "id INTEGER, seq INTEGER, payload TEXT, PRIMARY KEY (id, seq)"
        self.connection.execute(f"CREATE TABLE IF NOT EXISTS events ({columns}) WITHOUT ROWID")
        self.connection.execute("CREATE TABLE IF NOT EXISTS heads (id INTEGER PRIMARY KEY, seq INTEGER)")

    async def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    async def create(self, number: int) -> int:
        """Store the head of a conversation."""
        self.connection.execute("INSERT INTO heads VALUES (?, 0)", (number,))
        return number

    def key(self, conversation: int) -> str:
        """Its number."""
        return str(conversation)

    async def resume(self, key: str) -> int:
        """Read the head and every row."""
        conversation = int(key)
        self.connection.execute("SELECT seq FROM heads WHERE id = ?", (conversation,)).fetchone()
        self.connection.execute("SELECT payload FROM events WHERE id = ? ORDER BY seq", (conversation,)).fetchall()
        return conversation

    async def turn(self, conversation: int) -> str:
        """Commit four steps."""
        (seq,) = self.connection.execute("SELECT seq FROM heads WHERE id = ?", (conversation,)).fetchone()
        for number, text in enumerate(TEXTS, seq + 1):
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute("UPDATE heads SET seq = ? WHERE id = ?", (number, conversation))
            self.connection.execute("INSERT INTO events VALUES (?, ?, ?)", (conversation, number, text))
            self.connection.execute("COMMIT")
            REQUESTS.note()  # a model would be asked when the message is stored
        return REPLIED

    async def count(self, conversation: int) -> int:
        """Count the rows."""
        rows = "SELECT count(*) FROM events WHERE id = ?"
        return self.connection.execute(rows, (conversation,)).fetchone()[0] // (len(TEXTS) // MESSAGES)


if __name__ == "__main__":
    main(Floor)
