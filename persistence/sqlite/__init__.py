"""The store in a SQLite database.

    store        implements the ports
    database     the two threads of an open database, and their connections
    thread       what happens in these threads; `writer` stores steps in batches
    search       the texts that may be found again; `indexing` keeps the index that follows the logs
    schema       how the tables are made; `migrations/` how older tables become these
    examination  what is wrong with a file, and what a damaged one still holds; `erasure` deletes
    file         the file: address, lock, identity, transactions

What it shares with other relational databases stands in `sql/`.
"""
