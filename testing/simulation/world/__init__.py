"""The outside world of a simulation: performers and channels that answer, fail, hang and misbehave.

Users, who call the engine, do not belong here.
"""
