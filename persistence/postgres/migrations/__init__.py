"""The migrations of the tables in PostgreSQL, as Alembic runs them.

A migration that was released is never changed. How the tables look now is declared in `schema`.
"""
