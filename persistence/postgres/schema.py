"""The tables of a PostgreSQL database: those of `sql.schema`, and who looks after each conversation.

The custody of a conversation stands in its own row, because the UPDATE that stores a step compares it there.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, SmallInteger, or_, text

from ..sql import schema as shared
from ..sql.schema import Text

metadata = MetaData()

for _table in shared.metadata.sorted_tables:
    _table.to_metadata(metadata)

conversations = metadata.tables[shared.conversations.name]

for _column in (
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("holder", Text),
    Column("was_left", SmallInteger, nullable=False, server_default=text("0")),
):
    conversations.append_column(_column)
"""`fence` counts the custodies of the conversation. `holder` is the name of the newest one, NULL once it has let go at
rest. `was_left` says whether that custody found another one that had not let go."""

Index(
    "conversations_working",
    conversations.c.key,
    postgresql_where=or_(conversations.c.waits != text("0"), conversations.c.next_timer.is_not(None)),
)
"""Finds the conversations that wait. Its key is one that no step changes: a step that changes no indexed column is not
noted in the indexes of the table."""
