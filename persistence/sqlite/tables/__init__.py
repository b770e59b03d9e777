"""The tables, and the SQL that reads and writes them within the transaction of a caller.

Threads and connections belong elsewhere.
"""
