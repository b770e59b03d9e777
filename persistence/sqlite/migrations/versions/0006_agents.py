"""Agents: the role of each conversation, those that it works for and was started by, its schedule and next wake-up.

The first steps of older logs name roles and other conversations. No older log has a schedule. The index of texts, which
held those of background agents, follows the logs anew when somebody searches.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

OPENED = "(SELECT opened_field(CAST(payload AS BLOB), '{}') FROM events WHERE events.conversation = key AND seq = 1)"
"""A text of the first step of a conversation. The connection has the function `opened_field`."""

CHANGES = " OR ".join(
    f"type = '{kind}'" for kind in ("policy_changed", "tools_changed", "details_changed", "schedule_changed")
)

COLUMNS = ("role", "works_for", "parent")

FILL = f"""
INSERT INTO details (conversation, role, parent, works_for)
SELECT key, role, parent, works_for FROM (
    SELECT key, {", ".join(f"{OPENED.format(column)} AS {column}" for column in COLUMNS)} FROM conversations
) WHERE coalesce(role, parent, works_for) IS NOT NULL
ON CONFLICT (conversation) DO UPDATE SET {", ".join(f"{column} = excluded.{column}" for column in COLUMNS)}
"""


def _index(table: str, column: str) -> None:
    op.create_index(f"{table}_{column}", table, [column], sqlite_where=sa.text(f"{column} IS NOT NULL"))


def upgrade() -> None:
    op.add_column("conversations", sa.Column("wakes_at", sa.BigInteger()))
    _index("conversations", "wakes_at")
    for column in COLUMNS:
        op.add_column("details", sa.Column(column, sa.Text()))
        _index("details", column)
    op.drop_index("events_context_changed", "events")
    op.create_index("events_context_changed", "events", ["conversation", "type", "seq"], sqlite_where=sa.text(CHANGES))
    op.get_bind().exec_driver_sql(FILL)
    op.get_bind().exec_driver_sql("DELETE FROM text_positions")
