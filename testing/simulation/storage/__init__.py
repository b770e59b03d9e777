"""What simulations store and where: the disk, the processes that have it open, and a store in memory that fails.

What an engine does with a store, and what must hold of it afterwards, does not belong here.
"""
