"""What can be wrong with a SQLite file as a whole."""

from __future__ import annotations

from sqlalchemy import Connection

from ..records import StorageFault
from ..sql.repairs import orphans
from ..sql.schema import events, text_positions, texts
from .file import driver_of

_FINDINGS_OF_SQLITE = 20
"""How many faults SQLite reports at most: enough to show what kind of damage it is."""

_CHECK = f"PRAGMA integrity_check({_FINDINGS_OF_SQLITE})"


def faults(connection: Connection) -> tuple[StorageFault, ...]:
    """Return what SQLite itself reports, and rows that belong to no conversation."""
    driver = driver_of(connection)
    found = [
        StorageFault(f"SQLite finds the file damaged: {line}")
        for (line,) in driver.execute(_CHECK).fetchall()
        if line != "ok"
    ]
    (is_erasing,) = driver.execute("PRAGMA user_version").fetchone()
    of_the_deleted = (events, texts, text_positions) if is_erasing else ()
    return (*found, *orphans(driver, without=of_the_deleted))
