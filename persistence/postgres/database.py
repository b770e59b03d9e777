"""An open PostgreSQL database: a few threads, each of which does one transaction at a time.

A transaction is plain functions over a driver, as in SQLite; a thread runs them, so the event loop never waits for the
server. That is also the cheapest way: a transaction of one statement takes 200 µs of processor time in a thread, as
much in psycopg's own coroutines, and 480 µs in SQLAlchemy's.

There are at most as many connections as threads. A thread takes the connection that was used last, and makes one if all
are in use. So nothing has to look after connections that are not used: one that broke in the meantime is noticed when
the next transaction begins on it, and replaced before anything was done. `psycopg_pool` would add 25 µs to each
transaction, and 55 µs more to ask the server whether the connection is alive.

Nothing waits without a bound: neither for a thread, nor for a lock, nor for a server that does not answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import psycopg

from ...states.errors import StoreError
from ..errors import StorageFailed
from ..sql.pending import PendingResult
from . import schema
from .address import PostgresAddress
from .connection import Access, PostgresDriver, begin_statement, failure, session_statement
from .threads import DaemonThreads

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for which a transaction waits for a connection while all are in use."""

LOOK = 5.0
"""Seconds between two looks at a transaction that takes long."""

CLOSING = 10.0
"""Seconds that transactions have to end when the database is closed."""


