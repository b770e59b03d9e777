"""The tables of a database, and how those of an older one are brought to the newest revision.

A conversation is one row that holds its head, and one row for each of its steps. A step is never written again. Moments
are whole microseconds since 1970, in UTC, so they are read back exactly. `events` keeps SQLite's own row numbers.
Without them a row of more than 1 kB, which most answers of a model are, would take a page of its own, and the file
would be a third larger.

A new database gets its tables as they are defined here. Older ones are migrated by alembic, revision by revision; it is
imported only for them, because that takes longer than anything else that opening a database needs. A test compares the
tables that come from both.

The tables of older versions did not store some things, although the logs say them: the titles of conversations that
their first messages give, and the roles and parents that their first steps name. A migration stores these values once,
by SQL functions. A database that is only read is not migrated: there, views take the place of the missing tables and
columns, so that the same statements read it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from functools import cache
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    or_,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from ..codec import delivery_checksum, origin_checksum
from ..summaries import HEADER_COLUMNS, message_title
from .file import APPLICATION_ID, HEAD, driver_of

metadata = MetaData()

conversations = Table(
    "conversations",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("seq", Integer, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("state_type", Text, nullable=False),
    Column("waits", Boolean, nullable=False),
    Column("next_timer", BigInteger),
    Column("owner", Text),
    Column("parent", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("wakes_at", BigInteger),
    Column("sent", BigInteger, nullable=False, server_default="0"),
)
"""The head of each conversation: `seq` and `chain` are those of its newest step, `state` is the state in full.

`waits` says whether an answer is awaited of a model, a tool or a retry: work that must be taken over after a restart.
`state` stands behind what every list needs, because SQLite moves the end of a long row to other pages. `wakes_at`, the
next scheduled wake-up, is NULL in most rows, which SQLite knows from the beginning of a row, and is found by its index.
`owner` is the owner that the first step names; an imported log of an older version may have one that no step names.
`parent` is what an export says of the parent, if it says anything; the one that the first step names is in `details`.
`sent` is the sum of the checksums of all deliveries that were put into the outbox; see `acknowledgements`.
"""

for _column in (conversations.c.owner, conversations.c.wakes_at):
    Index(f"conversations_{_column.name}", _column, sqlite_where=_column.is_not(None))

events = Table(
    "events",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("event_id", Text),
    Column("effect_id", Integer),
    Column("type", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("payload", Text, nullable=False),
    Column("effects", Text),
    Column("ended", Text),
    Column("state", LargeBinary, nullable=False),
    Column("chain", LargeBinary, nullable=False),
)
"""Every step of every conversation: the event, what it led to, and two digests of 16 bytes.

`event_id` is the id of a request, `effect_id` the id of the effect that an answer belongs to. Each is unique in its
conversation, so nothing is taken twice. `state` is the digest of the state after the step. `chain` covers this row and
the `chain` of the row before, so that damage is found which SQLite itself does not notice.

The last index finds the steps that a conversation's context follows from without reading its log.
"""

for _column in (events.c.event_id, events.c.effect_id):
    Index(f"events_{_column.name}", events.c.conversation, _column, unique=True, sqlite_where=_column.is_not(None))

CONTEXT_CHANGES = ("policy_changed", "tools_changed", "details_changed", "schedule_changed")
"""The events that change a context, apart from the first of a log."""

Index(
    "events_context_changed",
    *(events.c.conversation, events.c.type, events.c.seq),
    sqlite_where=or_(*(events.c.type == kind for kind in CONTEXT_CHANGES)),
)

forks = Table(
    "forks",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("origin", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("checksum", LargeBinary),
)
"""Where copied conversations come from: the id of the original, which may have been deleted since, and the newest of
its steps that was copied. No step of the log says so; `checksum`, the digest of both and of the log up to there, shows
whether one of them was changed. This is a table of its own, because few conversations have such a row, and SQLite would
have to read to the end of every long row to find a column behind `conversations.state`."""

details = Table(
    "details",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("first_message", Text),
    *(Column(name, Text) for name in HEADER_COLUMNS),
)
"""What a list shows of conversations: the title that the first message of a user gives, and the header. What a
conversation does not have is NULL. A conversation that has nothing of it has no row.

