"""Where a conversation was copied from."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "forks",
        sa.Column(
            "conversation", sa.Integer(), sa.ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
    )