class PostgresDatabase:
    """An open database. Made by `open`; whoever opens it must `close` it.

    `is_pooled` says that a pooler stands between this process and the server.
    """

    def __init__(self, address: PostgresAddress, connections: int, *, read_only: bool) -> None:
        self.address = address
        self.name: str = address.name
        self.is_read_only = read_only
        self.is_pooled: bool = False
        self._is_prepared = False
        """Whether it is known if it is pooled: nothing must be left in a session that others are lent."""
        self._connections = connections
        self._begin: dict[Access, bytes] = {
            "read": begin_statement(address, "read"),
            "write": begin_statement(address, "write"),
        }
        self._threads = DaemonThreads(connections, "turnwise-postgres")
        self._idle = deque[PostgresDriver]()
        self._running = set[_Call]()
        self._is_closed = False

    @classmethod
    async def open(
        cls, address: PostgresAddress, *, connections: int, read_only: bool = False, create: bool = True
    ) -> PostgresDatabase:
        """Connect to the server, and create the tables if there are none, unless the database is to be read only.

        Raises `StoreError` for a server or a database that turnwise cannot use, with a sentence that says why, and
        changes nothing then; `StorageFailed` if the server cannot be reached.
        """
        database = cls(address, connections, read_only=read_only)
        try:
            await database._hand_in(lambda call: database._prepare(call, create))
        except BaseException:
            await database.close()
            raise
        return database

    async def read(self, work: Callable[[PostgresDriver], T]) -> T:
        """Return what `work` returns, which sees one moment of the database in all of its statements.

        Raises `StorageFailed` where the server fails, or all connections stay in use. A caller that is cancelled stops
        waiting.
        """
        result: T = await self._hand_in(lambda call: self._transact(call, "read", work))
        return result

    async def write(self, work: Callable[[PostgresDriver], T]) -> T:
        """Return what `work` returns, which is stored as a whole or not at all.

        Raises as `read` does. If that is while it is committed, nobody knows whether it was stored. Violations of a
        constraint are raised as `psycopg.IntegrityError`. A caller that is cancelled stops waiting, but the work is
        done.
        """
        self.check_writable()
        result: T = await asyncio.shield(self._hand_in(lambda call: self._transact(call, "write", work)))
        return result

    async def write_once(self, work: Callable[[PostgresDriver], T]) -> T:
        """Return what `work` returns, which executes one statement at most. It is a transaction of its own, so nothing
        need be begun and committed, which saves the server and the client a third of their work each.

        Raises as `write` does; if that is a `StorageFailed`, nobody knows whether the statement was carried out.
        """
        self.check_writable()
        result: T = await asyncio.shield(self._hand_in(lambda call: self._execute(call, "write", work)))
        return result

    async def read_once(self, work: Callable[[PostgresDriver], T]) -> T:
        """The same for work that reads."""
        result: T = await self._hand_in(lambda call: self._execute(call, "read", work))
        return result

    def check_open(self) -> None:
        """Raise `StoreError` once it is closed."""
        if self._is_closed:
            raise StoreError(f"{self.name} is closed.")

    def check_writable(self) -> None:
        """Raise `StoreError` if it was opened for reading only, or is closed."""
        self.check_open()
        if self.is_read_only:
            raise StoreError(f"{self.name} was opened for reading only.")

    async def close(self) -> None:
        """Close the connections when the transactions have ended. One that does not end soon is broken off. A second
        call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        self._threads.end(partial(_call_in, loop, ended.set))
        wait = CLOSING
        while not await _is_set(ended, wait):
            for call in tuple(self._running):
                if call.driver is not None:
                    call.driver.break_off()
            wait = LOOK
        self._close_idle()

    # --- in the event loop

    def _hand_in(self, work: Callable[[_Call], Any]) -> asyncio.Future[Any]:
        """Have a thread do this, and return what its caller awaits."""
        self.check_open()
        call = _Call(work)
        future = call.make_future()
        call.job = self._threads.submit(partial(self._serve, call))
        call.timer = asyncio.get_running_loop().call_later(LOOK, self._look_at, call)
        return future

    def _look_at(self, call: _Call) -> None:
        """Look at a call that takes long. Give it up if no thread has come to it; end the wait for a dead server."""
        if call.job.done():  # nobody waits for it any more
            return
        if monotonic() - call.since > PATIENCE and call.job.cancel():
            call.error = StorageFailed(
                f"{self.name} cannot be used now: all {self._connections} connections are in use."
            )
            call.settle()
            return
        if call.driver is not None and call.driver.is_stuck:
            call.driver.break_off()
        call.timer = asyncio.get_running_loop().call_later(LOOK, self._look_at, call)

    # --- in a thread

    def _serve(self, call: _Call) -> None:
        if not call.is_wanted:
            return
        self._running.add(call)
        try:
            call.value = call.work(call)
        except (psycopg.Error, OSError) as error:
            call.error = error if isinstance(error, psycopg.IntegrityError) else failure(self.name, error)
            call.error.__cause__ = error
        except BaseException as error:
            call.error = error
        finally:
            self._running.discard(call)
        call.driver = None
        PendingResult.report((call,))

    def _transact(self, call: _Call, access: Access, work: Callable[[PostgresDriver], T]) -> T:
        """Do the work in a transaction."""
        driver = self._begun(call, self._begin[access])
        try:
            result = work(driver)
            driver.commit()
        except BaseException as error:
            self._give_up(driver, error)
            raise
        self._idle.append(driver)
        return result

    def _execute(self, call: _Call, access: Access, work: Callable[[PostgresDriver], T]) -> T:
        """Do work of one statement. Behind a pooler it needs a transaction, because the session is another one each
        time."""
        if self.is_pooled:
            return self._transact(call, access, work)
        call.driver = driver = self._ready()
        try:
            result = work(driver)
        except BaseException as error:
            self._give_up(driver, error)
            raise
        self._idle.append(driver)
        return result

    def _ready(self) -> PostgresDriver:
        """Return a connection whose session has not ended."""
        while (idle := self._take_idle()) is not None:
            if not idle.has_ended:
                return idle
            idle.close()
        return self._connect()

    def _begun(self, call: _Call, statement: bytes) -> PostgresDriver:
        """Return a connection on which a transaction has begun. Those that broke while nobody used them are replaced:
        what broke one has probably broken them all."""
        while (idle := self._take_idle()) is not None:
            call.driver = idle
            try:
                idle.begin(statement)
                return idle
            except psycopg.Error:
                idle.close()
                self._close_idle()
                if self._is_closed:  # it was broken off
                    raise
        call.driver = driver = self._connect()
        try:
            driver.begin(statement)
        except BaseException:
            driver.close()
            raise
        return driver

    def _connect(self) -> PostgresDriver:
        driver = PostgresDriver.connect(self.address)
        if self.is_pooled or not self._is_prepared:
            driver.connection.prepare_threshold = None  # whoever is lent the session next has the same names
        else:
            driver.set_up(session_statement(self.address))
        return driver

    def _give_up(self, driver: PostgresDriver, error: BaseException) -> None:
        """Roll back what was begun. After an error of the server's, the connection is not used again: it may have been
        lost, or the plans that it keeps may be out of date."""
        if (not isinstance(error, psycopg.Error) or isinstance(error, psycopg.IntegrityError)) and driver.roll_back():
            self._idle.append(driver)
        else:
            driver.close()

    def _take_idle(self) -> PostgresDriver | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _close_idle(self) -> None:
        while (driver := self._take_idle()) is not None:
            driver.close()

    def _prepare(self, call: _Call, create: bool) -> None:
        """Look at the server, and see to the tables."""
        with closing(self._connect()) as driver:
            call.driver, driver.patience = driver, schema.PATIENCE
            found = schema.prepare(driver, self.address, self._begin, read_only=self.is_read_only, create=create)
            self.is_pooled = found.process_id != driver.process_id
            self._is_prepared = True


def _call_in(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Have an event loop call this, unless it is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(act)


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set within so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


class _Call(PendingResult):
    """Work for a thread, and the result that its caller waits for. `driver` is the connection that does it."""

    __slots__ = ("driver", "job", "since", "timer", "work")

    job: Future[None]
    timer: asyncio.TimerHandle

    def __init__(self, work: Callable[[_Call], Any]) -> None:
        super().__init__()
        self.work = work
        self.since = monotonic()
        self.driver: PostgresDriver | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for the result. Work that was not begun is not begun then."""
        return not self._future.cancelled()

    def settle(self) -> None:
        """Give the caller the outcome, and look no more."""
        self.timer.cancel()
        super().settle()
