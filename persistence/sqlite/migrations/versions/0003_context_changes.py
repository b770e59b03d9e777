"""Finds the newest step that changed the context of a conversation without reading its log."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    changes = sa.text("type = 'policy_changed'")
    op.create_index("events_policy_changed", "events", ["conversation", "seq"], sqlite_where=changes)
