"""The threads that own the connections, and what is handed in to them: work, steps, receipts.

The SQL belongs in `tables`.
"""
