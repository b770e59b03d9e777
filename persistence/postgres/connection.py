"""One connection to PostgreSQL: how it is made, what executes statements on it, and what its errors mean.

A connection serves one transaction after the other. All that a transaction needs is set in the message that begins it,
since a pooler in transaction mode gives every transaction another session. This costs the server 10 µs.

PostgreSQL's texts hold every character but NUL. Names that an application or a person gives may have it, so in them it
is escaped, and so is the character that escapes it. JSON escapes both by itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.errors import error_from_result
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown, TextLoader

from ...states.errors import StoreError
from ..errors import StorageFailed
from ..sql.statements import Statement

if TYPE_CHECKING:
    from ..sql.statements import Driver
    from .address import PostgresAddress

STATEMENT_TIMEOUT = 60.0
"""Seconds after which the server gives a statement up."""

LOCK_TIMEOUT = 10.0
"""Seconds for which a statement waits for what another transaction holds locked. These end within milliseconds, unless
their process stands still."""

IDLE_TIMEOUT = 10.0
"""Seconds after which the server ends a transaction whose process does nothing: it stands still, and others wait."""

LATEST_ANSWER = STATEMENT_TIMEOUT + 10
"""Seconds after which a server that has not answered a statement is not waited for any longer."""

PREPARE_AFTER = 1
"""How often a connection executes a statement until it has the server keep it, which saves that 60 µs each time."""

Access = Literal["read", "write"]
"""What a transaction of several statements does."""

_BEGIN: dict[Access, str] = {
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
}
LIMITS = {
    "statement_timeout": STATEMENT_TIMEOUT,
    "lock_timeout": LOCK_TIMEOUT,
    "idle_in_transaction_session_timeout": IDLE_TIMEOUT,
}
"""What bounds each transaction, by the name that PostgreSQL has for it, in seconds."""

WRITES = "SET default_transaction_read_only = off; SET default_transaction_isolation = 'read committed'"
"""Has statements outside of transactions write, also where the user or the database has other defaults."""


_PLAN_ONCE = "SET plan_cache_mode = force_generic_plan"
"""Has the server plan a statement that it keeps once and not six times. Those outside of transactions find their rows
by unique keys, so there is one good plan, whatever the parameters are."""
_PLAN_AS_NEEDED = "SET LOCAL plan_cache_mode = auto"


def begin_statement(address: PostgresAddress, access: Access) -> bytes:
    """Return what begins a transaction: one that sees a single moment, or one that writes."""
    limits = [f"SET LOCAL {name} = {int(seconds * 1000)}" for name, seconds in LIMITS.items()]
    return "; ".join(filter(None, (_BEGIN[access], *limits, _PLAN_AS_NEEDED, address.search_path))).encode()


def session_statement(address: PostgresAddress) -> bytes:
    """Return what sets for a whole session what `begin_statement` sets for a transaction. Not behind a pooler."""
    limits = [f"SET {name} = {int(seconds * 1000)}" for name, seconds in LIMITS.items()]
    path = address.search_path.replace("SET LOCAL", "SET")
    return "; ".join(filter(None, (WRITES, *limits, _PLAN_ONCE, path))).encode()


class PostgresDriver:
    """A connection that executes statements within a transaction. Implements `sql.statements.Driver`.

    One thread uses it at a time; `break_off` and `is_stuck` are for others. `connection` is the driver's own, for what
    takes part in the transaction.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._server = connection.pgconn
        self.process_id: int = connection.info.backend_pid
        """The number of the server's process, or what a pooler makes up for it."""
        self.patience = LATEST_ANSWER
        """Seconds after which an answer is not waited for any longer."""
        self._waits_since = monotonic()
        self._poll = _polling(connection.fileno())
        self._guard = Lock()
        """Held where the socket is closed or broken off: a number of a socket that was closed may be another's."""

    @classmethod
    def connect(cls, address: PostgresAddress) -> PostgresDriver:
        """Connect to the server. Raises `StorageFailed`."""
        try:
            connection = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=PREPARE_AFTER)
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise no_connection(address.name, error) from error
        connection.prepared_max = 200
        adapt(connection)
        return cls(connection)

    # --- statements: in all of them the server is waited for

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Execute a statement: one that the stores share, or one with psycopg's `%s`."""
        self._waits_since = monotonic()
        return self.connection.execute(_text(sql), parameters)

    def execute_once(self, sql: str, parameters: Mapping[str, Any]) -> psycopg.Cursor[Any]:
        """Execute a statement that is planned for these very parameters, which it has by name."""
        self._waits_since = monotonic()
        return self.connection.execute(sql.encode(), parameters, prepare=False)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> psycopg.Cursor[Any]:
        """Execute a statement once for each row of parameters. The row count is that of all of them."""
        rows = list(parameters)
        if len(rows) == 1:
            return self.execute(sql, rows[0])
        self._waits_since = monotonic()
        cursor = self.connection.cursor()
        cursor.executemany(_text(sql), rows)
        return cursor

    def begin(self, statement: bytes) -> None:
        """Begin a transaction by the statement that `begin_statement` has made."""
        self._send(statement)

    def set_up(self, statement: bytes) -> None:
        """Set up the session by the statement that `session_statement` has made."""
        self._send(statement)

    def commit(self) -> None:
        """Commit. Raises an error of the driver if nothing was committed, or if that is not known."""
        self._send(b"COMMIT", expected=b"COMMIT")

    def roll_back(self) -> bool:
        """Roll back; returns whether the connection is still good for something."""
        with suppress(psycopg.Error):
            self._send(b"ROLLBACK")
            return True
        return False

    def _send(self, statement: bytes, expected: bytes | None = None) -> None:
        """Send a statement without parameters, past the driver's cursors, which take as long as the server does."""
        self._waits_since = monotonic()
        result = self._server.exec_(statement)
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise error_from_result(result)
        if expected is not None and result.command_status != expected:
            raise psycopg.InternalError("the transaction was rolled back, because a statement in it had failed")

    # --- its end

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended the session. It says nothing between two statements but that."""
        return bool(self._poll(0))

    @property
    def is_stuck(self) -> bool:
        """Whether the server has owed an answer for so long that none is to be expected."""
        return monotonic() - self._waits_since > self.patience

    def break_off(self) -> None:
        """Have the thread that waits for the server receive an error at once. For other threads."""
        with (
            self._guard,
            suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self.connection.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        with self._guard:
            self.connection.close()


def _polling(descriptor: int) -> Callable[[int], object]:
    """Return a function that says whether there is something to read, after so many milliseconds at most."""
    if not hasattr(select, "poll"):  # Windows
        return lambda _: select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll


def _text(sql: str) -> Any:
    return sql.postgresql if isinstance(sql, Statement) else sql


async def is_pooled(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Whether a pooler stands between this connection and the server: it makes up the number of the server's
    process."""
    cursor = await connection.cursor(row_factory=tuple_row).execute("SELECT pg_backend_pid()")
    return await cursor.fetchone() != (connection.info.backend_pid,)


