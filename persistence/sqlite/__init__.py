"""The store in a SQLite database.

    store, log   implement the ports
    reading      reads conversations and verifies them
    database     the two threads of an open database; `opening` opens their connections
    threads/     what happens in these threads: batches of steps, receipts
    search/      the texts that may be found again: an index that follows the logs
    tables/      the tables, their migration, and the SQL
    file/        the file: address, lock, identity, transactions

What stores of other kinds share belongs in `records`.
"""
