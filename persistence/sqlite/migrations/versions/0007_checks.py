"""What shows that a delivery was lost or turned to another target, and that the origin of a copy was changed; and how
many processes have died in an attempt to deliver.

The checksums of what is stored already are those of what is there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

CHECK_ORIGINS = """
UPDATE forks SET checksum = origin_checksum(origin, seq, (
    SELECT chain FROM events WHERE events.conversation = forks.conversation AND events.seq = forks.seq
))
"""

CHECK_OUTBOX = """
UPDATE conversations SET sent = (
    SELECT sum(delivery_checksum(target, effect_id)) FROM outbox WHERE conversation = key
) WHERE key IN (SELECT conversation FROM outbox)
"""


def upgrade() -> None:
    op.add_column("outbox", sa.Column("begun", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("forks", sa.Column("checksum", sa.LargeBinary()))
    op.add_column("conversations", sa.Column("sent", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "acknowledgements",
        sa.Column(
            "conversation", sa.Integer(), sa.ForeignKey("conversations.key", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
    )
    op.get_bind().exec_driver_sql(CHECK_ORIGINS)
    op.get_bind().exec_driver_sql(CHECK_OUTBOX)
