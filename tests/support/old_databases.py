"""Gives a database the tables of an earlier revision, to test how it is migrated or read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_UNDO = {
    "0004": (
        "DROP TABLE details",
        "DROP TABLE metadata_entries",
        "DROP INDEX conversations_owner",
        "DROP INDEX events_context_changed",
        "CREATE INDEX events_policy_changed ON events (conversation, seq) WHERE type = 'policy_changed'",
    ),
    "0003": ("DROP INDEX events_policy_changed",),
    "0002": ("DROP TABLE forks",),
}
"""The statements that undo each migration, the newest first."""


def take_back(path: Path, revision: str) -> None:
    """Undo the migrations behind `revision`. What only the newer tables hold is lost."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for newer, statements in _UNDO.items():
            if newer > revision:
                for statement in statements:
                    other.execute(statement)
        other.execute("UPDATE alembic_version SET version_num = ?", (revision,))
