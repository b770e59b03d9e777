"""The Agent2Agent protocol (A2A) 1.0: a turn is a task, and a conversation the context of its tasks.

Its library is installed with the extra `a2a` only; without it there is no such door.
"""
