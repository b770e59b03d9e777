"""A transaction on the driver's own connection: all of it or nothing, and the connection is usable afterwards.

SQLite ends a transaction by itself after some errors and leaves it open after others, such as a failed COMMIT. A
rollback may fail as well; then it is repeated before the next transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection


class writing:
    """Runs the block in a transaction that writes. It is committed at the end, and rolled back if that fails or the
    block raises. A transaction that was left open is rolled back first.

    It is a class because a generator takes several times as long, and each commit of a step enters it.
    """

    __slots__ = ("_driver",)

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        try:
            roll_back(self._driver)
            self._driver.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._abandon()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            commit(self._driver)
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        with suppress(sqlite3.Error):  # the first error says more
            roll_back(self._driver)


def commit(driver: sqlite3.Connection) -> None:
    """Commit the transaction."""
    driver.execute("COMMIT")


def roll_back(driver: sqlite3.Connection) -> None:
    """Roll back the transaction, if there is one."""
    if driver.in_transaction:
        driver.execute("ROLLBACK")


@contextmanager
def within(connection: Connection) -> Iterator[None]:
    """Run the block in a transaction of SQLAlchemy, which itself would not roll back after a failed COMMIT."""
    driver = driver_of(connection)
    roll_back(driver)
    try:
        with connection.begin():
            yield
    finally:
        with suppress(sqlite3.Error):
            roll_back(driver)


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection, for what SQLAlchemy cannot do, or cannot do fast enough."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
