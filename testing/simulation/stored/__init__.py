"""The real store under a simulation: a SQLite file, the code that writes to it, and others who write beside.

These modules import persistence/ at their heads, as they are made of its parts; `Simulation` imports them when it is to
run in a file.
"""
