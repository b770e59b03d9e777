"""Stores conversations so that a crash loses nothing; whoever writes a store needs no other names than those here.

    ports         what an engine needs of a store: `Store`, `Log`, `SearchableStore`, `SharedStore`
    records       what every store shares: the rows of a conversation and their verification
    codec         how steps are encoded in rows
    summaries     what a list of conversations shows, as it follows from their events
    words         the words of texts, by which they are found; `vectors` compares texts by meaning
    errors        what may go wrong
    sql/          what the stores in relational databases share
    sqlite/       the store in a SQLite database, of one process
    postgres/     the store in a PostgreSQL database, which several processes share
    maintenance/  replay, fork, export, import, copy and examination of any store
    opening       which store belongs to a URL

What a step means is for `states/` to say; an effect is never performed here. SQLAlchemy is imported in `sql/`,
`sqlite/` and `postgres/` only.
Each name of `__init__.pyi` is imported on first use, so that importing this package imports no database.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
