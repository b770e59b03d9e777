"""How the tables came to be: one file in `versions` for each change, oldest first. Alembic runs them by their path."""
