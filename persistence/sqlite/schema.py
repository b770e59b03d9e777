"""How the tables of a SQLite database are made, and how those of an older one are brought to the newest revision.

A new database gets its tables as `sql.schema` defines them. Older ones are migrated by alembic, revision by revision;
it is imported only for them, because that takes longer than anything else that opening a database needs. A test
compares the tables of a database that an earlier version wrote, once it is migrated, with those of a new one.
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from ..sql.schema import metadata
from .file import APPLICATION_ID, HEAD

SCRIPTS = Path(__file__).with_name("migrations")

_REVISION_TABLE = (
    "CREATE TABLE alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""The table in which alembic records the revision, as it makes it itself."""

_ALEMBIC = threading.Lock()
"""Alembic keeps its connection in a global variable: if two threads opened two databases at once, one database would be
given the tables of both."""


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
    """Return what creates the tables and their indexes, written once: `metadata.create_all` looks for each table and
    writes each statement anew, which takes longer than to open the database."""
    elements: list[ExecutableDDLElement] = []
    for table in metadata.sorted_tables:
        elements.append(CreateTable(table))
        elements += (CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name)))
    return tuple(str(element.compile(dialect=sqlite.dialect())) for element in elements)


def run_migrations(connection: Connection) -> None:
    """Run all migrations that the database has not had yet."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _ALEMBIC, connection.begin():
        command.upgrade(config, HEAD)
