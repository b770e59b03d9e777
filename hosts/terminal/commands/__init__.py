"""The commands of `turnwise`, a module for each, and `app.py` with their options.

Nothing here is used by the other rooms.
"""
