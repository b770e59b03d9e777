"""Statements as text, and what executes them: the least that the drivers of all databases have in common.

SQLAlchemy writes the SQL and nothing else. To execute a statement through it takes longer than SQLite needs to commit,
so the text goes to the driver directly. It is written when a module is imported, in the dialect of SQLite, and for
PostgreSQL when it is executed there for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

from sqlalchemy import ClauseElement, Select, bindparam, literal_column
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.sql.compiler import SQLCompiler

_DIALECT = SQLiteDialect(paramstyle="qmark")


class Cursor(Protocol):
    """The rows that a statement has found, and how many it has changed."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Driver(Protocol):
    """A connection to the database, within a transaction. The connections of `sqlite3` are such drivers."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Execute a statement with these parameters."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Execute a statement once for each row of parameters. The row count is that of all of them."""
        ...


class Statement(str):
    """A statement with parameters by position, as the driver of SQLite takes it; `postgresql` is it for psycopg."""

    parameters: tuple[str, ...]
    """The names of the parameters, in their order."""
    in_postgresql: Mapping[str, str]
    """The expressions that PostgreSQL writes in another way, and how it does."""

    @classmethod
    def of(cls, clause: ClauseElement, in_postgresql: Mapping[str, str] | None = None) -> Statement:
        """Compile a statement of SQLAlchemy's."""
        compiled = clause.compile(dialect=_DIALECT)
        assert isinstance(compiled, SQLCompiler)
        statement = cls(compiled)
        statement.parameters = tuple(compiled.positiontup or ())
        statement.in_postgresql = in_postgresql or {}
        return statement

    @cached_property
    def postgresql(self) -> str:
        """The same statement for PostgreSQL: the dialects differ in few expressions, and the drivers in parameters."""
        text = self.replace("%", "%%").replace("?", "%s")
        for expression, other in self.in_postgresql.items():
            assert expression in text, expression
            text = text.replace(expression, other)
        return text


def prepared(clause: ClauseElement, *parameters: str, in_postgresql: Mapping[str, str] | None = None) -> Statement:
    """Return the statement as text for the driver, which takes these parameters in this order. `in_postgresql` are the
    expressions that PostgreSQL writes in another way."""
    statement = Statement.of(clause, in_postgresql)
    assert statement.parameters == parameters, statement.parameters
    return statement


Found = TypeVar("Found", bound=Select[Any])


def limited(statement: Found) -> Found:
    """Return the statement that finds at most as many rows as its parameter `limit` says. Where no offset is given,
    SQLAlchemy writes one with a parameter for SQLite."""
    return statement.limit(bindparam("limit")).offset(literal_column("0"))
