"""The first tables: conversations, their events, and what is still to be delivered."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _conversation() -> sa.Column[int]:
    """Return the foreign key of a row to its conversation."""
    owner = sa.ForeignKey("conversations.key", ondelete="CASCADE")
    return sa.Column("conversation", sa.Integer(), owner, primary_key=True)


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("key", sa.Integer(), primary_key=True),
        sa.Column("id", sa.Text(), nullable=False, unique=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.Column("state_type", sa.Text(), nullable=False),
        sa.Column("waits", sa.Boolean(), nullable=False),
        sa.Column("next_timer", sa.BigInteger()),
        sa.Column("owner", sa.Text()),
        sa.Column("parent", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
    )
    op.create_table(
        "events",
        sa.Column(
            "conversation", sa.Integer(), sa.ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("event_id", sa.Text()),
        sa.Column("effect_id", sa.Integer()),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("effects", sa.Text()),
        sa.Column("ended", sa.Text()),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
    )
    for column in ("event_id", "effect_id"):
        present = sa.text(f"{column} IS NOT NULL")
        op.create_index(f"events_{column}", "events", ["conversation", column], unique=True, sqlite_where=present)
    op.create_table(
        "outbox",
        sa.Column(
            "conversation", sa.Integer(), sa.ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("target", sa.Text(), primary_key=True),
        sa.Column("effect_id", sa.Integer(), primary_key=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