# --- notices


class Hearing:
    """What is notified to a connection that listens, and executes nothing else meanwhile. Made by `hearing`.

    psycopg's own `notifies` has the event loop watch the connection anew for each notice, which takes three times as
    long as to hear it.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._server = connection.pgconn
        self._encoding = connection.info.encoding
        self._heard: list[psycopg.Notify] = []
        self._error: psycopg.Error | None = None
        self._has_news = asyncio.Event()

    async def next(self, seconds: float | None = None) -> Sequence[psycopg.Notify]:
        """Return what was notified since the last call, once there is something; nothing after so many seconds. Raises
        `psycopg.Error` when the connection is lost."""
        if not self._has_news.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_news.wait()
        heard, self._heard = self._heard, []
        if self._error is None:
            self._has_news.clear()
        elif not heard:
            raise self._error
        return heard

    def receive(self) -> None:
        """Take in what the server has sent. Called when there is something."""
        try:
            self._server.consume_input()
            while (notice := self._server.notifies()) is not None:
                channel, payload = (text.decode(self._encoding, "replace") for text in (notice.relname, notice.extra))
                self._heard.append(psycopg.Notify(channel, payload, notice.be_pid))
        except psycopg.Error as error:
            self._error = error
        if self._heard or self._error is not None:
            self._has_news.set()


@contextmanager
def hearing(connection: psycopg.AsyncConnection[Any]) -> Iterator[Hearing]:
    """Hear what is notified to a connection by whose statements the server was told to LISTEN. It is used for nothing
    else meanwhile."""
    heard, loop = Hearing(connection), asyncio.get_running_loop()
    descriptor = connection.fileno()
    loop.add_reader(descriptor, heard.receive)
    try:
        yield heard
    finally:
        loop.remove_reader(descriptor)


# --- values

_ESCAPE, _ESCAPED, _NUL = "\1", "\1\2", "\1\3"


def escaped(text: str) -> str:
    """Return the text without NUL. No two texts are escaped to the same one, and a prefix to a prefix. `Pure.`"""
    if "\0" in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ESCAPED).replace("\0", _NUL)
    return text


def unescaped(text: str) -> str:
    """Return the text that was escaped. `Pure.`"""
    if _ESCAPE in text:
        return text.replace(_NUL, "\0").replace(_ESCAPED, _ESCAPE)
    return text


class _TextDumper(StrDumperUnknown):
    """Writes texts as parameters."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextLoader(TextLoader):
    """Reads columns of texts."""

    def load(self, data: Buffer) -> bytes | str:
        text = super().load(data)
        return unescaped(text) if isinstance(text, str) else text


