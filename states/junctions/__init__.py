"""What the branches of the junctions do: how a turn begins, asks the model, runs its tools and ends.

What only the rows of one state do is in `handlers`.
"""
