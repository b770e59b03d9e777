"""Compiles statements for the driver.

SQLAlchemy writes the SQL, once, when a module is imported. To execute a statement through it takes longer than SQLite
needs to commit, so what a step needs goes to the driver directly.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects.sqlite.base import SQLiteDialect


def prepared(statement: Any, *parameters: str) -> str:
    """Return the statement as text for the driver, which takes these parameters in this order."""
    compiled = statement.compile(dialect=SQLiteDialect(paramstyle="qmark"))
    assert tuple(compiled.positiontup) == parameters, compiled.positiontup
    return str(compiled)
