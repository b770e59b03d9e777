"""The tables that the stores in relational databases share, and how tables are made and migrated.

A conversation is one row that holds its head, and one row for each of its steps. A step is never written again. Moments
are whole microseconds since 1970, in UTC, so they are read back exactly. `events` keeps SQLite's own row numbers.
Without them a row of more than 1 kB, which most answers of a model are, would take a page of its own, and the file
would be a third larger.

In PostgreSQL all integers have 64 bits, as in SQLite, and texts are compared by their code points, as in SQLite: where
an order depends on a language, ids with a prefix do not stand together. Booleans are 0 or 1 in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    or_,
)
from sqlalchemy import Integer as AnyInteger
from sqlalchemy import Text as AnyText
from sqlalchemy.schema import CreateIndex, CreateTable

from ...states.context import CHANGES_CONTEXT
from ...states.events import Opened
from ..summaries import HEADER_COLUMNS

metadata: Final = MetaData()

Integer: Final = AnyInteger().with_variant(BigInteger(), "postgresql")
Text: Final = AnyText().with_variant(AnyText(collation="C"), "postgresql")
Flag: Final = Boolean().with_variant(SmallInteger(), "postgresql")


def _index(name: str, *columns: ColumnElement[object], where: ColumnElement[bool], unique: bool = False) -> None:
    """Add an index of some of the rows."""
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


conversations: Final = Table(
    "conversations",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("seq", Integer, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("state_type", Text, nullable=False),
    Column("waits", Flag, nullable=False),
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
    _index(f"conversations_{_column.name}", _column, where=_column.is_not(None))

events: Final = Table(
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
    _index(f"events_{_column.name}", events.c.conversation, _column, unique=True, where=_column.is_not(None))

CONTEXT_CHANGES = tuple(kind.model_fields["type"].default for kind in CHANGES_CONTEXT if kind is not Opened)
"""The types of the events that change a context, apart from the first of a log."""

_index(
    "events_context_changed",
    *(events.c.conversation, events.c.type, events.c.seq),
    where=or_(*(events.c.type == kind for kind in CONTEXT_CHANGES)),
)

forks: Final = Table(
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

details: Final = Table(
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
    _index(f"details_{_column.name}", _column, where=_column.is_not(None))

metadata_entries: Final = Table(
    "metadata_entries",
    metadata,
    Column("entry", LargeBinary, primary_key=True),
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    sqlite_with_rowid=False,
)
"""Finds conversations by their metadata: a row for each value, with the digest of its name and its value. A digest is
short and compares JSON exactly, however the JSON was written."""

Index("metadata_entries_conversation", metadata_entries.c.conversation)

outbox: Final = Table(
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

acknowledgements: Final = Table(
    "acknowledgements",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("checksum", BigInteger, nullable=False),
)
"""The sum of the checksums of all deliveries of a conversation that were acknowledged. That of the rows in its outbox
is `conversations.sent`, less this. The log does not say to which channels a text went, and a row that is gone leaves no
gap, so that nobody would miss it without these sums. This is a table of its own, because `conversations.state` may be
long, and would be written again with each receipt."""

texts: Final = Table(
    "texts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("part", Integer, nullable=False),
    Column("scope", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("by_user", Flag, nullable=False),
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

text_positions: Final = Table(
    "text_positions",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, nullable=False),
)
"""Up to which step the texts of each conversation are in the full-text index. That index is no table of this schema: it
is made when somebody searches for the first time."""

hidden_turns: Final = Table(
    "hidden_turns",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("first", Integer, primary_key=True),
    Column("last", Integer, nullable=False),
)
"""The turns of each conversation that are in another branch than the one under way, as far as the index has followed
the log: their texts are not found. Most conversations have none."""

text_vectors: Final = Table(
    "text_vectors",
    metadata,
    Column("text", Integer, ForeignKey("texts.id", ondelete="CASCADE"), primary_key=True),
    Column("space", Text, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)
"""Vectors of texts, of length 1, as 32-bit floating-point numbers. `space` names what made them."""

files: Final = Table(
    "files",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("sha256", Text, nullable=False, unique=True),
    Column("size", Integer, nullable=False),
    Column("place", Text),
    sqlite_autoincrement=True,
)
"""Every file that conversations hold, once, by the digest of its bytes. These are in `file_parts`, or, where there is
a `place`, in the file store that the engine was opened with. No key is given twice, since parts may be left when a file
is gone."""

file_parts: Final = Table(
    "file_parts",
    metadata,
    Column("file", Integer, ForeignKey("files.key", ondelete="CASCADE"), primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""The bytes of files, in parts of one length but for the last, so that nobody needs to hold a whole file to read some
of it."""

file_uses: Final = Table(
    "file_uses",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("file", Integer, ForeignKey("files.key"), primary_key=True),
    Column("mark", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""Which conversations may refer to which files. A row is stored before the first step that does, so a file that a log
refers to is never deleted. `mark` is another text each time that a file is kept for the conversation: whoever kept it
first and does not need it any more takes the row back, unless somebody else has kept it since."""

Index("file_uses_file", file_uses.c.file)


# --- making and migrating


def creating_statements(tables: MetaData, dialect: Dialect) -> Iterator[str]:
    """Yield what creates these tables and their indexes. `metadata.create_all` would look for each table, and write
    each statement anew, which takes longer than to open a database."""
    for table in tables.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))


_ALEMBIC = Lock()
"""Alembic keeps its connection in a global variable: if two threads opened two databases at once, one database would be
given the tables of both."""


def run_migrations(connection: Connection, scripts: Path, revision: str, **options: Any) -> None:
    """Run the migrations in the folder `scripts` that the database has not had yet, up to this revision, in the
    transaction that has begun. The `options` are those of `alembic.context.configure`. Alembic is imported only here,
    because that takes longer than anything else that opening a database needs."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, **options})
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _ALEMBIC:
        command.upgrade(config, revision)