def adapt(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Have a connection escape texts, and send every integer with 64 bits: the server keeps a plan for each combination
    of sizes. To be called once, when it was opened."""
    connection.adapters.register_dumper(str, _TextDumper)
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_loader("text", _TextLoader)


# --- errors

_LOST = "the connection was lost"

_CAUSES = {
    "25006": "the server takes no writes",
    "40001": "another transaction was in the way",
    "40P01": "another transaction was in the way",
    "53100": "the server's disk is full",
    "53200": "the server has no memory left",
    "53300": "the server has no connection left",
    "55P03": "another program holds it locked",
    "57014": "it took too long",
}
"""What passes, by the code of PostgreSQL; see its documentation, appendix A."""

_LOST_CODES = ("08", "57P", "25P03")

_REFUSED_CODES = {
    "42501": "its user lacks the rights",
    "42P01": "it lacks tables of turnwise",
    "42703": "it lacks columns of turnwise",
    "42883": "it lacks functions of turnwise",
}
"""What does not pass by waiting."""


def failure(name: str, error: psycopg.Error | OSError) -> StoreError:
    """Return the error of a store that an error of the driver is: `StorageFailed`, unless waiting does not help."""
    code = getattr(error, "sqlstate", None) or ""
    if refused := _REFUSED_CODES.get(code):
        said = getattr(getattr(error, "diag", None), "message_primary", None)
        return StoreError(
            f"{name} cannot be used: {refused} ({said})." if said else f"{name} cannot be used: {refused}."
        )
    if isinstance(error, psycopg.DataError):
        return StoreError(f"{name} cannot be used: a number or a text is one that PostgreSQL has no place for.")
    cause = _CAUSES.get(code) or (_LOST if not code or code.startswith(_LOST_CODES) else f"the server reports {code}")
    return StorageFailed(f"{name} cannot be used now: {cause}.")


def no_connection(name: str, error: psycopg.Error | OSError | UnicodeError) -> StorageFailed:
    """Return the error of a store that a connection which could not be made is."""
    return StorageFailed(f"{name} cannot be opened now: {why_not_connected(error)}.")


_TOO_MANY = re.compile("too many connections|too many clients|connection slots are reserved")
_FEWER = (
    "a process takes up to database_connections and 2 more, so lower that setting or have the server admit more of them"
)


def why_not_connected(error: Exception) -> str:
    """Return why a connection failed, in the words of the server or of the operating system, without a full stop. They
    hold no password. Where it has too many, says what to do."""
    if isinstance(error, UnicodeError):
        return "the name of its host cannot be looked up"
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    said = re.sub(r"^\w+:\s+", "", first.rpartition(" failed: ")[2]).strip().rstrip(".")
    return f"{said}; {_FEWER}" if _TOO_MANY.search(said) else said


if TYPE_CHECKING:
    _DRIVER: type[Driver] = PostgresDriver
