"""Views in place of the tables of texts, for a database that is only read and whose version had no such tables, or
chose texts by other rules."""

from __future__ import annotations

import sqlite3

from ..tables.schema import text_positions, text_vectors, texts


def add_text_views(driver: sqlite3.Connection) -> None:
    """Give this connection an empty view for each of the tables: nothing is found."""
    for table in (texts, text_positions, text_vectors):
        columns = ", ".join(f"NULL AS {column.name}" for column in table.columns)
        driver.execute(f"CREATE TEMP VIEW {table.name} AS SELECT {columns} WHERE false")
