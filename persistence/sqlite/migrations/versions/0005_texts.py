"""The texts that may be found again, and vectors of them. They are filled when somebody searches."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def _conversation(*, primary_key: bool) -> sa.Column[int]:
    """Return the foreign key of a row to its conversation."""
    owner = sa.ForeignKey("conversations.key", ondelete="CASCADE")
    return sa.Column("conversation", sa.Integer(), owner, primary_key=primary_key, nullable=False)


def upgrade() -> None:
    op.create_table(
        "texts",
        sa.Column("id", sa.Integer(), primary_key=True),
        _conversation(primary_key=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("scope", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("by_user", sa.Boolean(), nullable=False),
        sa.Column("source", sa.Integer()),
        sa.Column("path", sa.Text()),
        sa.Column("text", sa.Text()),
        sa.Column("checksum", sa.Integer(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("texts_conversation", "texts", ["conversation", "seq"])
    op.create_index("texts_scope", "texts", ["scope", "at"])
    op.create_table("text_positions", _conversation(primary_key=True), sa.Column("seq", sa.Integer(), nullable=False))
    op.create_table(
        "text_vectors",
        sa.Column("text", sa.Integer(), sa.ForeignKey("texts.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("space", sa.Text(), primary_key=True),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
    )
