"""The tables in PostgreSQL: those of every store, what belongs to PostgreSQL alone, and how they come to be there.

`prepare` asks one statement when there is nothing to do. New tables are created as they are defined here, older ones
are migrated by alembic, which is imported only then. Either is one transaction, behind a lock of the whole database: of
two processes that open it at once, one does it, and the other one finds it done.

The tables record their revision in a table with a name of its own: they may stand beside those of the application,
which may have an `alembic_version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from sqlalchemy import (
    BigInteger,
    Column,
    Computed,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    NullPool,
    SmallInteger,
    Table,
    create_engine,
    or_,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.base import PGDialect

from ...states.errors import StoreError
from ..sql import schema as shared
from .address import PostgresAddress
from .connection import Access, PostgresDriver
from .job_tables import JobTables

REVISIONS = ("0001",)
"""The revisions of the tables that this turnwise knows, oldest first: the files in `migrations/versions`."""

HEAD = REVISIONS[-1]

REVISION_TABLE = "turnwise_revision"

PATIENCE = 3600.0
"""Seconds that the server may take to answer a statement that creates or migrates tables."""

OLDEST_SERVER = 140000
"""The oldest server that is used, as `server_version_num` counts. The project behind PostgreSQL maintains none that is
older; the tests run on 15 and 18."""

metadata: Final = MetaData()

for _table in shared.metadata.sorted_tables:
    if _table not in (shared.texts, shared.outbox):
        _table.to_metadata(metadata)

conversations: Final = metadata.tables["conversations"]

conversations.append_column(Column("fence", BigInteger, nullable=False, server_default="0"))
conversations.append_column(Column("holder", shared.Text))
conversations.append_column(Column("was_left", SmallInteger, nullable=False, server_default="0"))
"""The custody of a conversation stands in its own row, because the UPDATE that stores a step compares it there. `fence`
counts the custodies of the conversation. `holder` is the name of the newest one, NULL once it has let go at rest.
`was_left` says whether that custody found another one that had not let go."""

conversations.append_column(Column("updated_minute", BigInteger, Computed("updated_at / 60000000", persisted=True)))
"""The minute of `updated_at`, since 1970. Lists are read in its order, and the few conversations of a minute sorted. An
index of `updated_at` itself would be written with each step."""

Index("conversations_updated", conversations.c.updated_minute)
conversations.indexes -= {index for index in conversations.indexes if index.name == "conversations_owner"}
Index(
    "conversations_owner",
    conversations.c.owner,
    conversations.c.updated_minute,
    postgresql_where=conversations.c.owner.is_not(None),
)
"""Finds the conversations of an owner, those that moved last first; in the shared schema they are sorted."""

Index(
    "conversations_working",
    conversations.c.key,
    postgresql_where=or_(conversations.c.waits != text("0"), conversations.c.next_timer.is_not(None)),
)
"""Finds the conversations that wait. Its key is one that no step changes: a step that changes no indexed column is not
noted in the indexes of the table."""

Index(
    "conversations_next_timer",
    conversations.c.next_timer,
    postgresql_where=conversations.c.next_timer.is_not(None),
)
"""Finds the timers that have become due, as `conversations_wakes_at` finds the wake-ups."""

outbox: Final = Table(
    "outbox",
    metadata,
    Column("conversation", BigInteger, ForeignKey("conversations.key", ondelete="CASCADE"), nullable=False),
    Column("target", shared.Text, nullable=False),
    Column("effect_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("next_attempt", BigInteger),
    Column("begun", BigInteger, nullable=False, server_default="0"),
)
"""The deliveries, as in the shared schema. A target may be longer than what an index takes, so the index is without it.
A step names each of its deliveries once."""

Index("outbox_conversation", outbox.c.conversation, outbox.c.effect_id)
Index("outbox_next_attempt", outbox.c.next_attempt, postgresql_where=outbox.c.next_attempt.is_not(None))
"""Finds the deliveries that are to be tried again."""

texts: Final = Table(
    "texts",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("conversation", BigInteger, ForeignKey("conversations.key", ondelete="CASCADE"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("part", BigInteger, nullable=False),
    Column("scope", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("by_user", SmallInteger, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("said", LargeBinary, nullable=False),
    Column("words", postgresql.TSVECTOR, nullable=False),
)
"""The texts that may be found again, as in the shared schema. `said` is the text itself, in UTF-8, which PostgreSQL
compresses; its own texts cannot hold every character. `length` counts its words. `words` are the different ones, each
with the number of its scope before it, so that the index finds those of one owner only."""

Index("texts_conversation", texts.c.conversation, texts.c.seq)
Index("texts_scope", texts.c.scope, texts.c.at, texts.c.id)
Index("texts_words", texts.c.words, postgresql_using="gin", postgresql_with={"fastupdate": "off"})
"""Without `fastupdate` a search reads nothing of what others have added since the last vacuum."""


_STORAGE = (
    "ALTER TABLE conversations SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, "
    "toast.autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0.05)",
)
"""A step writes the row of its conversation again. Where a page has room, it stays in the page and no index is touched;
where dead rows are soon removed, tables with millions of rows stay small."""


class Found(NamedTuple):
    """What a server says of itself and of the database."""

    revision: str | None
    version: int
    encoding: str
    user: str
    schema: str | None
    is_standby: bool
    process_id: int
    is_denied: bool
    """Whether the user lacks a right on one of the tables."""


_SEQUENCES = ("conversations_key_seq", "texts_id_seq")
"""The sequences that PostgreSQL makes for the tables, and names after them."""

_SERVER = """
current_setting('server_version_num')::int, current_setting('server_encoding'), current_user::text,
current_schema()::text, pg_is_in_recovery(), pg_backend_pid()"""
_LOOK = f"""
SELECT (SELECT max(version_num) FROM {REVISION_TABLE}), {_SERVER}, EXISTS (
    SELECT 1 FROM pg_class WHERE relname = ANY(%s) AND relkind IN ('r', 'p', 'S')
    AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{REVISION_TABLE}'))
    AND NOT CASE relkind WHEN 'S' THEN %s OR has_sequence_privilege(oid, 'USAGE')
        ELSE has_table_privilege(oid, 'SELECT') AND (%s OR has_table_privilege(oid, 'INSERT')
            AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) END)"""
_LOOK_AT_SERVER = f"SELECT NULL, {_SERVER}, false"
_TAKEN = """
SELECT relname::text FROM pg_class WHERE relname = ANY(%s) AND relnamespace = current_schema()::regnamespace
ORDER BY relname"""

_EXISTS = f"SELECT to_regclass('{REVISION_TABLE}') IS NOT NULL"
_NO_LIMITS = "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)"
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('turnwise tables'))"


def prepare(
    driver: PostgresDriver,
    address: PostgresAddress,
    begin: Mapping[Access, bytes],
    *,
    read_only: bool,
    create: bool,
) -> Found:
    """Look at the server, and bring the tables to the newest revision unless they are to be read only. `begin` is what
    begins each kind of transaction.

    Raises `StoreError`, and changes nothing then, for a server that cannot be used; and for tables that are missing
    where none may be created, that a newer turnwise made, or that are another program's.
    """
    found = _look(driver, address, begin["read"], read_only)
    _check(found, address, read_only=read_only, create=create)
    if found.revision is None:
        driver.begin(begin["write"])
        _create_once(driver, address, found)
        driver.commit()
    elif found.revision != HEAD:
        run_migrations(address)
    return found


def _look(driver: PostgresDriver, address: PostgresAddress, begin: bytes, read_only: bool) -> Found:
    """Look at the server and the tables in one statement; in two, if there are none."""
    found: Any
    driver.begin(begin)
    try:
        found = driver.execute(_LOOK, ([*metadata.tables, *_SEQUENCES], read_only, read_only)).fetchone()
    except psycopg.errors.UndefinedTable:
        driver.roll_back()
        driver.begin(begin)
        found = driver.execute(_LOOK_AT_SERVER).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise _denied(address, driver.connection.info.user) from error
    driver.commit()
    return Found(*found)


def _check(found: Found, address: PostgresAddress, *, read_only: bool, create: bool) -> None:
    """Raise `StoreError` if the database cannot be used as it is."""
    name = address.name
    if found.version < OLDEST_SERVER:
        major = f"{found.version // 10000}, and turnwise needs {OLDEST_SERVER // 10000} or newer"
        raise StoreError(f"The server of {name} is PostgreSQL {major}.")
    if found.encoding != "UTF8":
        raise StoreError(f"{name} keeps texts in {found.encoding}; turnwise needs a database that was made with UTF8.")
    if found.is_standby and not read_only:
        raise StoreError(f"{name} is on a standby server, which takes no writes: name the primary server.")
    if found.revision is not None and found.revision not in REVISIONS:
        raise StoreError(f"{name} was written by a newer turnwise; update turnwise to open it.")
    if found.revision is None and (read_only or not create):
        raise StoreError(f"{name} holds no conversations: turnwise has not been used with it yet.")
    if found.is_denied:
        raise _denied(address, found.user)
    if read_only and found.revision != HEAD:
        raise StoreError(f"{name} was written by an older turnwise; open it for writing once, so that it is migrated.")


def _denied(address: PostgresAddress, user: str) -> StoreError:
    return StoreError(f"{address.name} cannot be used: the user {user} lacks rights on the tables of turnwise.")


def _create_once(driver: PostgresDriver, address: PostgresAddress, found: Found) -> None:
    """Create the tables, unless another process has done it in the meantime."""
    driver.execute(_NO_LIMITS)
    driver.execute(_LOCK)
    if driver.execute(_EXISTS).fetchone() == (True,):
        return
    try:
        _create(driver, address, found)
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            f"{address.name} cannot be used: the user {found.user} may not create the tables of turnwise in it."
        ) from error


def _create(driver: PostgresDriver, address: PostgresAddress, found: Found) -> None:
    if found.schema is None:
        if address.schema is None:
            raise StoreError(f"{address.name} has none of the schemas of its search path; name one: ?schema=turnwise")
        driver.execute(f'CREATE SCHEMA IF NOT EXISTS "{address.schema}"')
    taken = [name for (name,) in driver.execute(_TAKEN, (list(metadata.tables),))]
    if taken:
        raise StoreError(
            f"{address.name} has tables of another program whose names turnwise needs ({', '.join(taken)}); "
            "keep its own in a schema of their own: ?schema=turnwise"
        )
    driver.execute(";\n".join(_creating_statements()))
    JobTables.install(driver)


@cache
def _creating_statements() -> tuple[str, ...]:
    """Return what creates the tables and their indexes, and records their revision."""
    revision = f"CREATE TABLE {REVISION_TABLE} (version_num VARCHAR(32) PRIMARY KEY)"
    record = f"INSERT INTO {REVISION_TABLE} VALUES ('{HEAD}')"
    tables = shared.creating_statements(metadata, PGDialect())  # type: ignore[no-untyped-call]
    return (*tables, *_STORAGE, revision, record)


SCRIPTS = Path(__file__).with_name("migrations")


def run_migrations(address: PostgresAddress) -> None:
    """Run all migrations that the database has not had yet, over a connection that alembic may use as it does."""

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(address.conninfo)

    engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in filter(None, (address.search_path, _LOCK)):
            connection.exec_driver_sql(statement)
        shared.run_migrations(connection, SCRIPTS, HEAD, version_table=REVISION_TABLE)
