"""The commands of `turnwise`, and `app` with their options.

Nothing here is used by the other packages of the terminal.
"""
