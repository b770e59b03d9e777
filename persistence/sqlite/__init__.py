"""The store in a SQLite database.

    store        implements the ports
    reading      reads conversations and verifies them
    database     the two threads of an open database, and their connections
    thread       what happens in these threads; `writer` stores steps in batches
    search       the texts that may be found again; `indexing` keeps the index that follows the logs
    schema       the tables; `queries` has the SQL, `migrations/` how older tables become these
    file         the file: address, lock, identity, transactions

What stores of other kinds share belongs in `records`.
"""
