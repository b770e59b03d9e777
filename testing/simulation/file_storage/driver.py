"""A connection to a real database whose statements fail at random, and are no longer done once its process has died."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from ..environment.random_source import RandomSource

T = TypeVar("T")

_CODES = {"BEGIN IMMEDIATE": sqlite3.SQLITE_BUSY, "COMMIT": sqlite3.SQLITE_IOERR}
"""What a statement fails with; any other fails because the disk is full."""


class Statements:
    """Decides what becomes of the statements of one process. `failing` is the probability that one fails; `left` counts
    those that are still done before the process dies, None if it does not.

    At most once in all that is done for one batch, a commit is done and reported as failed, as disks do. What is stored
    then is found when it is tried again.
    """

    def __init__(self, chance: RandomSource) -> None:
        self.failing = 0.0
        self.left: int | None = None
        self._chance = chance
        self._may_misreport = self._is_reliable = self._goes_on = False

    @property
    def is_dead(self) -> bool:
        """Whether no statement is done any more."""
        return self.left == 0

    def begin_batch(self) -> None:
        """Another batch begins, unless the one before goes on."""
        if not self._goes_on:
            self._may_misreport, self._is_reliable = True, False
        self._goes_on = False

    def go_on(self) -> None:
        """What comes next belongs to the same batch: it is tried again."""
        self._goes_on = True

    def decide(self, sql: str, statement: Callable[[], T]) -> T:
        """Do a statement that writes, or fail."""
        if self.left is not None:
            if self.left == 0:
                raise failed(sqlite3.SQLITE_IOERR)
            self.left -= 1
        if sql == "ROLLBACK":
            self._may_misreport = False
        elif not self._is_reliable and self._chance.probably(self.failing):
            if sql == "COMMIT" and self._may_misreport and self._chance.probably(0.5):
                self._is_reliable = True
                statement()
            self._may_misreport = False
            raise failed(_CODES.get(sql, sqlite3.SQLITE_FULL))
        return statement()


class Driver(sqlite3.Connection):
    """A connection whose writing statements `statements` decides about; without it, one like any other."""

    statements: Statements | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Do a statement, or fail."""
        execute = super().execute
        if self.statements is None or not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            return execute(sql, *parameters)
        return self.statements.decide(sql, lambda: execute(sql, *parameters))

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Do a statement many times, or fail."""
        executemany = super().executemany
        if self.statements is None:
            return executemany(sql, parameters)
        return self.statements.decide(sql, lambda: executemany(sql, parameters))


def failed(code: int) -> sqlite3.OperationalError:
    """An error as SQLite's driver raises it."""
    error = sqlite3.OperationalError("the disk is in trouble")
    error.sqlite_errorcode = code
    return error
