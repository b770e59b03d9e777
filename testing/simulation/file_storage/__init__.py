"""turnwise's own store in a simulation: over a real file, with virtual threads and statements that fail.

It is made of parts of the store, so only a simulation over a file imports it. What every store of a simulation shares
belongs in `storage/`.
"""
