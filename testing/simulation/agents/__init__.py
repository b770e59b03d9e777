"""Simulations of a tree of agents: one with a user, two that work for it in the background, and their sub-agents.

What a single conversation does, and its users, do not belong here: see `simulation` and `users`.
"""
