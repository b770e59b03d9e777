"""The store over PostgreSQL, for several processes."""
