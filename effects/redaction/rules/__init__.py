"""The built-in rules: one module for each kind of secret, each of which finds its kind in a folded text.

What is done with the secrets belongs to the folder above. Nothing here knows of events and conversations.
"""
