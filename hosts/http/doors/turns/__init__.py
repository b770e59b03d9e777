"""What all doors share: a request that a turn answers, the texts of that turn, and what a person is asked.

Nothing here knows a protocol.
"""
