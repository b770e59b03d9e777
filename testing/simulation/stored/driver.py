"""A connection to a real database whose statements fail when the dice say so, and end when its process dies."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from ..random_source import RandomSource

T = TypeVar("T")

_CODES = {"BEGIN IMMEDIATE": sqlite3.SQLITE_BUSY, "COMMIT": sqlite3.SQLITE_IOERR}
"""What a statement fails with; any other fails because the disk is full."""


class Fate:
    """What becomes of the statements of one process. `failing` is how often one fails, `lives` how many are still done
    before the process dies, None as long as it need not.

    Once at most, in all that is done for one batch, a commit is done and said to have failed: disks do that. What is
    stored then is found when it is tried again.
    """

    def __init__(self, dice: RandomSource) -> None:
        self.failing = 0.0
        self.lives: int | None = None
        self._dice = dice
        self._may_lie = self._is_honest = False

    @property
    def is_dead(self) -> bool:
        """Whether nothing is done any more."""
        return self.lives == 0

    def begin(self) -> None:
        """Another batch begins."""
        self._may_lie, self._is_honest = True, False

    def decide(self, sql: str, statement: Callable[[], T]) -> T:
        """Do a statement that writes, or not."""
        if self.lives is not None:
            if self.lives == 0:
                raise failed(sqlite3.SQLITE_IOERR)
            self.lives -= 1
        if sql == "ROLLBACK":
            self._may_lie = False
        elif not self._is_honest and self._dice.chance(self.failing):
            if sql == "COMMIT" and self._may_lie and self._dice.chance(0.5):
                self._is_honest = True
                statement()
            self._may_lie = False
            raise failed(_CODES.get(sql, sqlite3.SQLITE_FULL))
        return statement()


class Driver(sqlite3.Connection):
    """A connection with a fate; without one it is like any other."""

    fate: Fate | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Do a statement, if it is meant to be."""
        execute = super().execute
        if self.fate is None or not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            return execute(sql, *parameters)
        return self.fate.decide(sql, lambda: execute(sql, *parameters))

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Do a statement many times, if it is meant to be."""
        executemany = super().executemany
        return (
            executemany(sql, parameters)
            if self.fate is None
            else self.fate.decide(sql, lambda: executemany(sql, parameters))
        )


def failed(code: int) -> sqlite3.OperationalError:
    """An error as the driver has it."""
    error = sqlite3.OperationalError("the disk is in trouble")
    error.sqlite_errorcode = code
    return error
