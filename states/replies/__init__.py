"""What of a turn reaches the user, and of what the model is reminded before the turn ends.

The rules themselves are in `policy`.
"""
