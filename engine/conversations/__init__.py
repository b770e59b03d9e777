"""Holds the conversations that an engine has in memory: how each is read, kept, taken over after a crash, and let go.

How one conversation moves is for `engine/loop.py` to say.
"""
