"""What the rows of the table do, one module for each state that a row leaves.

What several rows do at the junction in which they end is in `junctions`; the questions of the table are in `guards`.
"""
