"""The tables of a database.

A conversation is one row that holds where it rests now, and one row for each of its steps. The steps are never written
again. Moments are whole microseconds since 1970, in UTC, so they come back exactly.

`events` keeps SQLite's own row numbers: without them a row of more than 1 kB, which most answers of a model are, takes
a page of its own, and the file grows by a third.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

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
)
"""Where each conversation rests: `seq` and `chain` are those of its newest step, `state` is the state in full.

`waits` says whether a model, a tool or a retry has still to answer: work that a restart must take up again. `state`
stands last, because a long row spills its end, and most questions do not ask for it.
"""

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

`event_id` names a request, `effect_id` the effect that an answer answers; each is unique in its conversation, so
nothing is taken twice. `state` is the digest of the state that the step rests in; `chain` covers this row and the
`chain` of the row before, so that damage is found which SQLite itself does not notice.
"""

for _column in (events.c.event_id, events.c.effect_id):
    Index(f"events_{_column.name}", events.c.conversation, _column, unique=True, sqlite_where=_column.is_not(None))

Index("events_policy_changed", events.c.conversation, events.c.seq, sqlite_where=events.c.type == "policy_changed")

forks = Table(
    "forks",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("origin", Text, nullable=False),
    Column("seq", Integer, nullable=False),
)
"""Where the conversations come from that were copied from others: the id of the one copied, which may be deleted since,
and the newest of its steps that was. A table of its own, because few conversations have such a row, and a column behind
`conversations.state` would have to be looked for at the end of every long one."""

outbox = Table(
    "outbox",
    metadata,
    Column("conversation", Integer, ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True),
    Column("target", Text, primary_key=True),
    Column("effect_id", Integer, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt", BigInteger),
    sqlite_with_rowid=False,
)
"""What is still to be delivered: one row for each effect that nobody awaits and each of its targets, in order for each
target. The effect itself stands in the step `seq`. The row goes when the delivery is acknowledged."""
