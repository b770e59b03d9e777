"""What the rows of the table do: to turns, with models, with tools, with people and with other agents.

What several rows do at the junction in which they end is in `junctions`; the questions of the table are in `guards`.
"""