All of it follows from the log (`summaries.Details`). It is a table of its own, because it would stand behind the long
`conversations.state`, and is written when it changes, not with each step."""

for _column in (details.c.role, details.c.parent, details.c.works_for):
    Index(f"details_{_column.name}", _column, sqlite_where=_column.is_not(None))

metadata_entries = Table(
    "metadata_entries",
    metadata,
    Column("entry", LargeBinary, primary_key=True),
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    sqlite_with_rowid=False,
)
"""Finds conversations by their metadata: a row for each value, with the digest of its name and its value. A digest is
short and compares JSON exactly, however the JSON was written."""

Index("metadata_entries_conversation", metadata_entries.c.conversation)

outbox = Table(
    "outbox",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("target", Text, primary_key=True),
    Column("effect_id", Integer, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt", BigInteger),
    Column("begun", Integer, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)
"""Deliveries that are not acknowledged: one row for each effect that is not awaited and each of its targets, in order
for each target. The effect itself is stored with the step `seq`. The row is deleted when the delivery is acknowledged.
`begun` counts the attempts that a later process has begun and in which it died."""

acknowledgements = Table(
    "acknowledgements",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("checksum", BigInteger, nullable=False),
)
"""The sum of the checksums of all deliveries of a conversation that were acknowledged. That of the rows in its outbox
is `conversations.sent`, less this. The log does not say to which channels a text went, and a row that is gone leaves no
gap, so that nobody would miss it without these sums. This is a table of its own, because `conversations.state` may be
long, and would be written again with each receipt."""

texts = Table(
    "texts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("part", Integer, nullable=False),
    Column("scope", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("by_user", Boolean, nullable=False),
    Column("source", Integer),
    Column("path", Text),
    Column("text", Text),
    Column("checksum", Integer, nullable=False),
    sqlite_autoincrement=True,
)
"""The texts that may be found again. They follow from the log and are added some time after the steps.

`seq` is the step that added the text, and `part` counts the texts of that step. `scope` is the number of the owner, or
of the conversation if it has none. The text stands at `path` in the payload of the step `source`; only a text that
stands in no payload is written out. A number is never given to another text, so it can be a key elsewhere.
"""

Index("texts_conversation", texts.c.conversation, texts.c.seq)
Index("texts_scope", texts.c.scope, texts.c.at)

text_positions = Table(
    "text_positions",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, nullable=False),
)
"""Up to which step the texts of each conversation are in the full-text index. That index is no table of this schema: it
is made when somebody searches for the first time."""

text_vectors = Table(
    "text_vectors",
    metadata,
    Column("text", Integer, ForeignKey("texts.id", ondelete="CASCADE"), primary_key=True),
    Column("space", Text, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)
"""Vectors of texts, of length 1, as 32-bit floating-point numbers. `space` names what made them."""


SCRIPTS = Path(__file__).with_name("migrations")

_REVISION_TABLE = (
    "CREATE TABLE alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""The table in which alembic records the revision, as it makes it itself."""

_ALEMBIC = threading.Lock()
"""Alembic keeps its connection in a global variable: if two threads opened two databases at once, one database would be
given the tables of both."""


def migrate(connection: Connection, revision: str | None) -> None:
    """Migrate the tables from `revision` (None for an empty file) to `HEAD`, in one transaction."""
    if revision is None:
        create_tables(connection)
    elif revision != HEAD:
        run_migrations(connection)


def create_tables(connection: Connection) -> None:
    """Create the tables of a new database, and record that they have the newest revision."""
    with connection.begin():
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(_REVISION_TABLE)
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (HEAD,))
        for statement in _creating_statements():
            connection.exec_driver_sql(statement)


@cache
def _creating_statements() -> tuple[str, ...]:
    """Return what creates the tables and their indexes, written once: `metadata.create_all` looks for each table and
    writes each statement anew, which takes longer than to open the database."""
    elements: list[ExecutableDDLElement] = []
    for table in metadata.sorted_tables:
        elements.append(CreateTable(table))
        elements += (CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name)))
    return tuple(str(element.compile(dialect=sqlite.dialect())) for element in elements)


