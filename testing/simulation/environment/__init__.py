"""The environment of a simulation: virtual time, randomness that follows from a seed, and the trace of what happens.

What takes part in a simulation (stores, performers, users) does not belong here.
"""
