"""Brings the tables of a database to the newest revision.

A new database gets its tables as `schema` defines them. Older ones are migrated by alembic, revision by revision; it is
imported only for them, because that takes longer than anything else that opening a database needs. A test compares the
tables that come from both.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection

from ..file.identity import APPLICATION_ID, HEAD
from ..file.transaction import driver_of
from .older_tables import add_functions
from .schema import metadata

SCRIPTS = Path(__file__).parent.with_name("migrations")

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
        metadata.create_all(connection)


def run_migrations(connection: Connection) -> None:
    """Run all migrations that the database has not had yet, from the first one if it is new."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _ALEMBIC, connection.begin():
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        add_functions(driver_of(connection))
        command.upgrade(config, HEAD)
