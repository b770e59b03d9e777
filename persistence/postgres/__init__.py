"""The store in a PostgreSQL database, for several processes.

    store        implements the ports; `steps` stores a step, `receipts` what became of deliveries
    custody      who looks after a conversation, and who is called for
    jobs         finds processes that look after conversations; `job_tables` are what it needs in the database
    notices      what one process stores and shows, as the others hear it
    search       the texts that may be found again
    database     the threads of an open database; `connection` is what one of them works on
    schema       the tables; `migrations/` how older tables become these
    address      its URL

What it shares with other relational databases stands in `sql/`. Without the extra `postgres` none of it can be
imported.
"""
