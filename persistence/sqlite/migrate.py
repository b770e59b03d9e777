"""Brings the tables of a database to the shape that this turnwise knows.

A new database takes the same way as an old one, from nothing through every revision, so that there is one way only in
which tables come to be. Alembic, which does it, is imported when there is something to do.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection

from .identity import APPLICATION_ID, HEAD

SCRIPTS = Path(__file__).with_name("migrations")

_ALEMBIC = threading.Lock()
"""Alembic keeps the connection that it works on in a global: of two databases opened at once by threads of one process,
one would be given the tables of both."""


def migrate(connection: Connection, revision: str | None) -> None:
    """Bring the tables from `revision` (None: there are none) to `HEAD`, in one transaction."""
    if revision == HEAD:
        return
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _ALEMBIC, connection.begin():
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        command.upgrade(config, HEAD)