def run_migrations(connection: Connection) -> None:
    """Run all migrations that the database has not had yet, from the first one if it is new."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _ALEMBIC, connection.begin():
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        _add_functions(driver_of(connection))
        command.upgrade(config, HEAD)


_OPENED = "(SELECT opened_field(CAST(payload AS BLOB), '{}') FROM main.events WHERE conversation = key AND seq = 1)"
_AGENT = {name: _OPENED.format(name) for name in ("role", "parent", "works_for")}
_FIRST_MESSAGE = """(
    SELECT message_title(CAST(payload AS BLOB)) FROM main.events
    WHERE conversation = key AND type = 'user_message' ORDER BY seq LIMIT 1
)"""
_CONVERSATIONS = {column.name: column.name for column in conversations.columns}
_OUTBOX = {column.name: column.name for column in outbox.columns} | {"begun": "0"}
_FORKS = {column.name: column.name for column in forks.columns} | {"checksum": "NULL"}
_VIEW = "CREATE TEMP VIEW {} AS SELECT {} FROM main.{} {}"
_ACKNOWLEDGEMENTS = "CREATE TEMP VIEW acknowledgements AS SELECT NULL AS conversation, NULL AS checksum WHERE false"
_METADATA_ENTRIES = "CREATE TEMP VIEW metadata_entries AS SELECT NULL AS entry, NULL AS conversation WHERE false"


def _add_functions(driver: sqlite3.Connection) -> None:
    """Give this connection the SQL functions that the migrations use."""
    driver.create_function("message_title", 1, _title, deterministic=True)
    driver.create_function("opened_field", 2, _opened_field, deterministic=True)
    driver.create_function("delivery_checksum", 2, delivery_checksum, deterministic=True)
    driver.create_function("origin_checksum", 3, origin_checksum, deterministic=True)


def add_views(driver: sqlite3.Connection, revision: str) -> None:
    """Give this connection views in place of what the tables of this revision lack: `details` and `metadata_entries`
    before 0004; the role, the parent and the wake-up before 0006; the checksums, and the attempts in which processes
    have died, before 0007."""
    if revision >= "0007":
        return
    driver.execute(_VIEW.format("outbox", _selected(_OUTBOX), "outbox", ""))
    driver.execute(_VIEW.format("forks", _selected(_FORKS), "forks", ""))
    driver.execute(_ACKNOWLEDGEMENTS)
    older = {"sent": "NULL"} if revision >= "0006" else {"sent": "NULL", "wakes_at": "NULL"}
    driver.execute(_VIEW.format("conversations", _selected(_CONVERSATIONS | older), "conversations", ""))
    if revision >= "0006":
        return
    _add_functions(driver)
    details = {"conversation": "key", "title": "title", "first_message": "first_message", "metadata": "metadata"}
    stored = "LEFT JOIN main.details ON main.details.conversation = key"
    if revision < "0004":
        details |= {"title": "NULL", "first_message": _FIRST_MESSAGE, "metadata": "NULL"}
        stored = ""
        driver.execute(_METADATA_ENTRIES)
    driver.execute(_VIEW.format("details", _selected(details | _AGENT), "conversations", stored))


def _selected(columns: dict[str, str]) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in columns.items())


def _title(payload: bytes) -> str | None:
    """Return the title that the payload of a `UserMessage` gives; None if damage has made it unreadable."""
    try:
        message = json.loads(payload)
        return message_title(message["text"], len(message.get("images", ())))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _opened_field(payload: bytes, name: str) -> str | None:
    """Return a text of the payload of an `Opened`; None if there is none, or if damage has made it unreadable.

    Most payloads lack it, and a given history makes some of them long. So a payload is only parsed if it may have it.
    """
    if f'"{name}":"'.encode() not in payload:
        return None
    try:
        value = json.loads(payload).get(name)
    except (ValueError, AttributeError, RecursionError):
        return None
    known = value in ("background", "sub_agent") if name == "role" else isinstance(value, str)
    return value if known else None
