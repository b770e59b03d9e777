"""The stores of a simulation: one in memory, and turnwise's own over a file, both of which fail and die at bad moments.

What an engine does with a store, and what must hold of it afterwards, does not belong here.
"""
