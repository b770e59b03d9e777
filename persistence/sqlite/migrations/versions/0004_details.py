"""What lists show of conversations: titles and metadata, and an index of owners.

Older logs have neither given titles nor metadata, so the title of each conversation is that of its first message.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TITLES = """
INSERT INTO details (conversation, first_message)
SELECT key, title FROM (
    SELECT key, (
        SELECT message_title(CAST(payload AS BLOB)) FROM events
        WHERE conversation = key AND type = 'user_message' ORDER BY seq LIMIT 1
    ) AS title
    FROM conversations
) WHERE title IS NOT NULL
"""
"""Reads each log up to the first message of a user. The connection has the function `message_title`."""


def _conversation() -> sa.Column[int]:
    """Return the foreign key of a row to its conversation."""
    owner = sa.ForeignKey("conversations.key", ondelete="CASCADE")
    return sa.Column("conversation", sa.Integer(), owner, primary_key=True)


def upgrade() -> None:
    op.create_index("conversations_owner", "conversations", ["owner"], sqlite_where=sa.text("owner IS NOT NULL"))
    op.drop_index("events_policy_changed", "events")
    changes = sa.text("type = 'policy_changed' OR type = 'tools_changed' OR type = 'details_changed'")
    op.create_index("events_context_changed", "events", ["conversation", "type", "seq"], sqlite_where=changes)
    op.create_table(
        "details",
        _conversation(),
        sa.Column("first_message", sa.Text()),
        sa.Column("title", sa.Text()),
        sa.Column("metadata", sa.Text()),
    )
    op.create_table(
        "metadata_entries",
        sa.Column("entry", sa.LargeBinary(), primary_key=True),
        _conversation(),
        sqlite_with_rowid=False,
    )
    op.create_index("metadata_entries_conversation", "metadata_entries", ["conversation"])
    op.get_bind().exec_driver_sql(TITLES)
