"""A transaction on the driver's own connection: all of it or nothing, and the connection fit for the next one.

SQLite ends a transaction by itself after some errors and leaves it open after others, a failed COMMIT among them. A
rollback may fail as well, on a disk in trouble; then it is done as soon as the disk lets it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection


@contextmanager
def writing(driver: sqlite3.Connection) -> Iterator[None]:
    """A transaction that writes. Committed when the block ends; if that fails, or the block raises, undone. One that
    was left open is undone first."""
    try:
        roll_back(driver)
        driver.execute("BEGIN IMMEDIATE")
        yield
        commit(driver)
    except BaseException:
        with suppress(sqlite3.Error):  # the error that brought us here says more
            roll_back(driver)
        raise


def commit(driver: sqlite3.Connection) -> None:
    """Make it durable."""
    driver.execute("COMMIT")


def roll_back(driver: sqlite3.Connection) -> None:
    """End the transaction, if there is one."""
    if driver.in_transaction:
        driver.execute("ROLLBACK")


@contextmanager
def within(connection: Connection) -> Iterator[None]:
    """The same through SQLAlchemy, to read or to write. It forgets to roll back where the COMMIT failed."""
    driver = driver_of(connection)
    roll_back(driver)
    try:
        with connection.begin():
            yield
    finally:
        with suppress(sqlite3.Error):
            roll_back(driver)


def driver_of(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection, for what SQLAlchemy cannot do, or not fast enough."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
