"""A SQLite file and a connection to it: address, lock, identity, transactions.

The tables belong in `tables`.
"""
