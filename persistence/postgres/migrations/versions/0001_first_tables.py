"""The tables of the first release. `schema.create_tables` makes them, so no database is ever without them."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing is older."""
