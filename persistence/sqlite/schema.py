"""How the tables of a SQLite database are made, and how those of an older one are brought to the newest revision.

A new database gets its tables as `sql.schema` defines them. Older ones are migrated by alembic, revision by revision;
it is imported only for them, because that takes longer than anything else that opening a database needs. A test
compares the tables of a database that an earlier version wrote, once it is migrated, with those of a new one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite

from ..sql import schema as shared
from .file import APPLICATION_ID, HEAD

SCRIPTS = Path(__file__).with_name("migrations")

_REVISION_TABLE = (
    "CREATE TABLE alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""The table in which alembic records the revision, as it makes it itself."""


def migrate(connection: Connection, revision: str | None) -> None:
    """Migrate the tables from `revision` (None for an empty file) to `HEAD`, in one transaction."""
    if revision is None:
        create_tables(connection)
    elif revision != HEAD:
        run_migrations(connection)


def create_tables(connection: Connection) -> None:
    """Create the tables of a new database, and record that they have the newest revision."""
    with connection.begin():
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(_REVISION_TABLE)
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (HEAD,))
        for statement in _creating_statements():
            connection.exec_driver_sql(statement)


@cache
def _creating_statements() -> tuple[str, ...]:
    """Return what creates the tables and their indexes, written once."""
    return tuple(shared.creating_statements(shared.metadata, sqlite.dialect()))


def run_migrations(connection: Connection) -> None:
    """Run all migrations that the database has not had yet."""
    with connection.begin():
        shared.run_migrations(connection, SCRIPTS, HEAD, render_as_batch=True)
