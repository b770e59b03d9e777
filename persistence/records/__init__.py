"""What every store shares: the rows of a conversation, how steps are encoded in them, and how damage is found.

Nothing here reads or writes a storage.
"""
