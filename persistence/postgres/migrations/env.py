"""Runs the migrations on the connection, and within the transaction, that `sql.schema.run_migrations` hands over."""

from alembic import context

context.configure(**context.config.attributes)
context.run_migrations()
